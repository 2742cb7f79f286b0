"""Token ids past the last input row: which of them matter, and which nothing refers to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import not_

from tokaudit.contract import Contract, Embeddings, Missing, Reference, Role, Table, is_placeholder
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location
from tokaudit.text import named

MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class RowLimit:
    """How many ids have a row, who says so, and the same in words."""

    rows: int
    claim: Claim
    words: str


def row_limit(contract: Contract) -> RowLimit:
    """The rows that ids may address: counted in the weights, or what config.json asks for without them."""
    embeddings = contract.embeddings
    table = embeddings.output_or if embeddings.inverted else embeddings.input_or
    if isinstance(table, Table) and isinstance(table.rows_or, int):
        rows = embeddings.input_rows
        parts = " and those that continue it" if embeddings.extra_inputs else ""
        return RowLimit(
            rows.value,
            rows.says(f"{rows.value} rows{parts}: ids 0 to {rows.value - 1}"),
            f"the input embeddings have {rows.value} rows",
        )
    _ = contract.config
    expected = embeddings.expected_input
    if not expected.terms:
        raise FactMissing("no field of config.json states the number of rows")
    return RowLimit(
        expected.value,
        expected.terms[0].says(f"asks for {expected.value} rows ({expected.formula})"),
        f"config.json asks for {expected.value} rows ({expected.formula})",
    )


@dataclass(frozen=True, slots=True)
class Stray:
    """A token whose id has no row.

    ``because`` says what makes it matter ("the pad token", "in the base vocabulary"); it is empty where
    nothing refers to the token, or where the model class swaps the id before the lookup. ``at`` is where the
    id is stated, ``references`` are the places that put it into the model's input.
    """

    id: int
    content: str
    at: Location
    because: str
    references: tuple[Claim, ...]

    @property
    def words(self) -> str:
        return named(self.id, self.content) + (f" ({self.because})" if self.because else "")

    @property
    def claim(self) -> Claim:
        return Claim(self.at, f"id {named(self.id, self.content)}")


@dataclass(frozen=True, slots=True)
class Strays:
    """The ids of tokens at or past the limit, in order: those that matter and those that nothing refers to.

    There may be a million of them; only the ones that are shown are looked at closely.
    """

    mattering: tuple[int, ...]
    unused: tuple[int, ...]

    @property
    def rows_needed(self) -> int:
        """Rows that would hold them all."""
        return max(self.mattering + self.unused) + 1


def stray_tokens(contract: Contract, limit: RowLimit) -> Strays:
    """Every token with an id at or past the limit."""
    vocabulary = contract.vocabulary
    if vocabulary.required_rows.value <= limit.rows:
        return Strays((), ())
    reasons = _Reasons(contract)
    past = sorted(id for id in vocabulary.by_id if id >= limit.rows)
    matters = [bool(reasons.because(id)) for id in past]
    return Strays(tuple(compress(past, matters)), tuple(compress(past, map(not_, matters))))


def shown_strays(contract: Contract, ids: tuple[int, ...]) -> list[Stray]:
    """The first few of the ids, in full."""
    reasons, vocabulary = _Reasons(contract), contract.vocabulary
    return [
        Stray(
            id,
            vocabulary.by_id[id],
            vocabulary.locate(id),
            reasons.because(id),
            tuple(Claim(each.at, f"names id {id}: {each.words}") for each in reasons.references(id)),
        )
        for id in ids[:MOST_SHOWN]
    ]


class _Reasons:
    """What can make an id matter, gathered once for all of them."""

    def __init__(self, contract: Contract) -> None:
        vocabulary = contract.vocabulary
        self._base = vocabulary.base_ids
        self._special = {token.content for token in vocabulary.added if token.special}
        self._texts = vocabulary.by_id
        self._references = contract.references
        self._data = None if isinstance(contract.data_or, Missing) else contract.data_or
        embeddings = contract.embeddings_or  # an adapter has none
        self._masks = isinstance(embeddings, Embeddings) and embeddings.architecture.endswith("ForMaskedLM")
        # What the tokenizer's files declare as image, audio or video tokens, as `image_token` is.
        self._placeholders = {
            token.content
            for token in contract.special_tokens
            if token.role is None and is_placeholder(token.name.rpartition("/")[2])
        }

    def because(self, id: int) -> str:
        """What makes the id matter; "" where nothing does."""
        for reference in self.references(id):
            return reference.words
        if self._data is not None and self._data.visited(id) and not self._swapped(id):
            return "seen in the given data"
        text = self._texts[id]
        # The empty text is a blank line of vocab.txt, which nothing encodes to.
        ordinary = text and text in self._base and text not in self._special
        return "in the base vocabulary" if ordinary and not self._swapped(id) else ""

    def references(self, id: int) -> tuple[Reference, ...]:
        """What puts the id into the input: a mask only does where masked tokens are predicted."""
        named_by = self._references.get(id, ())
        return tuple(
            reference
            for reference in named_by
            if (reference.role is None and not self._swapped(id))
            or (reference.role is not None and (self._masks or reference.role is not Role.MASK))
        )

    def _swapped(self, id: int) -> bool:
        """Whether the model class replaces the id by features before the lookup."""
        placeholder = any(reference.placeholder for reference in self._references.get(id, ()))
        return placeholder or self._texts[id] in self._placeholders
