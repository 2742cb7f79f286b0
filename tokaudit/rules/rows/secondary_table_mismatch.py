from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Missing, Table, Vocabulary
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import input_side, sized_alike, surplus


class SecondaryTableMismatch(Rule):
    """A further table that is indexed by token id has other rows than the input embeddings.

    ## What it finds

    Copies of the table under the encoder's and the decoder's name, per-layer embeddings, copies for
    multi-token prediction and other tensors with a row per token id, whose rows differ from the input
    embeddings'. A table with a size field of its own (`vocab_size_per_layer_input`,
    `decoder.vocab_size`) only counts when the tokenizer has ids that the smaller table has no row for.
    Tables of a second vocabulary are compared within it. Gemma 3n is exempt: its class looks ids past
    the per-layer table up as id 0.

    ## Why it matters

    The same ids are looked up in every one of these tables: a resize that reached only one of them
    leaves ids that work in the first lookup and fail in the second.

    ## How to fix it

    `tokaudit resize SRC DST --rows N` brings every table of token rows to the same size and corrects
    the size fields.
    """

    code = "TA107"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        _ = contract.whole_checkpoint
        for table in embeddings.secondary:
            first = input_side(embeddings, table.group)
            if table is first or table.malformed or self._fits(contract, table, first):
                continue
            yield self.finding(
                f"{table.name} has {table.rows} rows, {first.name} has {first.rows}: "
                "both are indexed by token id",
                [table.says(f"{table.rows} rows"), first.says(f"{first.rows} rows"), *_size_fields(table)],
                why="the same ids are looked up in both tables, and one of the lookups fails",
                fix=f"`tokaudit resize SRC DST --rows {max(table.rows, first.rows)}` "
                "brings every table of token rows to one size",
                subject=table.name,
            )

    def _fits(self, contract: Contract, table: Table, first: Table) -> bool:
        if surplus(table, first) != 0:
            return False
        if sized_alike(table, first) or table.rows >= first.rows:
            return True
        return _required_rows(contract, table) <= table.rows


def _required_rows(contract: Contract, table: Table) -> int:
    """Rows that the tokenizer's ids need in this table; 0 where no tokenizer can tell."""
    vocabulary = contract.vocabulary_or
    if not isinstance(vocabulary, Vocabulary):
        return 0
    if table.group:
        return max(vocabulary.target.ids.values(), default=-1) + 1 if vocabulary.target else 0
    return vocabulary.required_rows.value


def _size_fields(table: Table) -> Iterator[Claim]:
    if isinstance(table.expected, Missing):
        return
    for term in table.expected.terms:
        yield term.says(str(term.value))
