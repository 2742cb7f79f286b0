from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import input_side, stored_output, surplus


class OutputRowsMismatch(Rule):
    """The output embeddings have another number of rows than the input embeddings.

    ## What it finds

    Input and output rows that differ in no way the family is known for. Known and fine: mllama has 8
    input rows more, Moshi and MusicGen 1, CPM-Ant its prompt rows; an EAGLE-3 draft predicts
    `draft_vocab_size` tokens; encoder-decoder pairs with two vocabularies are compared within each.

    ## Why it matters

    The model either cannot read a token that it can produce, or cannot produce one that it reads; most
    loaders refuse the checkpoint because one of the two tables does not fit `vocab_size`.

    ## How to fix it

    `tokaudit resize SRC DST --rows N` brings every table of token rows to the same size; or restore the
    table that a resize left behind.
    """

    code = "TA105"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for output in stored_output(contract):
            source = input_side(contract.embeddings, output.group)
            extra = surplus(source, output)
            if extra == 0:
                continue
            designed = source.rows - output.rows - extra
            known = f" (this family has {designed} more by design)" if designed else ""
            rows = max(source.rows - designed, output.rows)
            yield self.finding(
                f"the input embeddings have {source.rows} rows, the output embeddings {output.rows}{known}",
                [output.says(f"{output.rows} rows"), source.says(f"{source.rows} rows")],
                why="some tokens can be read but not produced, or the reverse; most loaders refuse",
                fix=f"`tokaudit resize SRC DST --rows {rows}` brings both tables to matching sizes",
                subject=output.name,
            )
