"""What one batch of a training run holds: the facts that `tokaudit.training.audit_batch` measures.

N is the number of sequences, L their length in positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract.facts import Missing, present
from tokaudit.findings import Claim, Location


@dataclass(frozen=True, slots=True)
class Positions:
    """Some positions of a tensor: how many, the index of the first one and the id that stands there.

    ``content`` is the text of that id's token, where a tokenizer tells it. False where there are none.
    """

    tensor: str
    count: int
    first: tuple[int, ...] = ()
    id: int = 0
    content: str | None = None

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def place(self) -> str:
        """``input_ids[2, 17]``"""
        return f"{self.tensor}[{', '.join(map(str, self.first))}]"

    def says(self, words: str) -> Claim:
        """What stands at the first position."""
        row = self.first[0]
        return Claim(Location("batch", tensor=self.tensor, rows=(row, row + 1)), words)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A tensor of another dtype or shape than models take."""

    tensor: str
    expected: str
    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class IdRange:
    """A tensor whose ids select rows: they are at least 0 and below ``bound``, as ``bound_by`` says."""

    tensor: str
    bound: int
    bound_by: str
    outside: Positions


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """A mask [N, L] beside its ids: padding that it lets through, and tokens that it hides.

    The first padding next to a text is not counted: where padding and end-of-sequence are one token, it
    may be the latter. ``given`` is False where the batch holds no such mask and the model attends to all.
    """

    mask: str
    ids: str
    pad_id: int
    given: bool
    attended: Positions
    hidden: Positions


@dataclass(frozen=True, slots=True)
class Labelled:
    """How many positions of a batch have a label that takes part in the loss, and how many there are."""

    count: int
    positions: int
    ignore_id: int


@dataclass(frozen=True, slots=True)
class Unmasked:
    """Padding that has labels, and what shows that it is padding ("pad id 0", "attention_mask")."""

    by: str
    positions: Positions
    ignore_id: int


@dataclass(frozen=True, slots=True)
class MaskedStops:
    """End-of-sequence tokens right behind at least two labels that have none themselves."""

    positions: Positions
    ignore_id: int
    pads: bool  # whether the token is the padding as well


@dataclass(frozen=True, slots=True)
class Moved:
    """Labels against inputs: ``by`` is 1 where each label is the next input, -1 where it is the one before.

    0 is what models take that move labels themselves. ``matching`` of ``compared`` labels show it.
    ``model_moves`` is False for a module that nothing shows to move its labels.
    """

    by: int
    matching: int
    compared: int
    model_moves: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. ``names`` are its keys; tensors that are malformed have no other facts."""

    names: tuple[str, ...]
    malformed_or: tuple[Malformed, ...] | Missing
    ranges_or: tuple[IdRange, ...] | Missing
    masks_or: tuple[AttentionMask, ...] | Missing
    labelled_or: Labelled | Missing
    unmasked_or: Unmasked | Missing
    masked_stops_or: MaskedStops | Missing
    moved_or: Moved | Missing

    @property
    def malformed(self) -> tuple[Malformed, ...]:
        return present(self.malformed_or)

    @property
    def ranges(self) -> tuple[IdRange, ...]:
        return present(self.ranges_or)

    @property
    def masks(self) -> tuple[AttentionMask, ...]:
        return present(self.masks_or)

    @property
    def labelled(self) -> Labelled:
        return present(self.labelled_or)

    @property
    def unmasked(self) -> Unmasked:
        return present(self.unmasked_or)

    @property
    def masked_stops(self) -> MaskedStops:
        return present(self.masked_stops_or)

    @property
    def moved(self) -> Moved:
        return present(self.moved_or)
