"""Token ids past the last input row: which of them matter, and which nothing refers to."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract import Contract, Role, Table, Witness, is_placeholder
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location
from tokaudit.text import named


@dataclass(frozen=True, slots=True)
class RowLimit:
    """How many ids have a row, who says so, and the same in words."""

    rows: int
    claim: Claim
    words: str


@dataclass(frozen=True, slots=True)
class Stray:
    """A token whose id has no row.

    ``because`` says what makes it matter ("the pad token"); it is empty where nothing refers to the token or
    where the model class swaps the id before the lookup. ``references`` are the places that name it.
    """

    id: int
    content: str
    at: Location
    because: str
    references: tuple[Claim, ...] = ()

    @property
    def words(self) -> str:
        return named(self.id, self.content) + (f" ({self.because})" if self.because else "")

    @property
    def claim(self) -> Claim:
        return Claim(self.at, f"id {named(self.id, self.content)}")


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
    expected = embeddings.expected_input
    if not expected.terms:
        raise FactMissing("no field of config.json states the number of rows")
    return RowLimit(
        expected.value,
        expected.terms[0].says(f"asks for {expected.value} rows ({expected.formula})"),
        f"config.json asks for {expected.value} rows ({expected.formula})",
    )


def stray_tokens(contract: Contract, limit: RowLimit) -> tuple[Stray, ...]:
    """Every token with an id at or past the limit, by id."""
    vocabulary = contract.vocabulary
    if vocabulary.required_rows.value <= limit.rows:
        return ()
    placeholders = _placeholder_texts(contract)
    ordinary = _ordinary_tokens(contract)
    return tuple(
        _stray(contract, id, content, ordinary=content in ordinary, swapped=content in placeholders)
        for id, content in sorted(vocabulary.by_id.items())
        if id >= limit.rows
    )


def _stray(contract: Contract, id: int, content: str, *, ordinary: bool, swapped: bool) -> Stray:
    at = contract.vocabulary.locate(id)
    named_by = contract.references.get(id, ())
    swapped = swapped or any(reference.placeholder for reference in named_by)
    roles = _roles_that_count(contract, id)
    reasons = [reference for reference in named_by if reference.kind == "role" and reference.words in roles]
    if not swapped:
        reasons += [reference for reference in named_by if reference.kind != "role"]
    claims = tuple(Claim(reason.at, f"names id {id}: {reason.words}") for reason in reasons)
    if reasons:
        return Stray(id, content, at, reasons[0].words, claims)
    return Stray(id, content, at, "in the base vocabulary" if ordinary and not swapped else "", claims)


def _roles_that_count(contract: Contract, id: int) -> frozenset[str]:
    """The roles of the id that put it into the input: a mask does so only in masked language models."""
    masks = contract.embeddings.architecture.endswith("ForMaskedLM")
    return frozenset(
        f"the {role.value} token"
        for role, token in contract.roles().items()
        if token.id == id and (masks or role is not Role.MASK)
    )


def _ordinary_tokens(contract: Contract) -> frozenset[str]:
    """Contents of the base vocabulary that are not also added special tokens."""
    vocabulary = contract.vocabulary
    special = {token.content for token in vocabulary.added if token.special}
    base = (table for table in vocabulary.tables if table.witness is Witness.BASE)
    return frozenset(content for table in base for content in table.ids if content not in special)


def _placeholder_texts(contract: Contract) -> frozenset[str]:
    """Texts that the tokenizer's files declare as image, audio or video tokens, as ``image_token`` is."""
    return frozenset(
        token.content
        for token in contract.special_tokens
        if token.role is None and is_placeholder(token.name.rpartition("/")[2])
    )
