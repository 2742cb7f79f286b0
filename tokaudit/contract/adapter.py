"""An adapter that PEFT saved: which tables of its base it changes, and the base itself."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tokaudit.contract.checkpoint import Embeddings, Table, TableComparison, TableKind, Tensor
from tokaudit.contract.facts import Document, Fact, Missing, present
from tokaudit.contract.vocabulary import Vocabulary
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location

NOT_AN_ADAPTER = Missing("not an adapter (there is no adapter_config.json)")
_GENERATING = ("CAUSAL_LM", "SEQ_2_SEQ_LM")  # of PEFT's task types


class Change(enum.Enum):
    """What an adapter holds of a table."""

    WHOLE = "a whole table"  # modules_to_save, and the embedding layers that PEFT saves by itself
    LOW_RANK = "low-rank factors"  # LoRA, DoRA
    ROWS = "rows of chosen tokens"  # trainable_token_indices
    OTHER = "factors of another kind"  # LoHa, IA3 ...: their shapes are not read


@dataclass(frozen=True, slots=True)
class AdaptedTable:
    """What the adapter holds of one table of its base.

    ``module`` is the module's name in the base ("model.embed_tokens"). ``tensor`` is the one whose ``axis``
    counts the table's rows: of low-rank factors the one with an entry for each token. ``rows_or`` is its
    length there; Missing where no tensor tells, as the rows of chosen tokens do not. ``hidden`` is the width.
    ``malformed`` says what is wrong with a tensor that should tell and does not.
    """

    kind: TableKind
    module: str
    change: Change
    tensor: Tensor
    axis: int
    rows_or: int | Missing
    hidden: int | None
    malformed: str

    def says(self, words: str) -> Claim:
        return Claim(self.tensor.at, words)


@dataclass(frozen=True, slots=True)
class ChosenTokens:
    """One list of token ids whose rows the adapter replaces: in spite of its name the delta holds whole rows.

    ``malformed`` are the members that are no ids, as JSON texts. ``stored`` is the tensor with their rows.
    """

    kind: TableKind
    ids: Fact[tuple[int, ...]]
    malformed: tuple[str, ...]
    stored: Tensor | None


@dataclass(frozen=True)
class Base:
    """The model that an adapter is applied to.

    ``name`` is its directory. ``named_by`` is where the adapter's configuration names it; None where the
    caller did. ``comparison_or`` compares its two tables, where the flags tie them and both are stored.
    ``words_or`` are the words between the dots of its tensors' names.
    """

    name: str
    named_by: Location | None
    config_or: Document | Missing
    embeddings: Embeddings
    vocabulary_or: Vocabulary | Missing
    comparison_or: TableComparison | Missing
    words_or: frozenset[str] | Missing

    def at(self, place: Location) -> Location:
        """A location inside the base, as the report of the adapter names it."""
        return replace(place, file=f"{self.name.rstrip('/')}/{place.file}".rstrip("/"), outside=True)

    def says(self, claim: Claim) -> Claim:
        return Claim(self.at(claim.at), claim.says)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Who says that this is the base, where it is not the caller."""
        return () if self.named_by is None else (Claim(self.named_by, f"names the base {self.name}"),)

    def rows(self, kind: TableKind) -> Fact[int]:
        """The rows of its input or output table: counted in the weights, or what its config.json asks for.

        Where no output table is stored, it is the input table. Raises FactMissing.
        """
        embeddings = self.embeddings
        stored = embeddings.output_or
        if (kind is TableKind.INPUT and not embeddings.inverted) or isinstance(stored, Missing):
            stored = embeddings.input_or
        if isinstance(stored, Table) and isinstance(stored.rows_or, int):
            return Fact(stored.rows_or, self.at(stored.at))
        own = stored.expected if isinstance(stored, Table) else embeddings.expected_input_or
        expected = present(own)
        if not expected.terms:
            raise FactMissing(f"neither the weights nor config.json of the base {self.name} tell its rows")
        return Fact(expected.value, self.at(expected.terms[0].at))

    @property
    def addressable(self) -> Fact[int]:
        """How many ids have a row: those of the input table and of what continues it."""
        embeddings = self.embeddings
        try:
            rows = embeddings.input_rows
        except FactMissing:
            return self.rows(TableKind.INPUT)
        return Fact(rows.value, self.at(rows.at))

    @property
    def hidden(self) -> int | None:
        """The width of its input table, where it is stored plainly."""
        table = self.embeddings.input_or
        return table.hidden if isinstance(table, Table) and not table.packed else None

    @property
    def tied(self) -> bool:
        """Whether the newest loader makes the output table the input table.

        Two stored tables that differ stay apart there, whatever the flag says. Raises FactMissing.
        """
        if not self.embeddings.tie.tied:
            return False
        if isinstance(self.embeddings.output_or, Table) and isinstance(self.embeddings.input_or, Table):
            return present(self.comparison_or).equal
        return True

    def tie_claims(self) -> Iterator[Claim]:
        """What its configuration says about the tie; the family's default where it is silent."""
        return map(self.says, self.embeddings.tie_claims(present(self.config_or)))


@dataclass(frozen=True)
class Adapter:
    """What an adapter's directory states.

    ``method`` is PEFT's name for it ("LORA"; "" where it states none). ``tables`` are all that it holds of
    the base's tables of token rows. ``comparison_or`` compares its whole input table with its whole output
    table, where it holds both. ``modules_or`` are the modules that it does not hold whole, by name, each with
    one of its tensors. ``keeps_tie`` says that it was trained with ``ensure_weight_tying``, ``beside_model``
    that the directory holds a whole model's weights, too.
    """

    config: Document
    method: str
    base_or: Base | Missing
    tables_or: tuple[AdaptedTable, ...] | Missing
    chosen: tuple[ChosenTokens, ...]
    comparison_or: TableComparison | Missing
    modules_or: Mapping[str, Tensor] | Missing
    keeps_tie: bool
    beside_model: bool

    @property
    def base(self) -> Base:
        return present(self.base_or)

    @property
    def tables(self) -> tuple[AdaptedTable, ...]:
        """Raises FactMissing where the adapter's weights could not be read."""
        return present(self.tables_or)

    @property
    def generates(self) -> bool:
        """Whether it is for a model that is asked for text token by token, as far as the files tell."""
        task = self.config.data.get("task_type")
        if isinstance(task, str):
            return task in _GENERATING
        return isinstance(self.base_or, Missing) or self.base_or.embeddings.generates

    def whole(self, kind: TableKind) -> AdaptedTable | None:
        """The whole table of that kind that takes the place of the base's, if the adapter holds one."""
        return next((t for t in self.tables if t.kind is kind and t.change is Change.WHOLE), None)

    def addressable(self) -> Fact[int]:
        """How many ids have a row once the adapter is loaded: in its own input table, or else in the base's.

        Raises FactMissing.
        """
        whole = self.whole(TableKind.INPUT)
        if whole is not None and isinstance(whole.rows_or, int):
            return Fact(whole.rows_or, whole.tensor.at)
        return self.base.addressable
