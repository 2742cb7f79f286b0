"""Which tensors are tables of token rows: by the architecture's record, by its text part's, or by guess."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tokaudit.contract import (
    Checkpoint,
    Document,
    Embeddings,
    Fact,
    Missing,
    RowCount,
    Table,
    TableKind,
    Tensor,
    Tie,
)
from tokaudit.errors import FactMissing
from tokaudit.families import expressions, guess, records, stored
from tokaudit.families.composite import inner_records
from tokaudit.families.records import GENERATES, Record, TableRecord
from tokaudit.families.stored import Stored
from tokaudit.families.tie import read_tie
from tokaudit.families.wrappers import IN_FRONT

MOST_NUMBERED = 1024  # tables of one name with an index: codebooks, layers

NO_OUTPUT = "no tensor is the output embeddings"


def resolve(config: Document | Missing, checkpoint: Checkpoint | Missing) -> Embeddings:
    """Find the input table, the output table, output biases and every other table indexed by token id.

    Reads no tensor data: everything follows from the configuration and the tensors' names, dtypes and
    shapes. Without a checkpoint the tables are Missing, and the rest is what the configuration tells.
    """
    if isinstance(config, Missing):
        return guess.embeddings(None, checkpoint)
    tensors: Mapping[str, Tensor] = {} if isinstance(checkpoint, Missing) else checkpoint.tensors
    match = records.find(config, tensors)
    if match is None:
        inner = _of_a_part(config, checkpoint, None)
        return inner or guess.embeddings(config, checkpoint)
    found = _Resolution(config, checkpoint, match.record, match.known).embeddings()
    is_stored = isinstance(found.input_or, Table)
    if isinstance(checkpoint, Missing) or (is_stored and not match.record.is_pair):
        return found
    inner = _of_a_part(config, checkpoint, match)
    if inner is not None:
        return replace(inner, generates=found.generates)
    return found if is_stored or match.known else guess.embeddings(config, checkpoint)


def _of_a_part(
    config: Document, checkpoint: Checkpoint | Missing, match: records.Match | None
) -> Embeddings | None:
    """The tables as a part of a composite configuration has them; None where none of them is stored."""
    for record in inner_records(config, match.record if match else None):
        inner = _Resolution(config, checkpoint, record, match is not None and match.known).embeddings()
        if isinstance(inner.input_or, Table):
            return inner
    return None


@dataclass(frozen=True)
class _Resolution:
    """One record, applied to one configuration and checkpoint."""

    config: Document
    checkpoint: Checkpoint | Missing
    record: Record
    known: bool

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        return {} if isinstance(self.checkpoint, Missing) else self.checkpoint.tensors

    def embeddings(self) -> Embeddings:
        inputs, outputs = self._inputs, self._outputs
        tie = read_tie(self.config, self.record, bool(outputs) or isinstance(self.checkpoint, Missing))
        inverted = not inputs and bool(outputs) and _may_tie(tie)
        output = outputs[0] if outputs else Missing(self._why_not(NO_OUTPUT))
        # Lookups come before further outputs: the first one of a group is what its ids are looked up in.
        secondary = (*inputs[1:], *self._others, *outputs[1:], *self._predictors)
        name = records.class_name(self.config)
        return Embeddings(
            architecture=name,
            known=self.known,
            source=f"record of {self.record.name}",
            input_or=inputs[0] if inputs else self._no_input(inverted),
            output_or=output,
            biases=self._tables(self.record.bias, TableKind.BIAS),
            secondary=tuple(replace(table, kind=TableKind.SECONDARY) for table in secondary),
            extra_inputs=self._extra_inputs,
            tie_or=tie,
            vocab_sizes=tuple(self._vocab_sizes()),
            candidates=() if inputs else guess.candidates(self.config, self.tensors),
            generates=self._generates(name),
            language_model=bool(self.record.input) and (bool(inputs) or self._needs_input(name)),
            inverted=inverted,
            tie_partner_or=self._tie_partner(secondary),
            expected_input_or=self._expected_input(),
            two_vocabularies=self._two_vocabularies,
        )

    # --- tables ----------------------------------------------------------------------------------------

    @cached_property
    def _inputs(self) -> tuple[Table, ...]:
        """The input table first; of a model with codebooks the tables of the others after it."""
        if not self.record.input:
            return ()
        entry = self.record.input[0]
        found = [self._through_row_map(table) for table in self._stored_inputs]
        tables = [self._table(entry, TableKind.INPUT, table) for table in found]
        if self._extra_inputs and not self.record.extra_inputs[0].rows:
            tables[:1] = [self._continued(table) for table in tables[:1]]
        return tuple(tables)

    @cached_property
    def _stored_inputs(self) -> list[Stored]:
        """The input table under its names, or under another prefix where the class may call it so.

        That is a class without a record, and one whose code lies beside the weights, whatever its name:
        Florence-2 was published so before transformers had it.
        """
        entry = self.record.input[0]
        found = self._stored(entry.names) or self._stored(entry.aliases)
        if found or (self._is_own and not self.config.has("auto_map")):
            return found
        return self._stored(self._under_other_prefixes(entry))

    def _under_other_prefixes(self, entry: TableRecord) -> tuple[str, ...]:
        """Tensors called as the record's but for the modules around: `transformer.embed_tokens.weight`."""
        endings = {".".join(name.split(".")[-2:]) for name in entry.names}
        named = [name for name in self.tensors if ".".join(name.split(".")[-2:]) in endings]
        named = [name for name in named if not (IN_FRONT.match(name) or guess.OTHER_THINGS.search(name))]
        return tuple(sorted(named, key=lambda name: ("decoder" in name, name.count("."), name)))

    @property
    def _two_vocabularies(self) -> bool:
        given, output = self.record.input, self.record.output
        return bool(given and output) and {each.group for each in given} != {each.group for each in output}

    @property
    def _is_own(self) -> bool:
        """Whether the record is the very class's, not that of another class of its family."""
        name = records.class_name(self.config)
        return name == self.record.name or self.record in records.by_class(name)

    def _needs_input(self, name: str) -> bool:
        """Whether the model cannot do without: not a draft that borrows, not a part for images or sounds."""
        return not (self.record.borrows or (not self._is_own and records.OTHER_TASKS.search(name)))

    def _through_row_map(self, table: Stored) -> Stored:
        """Static embeddings that share rows: a tensor with one value per id says which row each id has."""
        row_map = self.tensors.get(self.record.rows_of) if self.record.rows_of else None
        if row_map is None or len(row_map.shape) != 1:
            return table
        return replace(table, rows_or=row_map.shape[0], packed=f"rows shared through {row_map.name}")

    @cached_property
    def _outputs(self) -> tuple[Table, ...]:
        return self._tables(self.record.output, TableKind.OUTPUT)

    @cached_property
    def _others(self) -> tuple[Table, ...]:
        taken = {table.name for table in (*self._inputs, *self._outputs)}
        found = self._tables(self.record.others, TableKind.SECONDARY)
        return tuple(table for table in found if table.name not in taken)

    @cached_property
    def _extra_inputs(self) -> tuple[Table, ...]:
        return self._tables(self.record.extra_inputs, TableKind.INPUT)

    @cached_property
    def _predictors(self) -> tuple[Table, ...]:
        """Copies of the tables in layers past the last one, for multi-token prediction (DeepSeek, GLM)."""
        if not self._inputs or not self._inputs[0].name.endswith("embed_tokens.weight"):
            return ()
        prefix = self._inputs[0].name.removesuffix("embed_tokens.weight")
        given = self.record.input[0]
        out = self.record.output[0] if self.record.output else given
        found = []
        for layer in self._layers_past_the_last():
            for entry, name in ((given, "embed_tokens.weight"), (out, "shared_head.head.weight")):
                group = "" if entry.rows == given.rows else "output"
                copy = replace(entry, names=(f"{prefix}layers.{layer}.{name}",), aliases=(), group=group)
                found += [self._table(copy, TableKind.SECONDARY, each) for each in self._stored(copy.names)]
        return tuple(found)

    def _layers_past_the_last(self) -> range:
        try:
            layers = self._integer("num_hidden_layers")
        except FactMissing:
            return range(0)
        try:
            more = self._integer("num_nextn_predict_layers")
        except FactMissing:
            more = 1
        return range(layers, layers + min(max(more, 1), MOST_NUMBERED))

    def _integer(self, name: str) -> int:
        section = self.record.section
        field = f"{section}.{name}" if section else name
        return self.config.integer(*expressions.place(self.config, field)).value

    def _tables(self, entries: Iterable[TableRecord], kind: TableKind) -> tuple[Table, ...]:
        return tuple(
            self._table(entry, kind, found)
            for entry in entries
            for found in self._stored(self._names(entry), entry.axis, entry.ndim)
        )

    def _names(self, entry: TableRecord) -> tuple[str, ...]:
        """The record's names, then the same under the prefix that the input table was found with."""
        if entry in self.record.input or not self.record.input or not self._found_prefix:
            return entry.names
        usual, found = self._found_prefix
        renamed = (found + name[len(usual) :] for name in entry.names if name.startswith(usual))
        return (*entry.names, *renamed)

    @cached_property
    def _found_prefix(self) -> tuple[str, str] | None:
        """(prefix by the record, prefix in the checkpoint) of the input table where they differ."""
        entry = self.record.input[0]
        for found in self._stored_inputs:
            usual, here = entry.names[0].split("."), found.tensor.name.split(".")
            while usual and here and usual[-1] == here[-1]:
                usual.pop()
                here.pop()
            if usual != here:
                return "".join(f"{step}." for step in usual), "".join(f"{step}." for step in here)
        return None

    def _stored(self, names: tuple[str, ...], axis: int = 0, ndim: int = 2) -> list[Stored]:
        """What is stored under the first name that is there; every number of it where it is numbered."""
        for name in names:
            numbers = range(MOST_NUMBERED) if "{i}" in name else range(1)
            tries = (name.replace("{i}", str(number)) for number in numbers)
            found = [
                table
                for each in tries
                if (table := stored.find(self.tensors, each, axis, ndim, self._method)) is not None
            ]
            if found:
                return found
        return []

    @cached_property
    def _method(self) -> str:
        return records.text_field(self.config, "quantization_config", "quant_method")

    def _table(self, entry: TableRecord, kind: TableKind, found: Stored) -> Table:
        width = expressions.evaluate(entry.width, self.config, lambda field: None)
        malformed = found.malformed
        if isinstance(width, RowCount) and found.hidden not in (None, width.value) and not malformed:
            malformed = f"it is {found.hidden} wide, and {width.formula} is {width.value}"
        return Table(
            kind=kind,
            tensor=found.tensor,
            axis=found.axis,
            rows_or=found.rows_or,
            hidden=found.hidden,
            expected=self._rows(entry, found.rows_or),
            packed=found.packed,
            group=entry.group,
            malformed=malformed,
            copy=entry.copy,
            expected_hidden=width,
        )

    def _rows(self, entry: TableRecord, rows: int | Missing) -> RowCount | Missing:
        """The family's row count; where it has several, the one that the table has."""
        choices = [expressions.evaluate(each, self.config, self._default) for each in entry.rows or ("",)]
        same = (each for each in choices if isinstance(each, RowCount) and each.value == rows)
        return next(same, choices[0])

    def _continued(self, table: Table) -> Table:
        """Molmo 2 cuts one table in two, where it likes: the first part has what the second leaves."""
        expected, more = table.expected, self._extra_inputs[0].rows_or
        if isinstance(expected, RowCount) and isinstance(more, int):
            formula = f"{expected.formula} - {more} rows of {self._extra_inputs[0].name}"
            expected = replace(expected, value=expected.value - more, formula=formula)
        return replace(table, expected=expected)

    def _tie_partner(self, secondary: Iterable[Table]) -> Table | Missing:
        if not self.record.output:
            return Missing(f"{self.record.name} has no output embeddings")
        entry = self.record.output[0]
        partners = [table for table in secondary if table.name in self._all_names(entry.tied_to)]
        if entry.tied_to:
            return partners[0] if partners else Missing(f"{entry.tied_to[0]} is not stored")
        if entry.group:
            return Missing("the output embeddings belong to another vocabulary than the input embeddings")
        return (
            self._inputs[0] if self._inputs else Missing(self._why_not("no tensor is the input embeddings"))
        )

    def _all_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return self._names(TableRecord(names, ())) if names else ()

    # --- what the configuration tells --------------------------------------------------------------------

    def _default(self, field: str) -> int | None:
        """What the configuration class fills in; of a section, the class of the type that it names."""
        section, _, name = field.rpartition(".")
        stated = records.text_field(self.config, *filter(None, section.split(".")), "model_type")
        if not section:
            return self.record.defaults.get(field) if stated == self.record.type else None
        for record in records.by_type(stated):
            if name in record.defaults:
                return record.defaults[name]
        return None if stated else self.record.defaults.get(field)

    def _vocab_sizes(self) -> Iterator[Fact[int]]:
        """The field that sizes the input table, then other stated fields that say the same."""
        if not self.record.input:
            return
        first = self._rows(self.record.input[0], Missing(""))
        seen = []
        if isinstance(first, RowCount):
            seen = [term for term in first.terms if self._states(term)][:1]
        yield from seen
        for field in self._further_size_fields():
            try:
                fact = self.config.integer(*field.split("."))
            except FactMissing:
                continue
            if fact not in seen:
                seen.append(fact)
                yield fact

    def _further_size_fields(self) -> Iterator[str]:
        """The other fields called vocab_size that count the same ids: a decoder's, a copy at the top."""
        shared = [entry.rows[0] for entry in self.record.others if not entry.group and entry.rows]
        yield from (field for field in shared if field.endswith(".vocab_size"))
        kin = records.by_type(self.record.type) or (self.record,)
        apart = {rows for record in kin for entry in record.output for rows in entry.rows}
        if self.record.section and "vocab_size" not in apart:
            yield "vocab_size"

    def _states(self, term: Fact[int]) -> bool:
        """Whether the file itself states the term (a default stands where it would)."""
        steps = term.at.pointer.split("/")[1:]
        return self.config.has(*steps)

    def _expected_input(self) -> RowCount | Missing:
        """Rows of the input table and of those that continue it, by the configuration."""
        if not self.record.input:
            return Missing(f"{self.record.name} has no input embeddings")
        total = self._rows(self.record.input[0], Missing(""))
        for entry in self.record.extra_inputs:
            more = self._rows(entry, Missing(""))
            if entry.rows and isinstance(total, RowCount) and isinstance(more, RowCount):
                formula = f"{total.formula} + {more.formula}"
                total = RowCount(total.value + more.value, formula, (*total.terms, *more.terms))
        return total

    def _generates(self, name: str) -> bool:
        if self._is_own:
            return self.record.generates
        return bool(self.record.output) and bool(GENERATES.search(name))

    # --- reasons -----------------------------------------------------------------------------------------

    def _no_input(self, inverted: bool) -> Missing:
        name = records.class_name(self.config) or self.record.name
        if not self.record.input:
            return Missing(f"{name} has no input embeddings")
        if inverted:
            return Missing(f"only the output embeddings {self._outputs[0].name} are stored")
        if self.record.borrows:
            return Missing(f"{name} uses {self.record.borrows}")
        return Missing(self._why_not(f"no tensor is {name}'s {self.record.input[0].names[0]}"))

    def _why_not(self, reason: str) -> str:
        return self.checkpoint.reason if isinstance(self.checkpoint, Missing) else reason


def _may_tie(tie: Tie | Missing) -> bool:
    return isinstance(tie, Tie) and any(reading.tied for reading in tie.readings)
