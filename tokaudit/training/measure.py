"""The facts of a batch, as reductions on its device that are fetched together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch

from tokaudit.contract import Missing
from tokaudit.contract.batch import (
    AttentionMask,
    Batch,
    IdRange,
    Labelled,
    MaskedStops,
    Moved,
    Positions,
    Unmasked,
)
from tokaudit.errors import FactMissing
from tokaudit.text import listed, shown
from tokaudit.training.expectations import Bound, Expectations, LabelKind
from tokaudit.training.shapes import Read, read

SHOWING_MOVED = 0.9  # share of the labels that equal a neighbour of their input
FEWEST_MOVED = 3  # of them are another id than their own input
SHOWING_SAME = 0.8  # share of the labels that equal their own input, where ends of texts can be told

T = TypeVar("T")
Later = Callable[[], T]  # asked once the numbers were fetched; may raise FactMissing


def measure(batch: Mapping[str, object], expected: Expectations) -> Batch:
    """Measure one batch. Its values are waited for once."""
    with torch.no_grad():
        found = read(batch, expected)
        measured = _Measured(found, expected, Numbers())
        ranges = _planned(measured.ranges)
        masks = _planned(measured.masks)
        labelled = _planned(measured.labelled)
        unmasked = _planned(measured.unmasked)
        stops = _planned(measured.masked_stops)
        moved = _planned(measured.moved)
        measured.numbers.fetch()
        return Batch(
            names=found.names,
            malformed_or=found.malformed if found.tensors or found.malformed else Missing(_unknown(batch)),
            ranges_or=ranges(),
            masks_or=masks(),
            labelled_or=labelled(),
            unmasked_or=unmasked(),
            masked_stops_or=stops(),
            moved_or=moved(),
        )


def _unknown(batch: Mapping[str, object]) -> str:
    names = listed([shown(str(name)) for name in batch]) or "nothing"
    return f"the batch has no tensor that is known: it has {names}"


def _planned(plan: Callable[[], Later[T]]) -> Later[T | Missing]:
    """What the plan will find, or why there is nothing to find."""
    try:
        later = plan()
    except FactMissing as missing:
        reason = missing.reason
        return lambda: Missing(reason)

    def ask() -> T | Missing:
        try:
            return later()
        except FactMissing as missing:
            return Missing(missing.reason)

    return ask


class Numbers:
    """Scalars on one device; `fetch` brings all of them over in one transfer."""

    def __init__(self) -> None:
        self._pending: list[torch.Tensor] = []
        self._fetched: list[int] = []

    def add(self, scalar: torch.Tensor) -> Later[int]:
        place = len(self._pending)
        self._pending.append(scalar)
        return lambda: self._fetched[place]

    def fetch(self) -> None:
        if self._pending:
            self._fetched = torch.stack([scalar.to(torch.int64) for scalar in self._pending]).tolist()


@dataclass(frozen=True)
class _Pair:
    """Labels beside their inputs, both [N, L]: where a label is ``kept``, and where it is its own input."""

    inputs: torch.Tensor
    labels: torch.Tensor
    kept: torch.Tensor
    same: torch.Tensor
    count: Later[int]
    count_same: Later[int]

    @property
    def share_same(self) -> float:
        return self.count_same() / max(self.count(), 1)


@dataclass(frozen=True)
class _Measured:
    """One batch on its way to facts. Each method plans reductions and returns what makes a fact of them."""

    batch: Read
    expected: Expectations
    numbers: Numbers

    # --- ids in range ---

    def ranges(self) -> Later[tuple[IdRange, ...]]:
        plans = list(self._range_plans())
        if not plans:
            self.batch["input_ids"]  # says why there is none
            raise FactMissing("the batch has no ids with a known bound")
        return lambda: tuple(plan() for plan in plans)

    def _range_plans(self) -> Iterator[Later[IdRange]]:
        for name, bound in self.expected.bounds.items():
            if name == "labels":
                yield from self._label_range(bound)
            elif name in self.batch.tensors and self.batch[name].dim() != 3:
                yield self._range(name, bound, self.batch[name])
        if "position_ids" in self.expected.bounds and "position_ids" not in self.batch.names:
            yield from self._counted_positions(self.expected.bounds["position_ids"])

    def _range(
        self, name: str, bound: Bound, ids: torch.Tensor, kept: torch.Tensor | None = None
    ) -> Later[IdRange]:
        outside = (ids < 0) | (ids >= bound.rows)
        for id in self.expected.placeholders if name == "input_ids" else ():
            outside &= ids != id
        positions = self._positions(name, outside if kept is None else outside & kept, ids)
        return lambda: IdRange(name, bound.rows, bound.by, positions())

    def _label_range(self, bound: Bound) -> Iterator[Later[IdRange]]:
        labels = self.batch.tensors.get("labels")
        if labels is None or labels.is_floating_point() or labels.dtype is torch.bool:
            return
        inputs = self.batch.tensors.get("input_ids")
        beside = inputs is not None and inputs.shape == labels.shape
        if self.expected.labels is not LabelKind.UNKNOWN or beside or self._decodes:
            yield self._range("labels", bound, labels, labels != self.expected.ignore_id)

    def _counted_positions(self, bound: Bound) -> Iterator[Later[IdRange]]:
        """Positions that no tensor states: the model counts them."""
        ids = self.batch.tensors.get("input_ids")
        if ids is not None and ids.dim() == 2:
            beyond = max(0, ids.shape[1] - bound.rows) * ids.shape[0]
            outside = Positions("input_ids", beyond, (0, bound.rows), bound.rows)
            yield lambda: IdRange("position_ids", bound.rows, bound.by, outside)

    # --- masks ---

    def masks(self) -> Later[tuple[AttentionMask, ...]]:
        plans = [self._mask("attention_mask", "input_ids")]
        if "decoder_attention_mask" in self.batch.tensors:
            plans.append(self._mask("decoder_attention_mask", "decoder_input_ids"))
        return lambda: tuple(plan() for plan in plans)

    def _mask(self, name: str, beside: str) -> Later[AttentionMask]:
        ids = self.batch.sequences(beside)
        pad = self._pad
        leading, trailing = edges(ids, pad)
        if name not in self.batch.names:
            return self._no_mask(name, beside, leading, trailing)
        mask = self.batch.sequences(name)
        hides = mask == 0
        ends = (ids[:, :1] == ids) | (ids[:, -1:] == ids)  # padding with another id than the pad token's
        attended = self._positions(beside, (leading | trailing) & ~hides, ids)
        hidden = self._positions(beside, hides & (ids != pad) & ~ends, ids)
        additive = self.numbers.add((mask < 0).sum())

        def found() -> AttentionMask:
            if additive():
                raise FactMissing(f"{name} holds numbers to add, and no marks")
            return AttentionMask(name, beside, pad, True, attended(), hidden())

        return found

    def _no_mask(
        self, name: str, beside: str, leading: torch.Tensor, trailing: torch.Tensor
    ) -> Later[AttentionMask]:
        """A model of transformers attends to everything; a causal one does not look to the right."""
        if not self.expected.known:
            raise FactMissing(f"the batch has no {name}")
        ids = self.batch[beside]
        read_as_text = leading | trailing if self.expected.attends_all else leading
        attended = self._positions(beside, read_as_text, ids)
        return lambda: AttentionMask(name, beside, self._pad, False, attended(), Positions(beside, 0))

    # --- labels ---

    def labelled(self) -> Later[Labelled]:
        labels, ignore = self._token_labels(), self.expected.ignore_id
        count = self.numbers.add((labels != ignore).sum())
        return lambda: Labelled(count(), labels.numel(), ignore)

    def unmasked(self) -> Later[Unmasked]:
        ignore = self.expected.ignore_id
        if self._decodes:
            labels = self._token_labels()
            leading, trailing = edges(labels, self._pad)
            positions = self._positions("labels", (leading | trailing) & (labels != ignore), labels)
            return lambda: Unmasked(f"pad id {self._pad}", positions(), ignore)
        pair = self._pair
        by_pad = self._padding_with_labels(pair)
        by_mask = self._hidden_with_labels(pair)

        def found() -> Unmasked:
            hidden = by_mask() if by_mask and pair.share_same == 1 else None
            padding = by_pad() if by_pad else None
            if hidden is not None and (padding is None or hidden.count >= padding.count):
                return Unmasked("attention_mask", hidden, ignore)
            if padding is None:
                raise FactMissing("nothing shows which positions are padding: no pad id is known")
            return Unmasked(f"pad id {self._pad}", padding, ignore)

        return found

    def _padding_with_labels(self, pair: _Pair) -> Later[Positions] | None:
        """Labels that are the pad token where the inputs are padding, whether they were moved or not."""
        if self.expected.pad_id is None:
            return None
        leading, trailing = edges(pair.inputs, self.expected.pad_id)
        labelled = (leading | trailing) & pair.kept & (pair.labels == self.expected.pad_id)
        return self._positions("labels", labelled, pair.labels)

    def _hidden_with_labels(self, pair: _Pair) -> Later[Positions] | None:
        mask = self.batch.tensors.get("attention_mask")
        if mask is None or mask.shape != pair.labels.shape:
            return None
        labelled = (mask == 0) & pair.kept
        if self.expected.pad_id is not None:
            labelled &= pair.inputs == self.expected.pad_id
        return self._positions("labels", labelled, pair.labels)

    def masked_stops(self) -> Later[MaskedStops]:
        pair, ids, ignore = self._pair, self.expected.eos_ids, self.expected.ignore_id
        if self.expected.labels is LabelKind.SAME:
            raise FactMissing("a masked language model is given few labels")
        if not ids:
            raise FactMissing("no end-of-sequence id was given, and neither tokenizer nor model states one")
        stops = torch.zeros_like(pair.kept)
        for id in ids:
            stops |= pair.inputs == id
        pads = self.expected.pad_id in ids
        if pads:  # the first of a run is the end of the text where the mask shows it
            stops &= self.batch.sequences("attention_mask") != 0
        # Two labels before it: single ones occur in masked language models.
        missed = stops[:, 2:] & ~pair.kept[:, 2:] & pair.kept[:, 1:-1] & pair.kept[:, :-2]
        if not missed.numel():
            raise FactMissing("the sequences are too short")
        positions = self._positions("input_ids", missed, pair.inputs[:, 2:], offset=2)

        def found() -> MaskedStops:
            if pair.count() and pair.share_same < SHOWING_SAME:
                raise FactMissing("the labels are not those of their inputs")
            return MaskedStops(positions(), ignore, pads)

        return found

    def moved(self) -> Later[Moved]:
        if self.expected.labels is LabelKind.SAME:
            raise FactMissing("a masked language model does not move its labels")
        pair = self._pair
        plans = [self._moved_by(by, pair) for by in (1, -1)]

        def found() -> Moved:
            showing = [moved for plan in plans if (moved := plan()) is not None]
            moves = self.expected.moves_labels
            return showing[0] if showing else Moved(0, pair.count_same(), pair.count(), moves)

        return found

    def _moved_by(self, by: int, pair: _Pair) -> Later[Moved | None]:
        """Whether the labels are the inputs ``by`` positions further on; the last of them are anything."""
        here, there = (slice(None, -1), slice(1, None)) if by == 1 else (slice(1, None), slice(None, -1))
        kept = pair.kept[:, here]
        compared = self.numbers.add(kept.sum())
        matching = kept & (pair.labels[:, here] == pair.inputs[:, there])
        count = self.numbers.add(matching.sum())
        distinct = self.numbers.add((matching & ~pair.same[:, here]).sum())

        def found() -> Moved | None:
            if distinct() < FEWEST_MOVED or count() < SHOWING_MOVED * compared() or pair.share_same > 0.5:
                return None
            return Moved(by, count(), compared(), self.expected.moves_labels)

        return found

    # --- what they have in common ---

    @property
    def _pad(self) -> int:
        if self.expected.pad_id is None:
            raise FactMissing("no pad id was given, and neither tokenizer nor model states one")
        return self.expected.pad_id

    @property
    def _decodes(self) -> bool:
        """Whether labels stand beside the inputs of a decoder."""
        return self.expected.labels is LabelKind.DECODED or "decoder_input_ids" in self.batch.names

    def _token_labels(self) -> torch.Tensor:
        if self.expected.labels is LabelKind.CLASSES:
            raise FactMissing("the labels of this model are no token ids")
        labels = self.batch.sequences("labels")
        if labels.is_floating_point() or labels.dtype is torch.bool:
            raise FactMissing("labels are no integers")
        return labels

    @cached_property
    def _pair(self) -> _Pair:
        if self._decodes:
            raise FactMissing("labels stand beside the inputs of the decoder, which the model makes of them")
        labels, inputs = self._token_labels(), self.batch.sequences("input_ids")
        if labels.shape != inputs.shape:
            raise FactMissing("labels have another shape than input_ids")
        kept = labels != self.expected.ignore_id
        same = kept & (labels == inputs)
        counts = self.numbers.add(kept.sum()), self.numbers.add(same.sum())
        return _Pair(inputs, labels, kept, same, *counts)

    def _positions(
        self, name: str, where: torch.Tensor, ids: torch.Tensor, offset: int = 0
    ) -> Later[Positions]:
        """Where ``where`` is true: how often, and the first index with the id that stands there.

        ``offset`` is how many columns of the tensor are not in ``where``.
        """
        flat = where.reshape(-1)
        place = flat.view(torch.uint8).argmax()  # the first of equals
        count = self.numbers.add(flat.sum())
        first = self.numbers.add(place)
        id = self.numbers.add(ids.reshape(-1).take(place))
        shape = tuple(where.shape)

        def found() -> Positions:
            if not count():
                return Positions(name, 0)
            *rows, column = _unravelled(first(), shape)
            return Positions(name, count(), (*rows, column + offset), id(), self.expected.content(id()))

        return found


def edges(ids: torch.Tensor, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padding to the left and to the right of each text [N, L], but for the pad token next to the text.

    That one may be its beginning or its end. Rows of padding alone hold none: `argmax` is 0 for them.
    """
    length = ids.shape[1]
    column = torch.arange(length, device=ids.device)
    marks = (ids != pad_id).view(torch.uint8)
    first = marks.argmax(1, keepdim=True)
    last = length - 1 - marks.flip(1).argmax(1, keepdim=True)
    return column < first - 1, column > last + 1


def _unravelled(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for length in reversed(shape):
        flat, rest = divmod(flat, length)
        index.insert(0, rest)
    return tuple(index)
