from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Embeddings, RowCount, Table, present
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import sized_alike


class VocabSizeMismatch(Rule):
    """The configured `vocab_size` is not the number of rows of the table that it describes.

    ## What it finds

    A table whose rows differ from what `config.json` gives it: `vocab_size`, or the field that the
    family has for it (`text_config.vocab_size`, `decoder.vocab_size`, `embedding_size`,
    `padded_vocab_size` ...), plus what the family adds by design (mllama 8, Moshi and MusicGen 1,
    CPM-Ant its prompt rows). A `vocab_size` above the tokenizer's size is normal as long as the table
    has as many rows. An output table of the same field is left to `output-rows-mismatch`, other tables
    to `secondary-table-mismatch`.

    ## Why it matters

    Loaders build the table from the configuration and then refuse the stored one ("size mismatch for
    embed_tokens.weight"), or, told to ignore mismatched sizes, keep a random table.

    ## How to fix it

    Where the table is right, set the field to its row count at every path the finding names. Where rows
    are missing, `tokaudit resize SRC DST --rows N` adds them and corrects every field.
    """

    code = "TA103"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        for table in _with_fields_of_their_own(embeddings):
            expected = present(table.expected)
            if table.rows != expected.value:
                yield self._mismatch(embeddings, table, expected)

    def _mismatch(self, embeddings: Embeddings, table: Table, expected: RowCount) -> Finding:
        field = expected.terms[0]
        wrong = [fact for fact in embeddings.vocab_sizes if fact.at != field.at and fact.value == field.value]
        paths = " and ".join(fact.at.field for fact in (field, *wrong))
        filled_in = "not stated and taken as " if expected.by_default else ""
        designed = "" if expected.value == field.value else f", which asks for {expected.value}"
        return self.finding(
            f"{paths} is {filled_in}{field.value}{designed}; {table.name} has {table.rows} rows",
            [
                field.says(f"{filled_in}{field.value}: {expected.formula} asks for {expected.value} rows"),
                *(fact.says(str(fact.value)) for fact in wrong),
                table.says(f"{table.rows} rows"),
                *(Claim(term.at, str(term.value)) for term in expected.terms[1:]),
            ],
            why="loaders build the table from the configuration and refuse the stored one, or keep it random",
            fix=_correction(table, expected, f"{paths} in {field.at.file}"),
            subject=table.name,
        )


def _correction(table: Table, expected: RowCount, fields: str) -> str:
    """The value that makes the configuration ask for the rows that are there, or how to get more rows."""
    right = expected.terms[0].value + table.rows - expected.value
    product = " * " in expected.formula
    fix = (
        f"correct {fields}: {expected.formula} must be {table.rows}"
        if product
        else f"set {fields} to {right}"
    )
    if table.rows < expected.value:
        fix += f"; or, if rows were lost, `tokaudit resize SRC DST --rows {expected.value}`"
    return fix


def _with_fields_of_their_own(embeddings: Embeddings) -> Iterator[Table]:
    """The input table, and every other table whose rows another field states."""
    first = embeddings.input
    yield first
    for table in embeddings.tables[1:]:
        if isinstance(table.expected, RowCount) and not table.malformed and not sized_alike(table, first):
            yield table
