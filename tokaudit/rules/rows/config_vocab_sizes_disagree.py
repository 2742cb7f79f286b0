from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Embeddings, Fact, Missing, RowCount, Table
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Location, Severity
from tokaudit.rule import Rule


class ConfigVocabSizesDisagree(Rule):
    """Two fields of one configuration give different sizes to the same table.

    ## What it finds

    A `vocab_size` that stands twice in `config.json` for one table, with different values. A stale copy
    at the top beside the one in `text_config` is a warning: current loaders read the nested one. Fields
    for other tables are not compared: a vision tower's, the decoder's of a model with two vocabularies,
    `draft_vocab_size`, `embedding_size`.

    ## Why it matters

    Which of them counts depends on the loader and its version. Converters and serving engines that read
    the stale one build a table of the wrong size.

    ## How to fix it

    Set both fields to the number that the finding names, or take the stale copy at the top out.
    """

    code = "TA104"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        _ = contract.config
        embeddings = contract.embeddings
        read = _read_field(embeddings)
        for other in _other_fields(embeddings, read):
            if other.value == read.value:
                continue
            copy_at_top = _depth(other) == 1 and _depth(read) > 1
            right = _right_value(embeddings, read)
            wrong = " and ".join(fact.at.field for fact in (read, other) if fact.value != right)
            yield self.finding(
                f"{other.at.field} is {other.value} but {read.at.field} is {read.value}",
                [read.says(f"{read.value}: loaders size the table by it"), other.says(str(other.value))],
                why="a loader or converter that reads the other field builds a table of the wrong size",
                fix=f"set {wrong} to {right} in {other.at.file}",
                severity=Severity.WARNING if copy_at_top else Severity.ERROR,
                subject=other.at.field,
            )


def _read_field(embeddings: Embeddings) -> Fact[int]:
    """The field that loaders size the input table by."""
    expected = embeddings.expected_input_or
    if isinstance(expected, RowCount) and expected.terms:
        return expected.terms[0]
    if embeddings.vocab_sizes:
        return embeddings.vocab_sizes[0]
    raise FactMissing("config.json states no vocab_size")


def _right_value(embeddings: Embeddings, read: Fact[int]) -> int:
    """What the field must be for the rows that are stored; its own value where the weights do not tell."""
    table = embeddings.input_or
    if not isinstance(table, Table) or isinstance(table.expected, Missing):
        return read.value
    return read.value + (table.rows_or - table.expected.value if isinstance(table.rows_or, int) else 0)


def _other_fields(embeddings: Embeddings, read: Fact[int]) -> Iterator[Fact[int]]:
    """Further fields for the same table: not those that size a table of their own."""
    taken: set[Location] = {
        term.at
        for table in embeddings.tables
        if isinstance(table.expected, RowCount)
        for term in table.expected.terms
    }
    return (fact for fact in embeddings.vocab_sizes if fact.at != read.at and fact.at not in taken)


def _depth(fact: Fact[int]) -> int:
    return fact.at.pointer.count("/")
