from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class NonFiniteRows(Rule):
    """Rows of the embeddings hold NaN or infinite values.

    ## What it finds

    Rows of any table of token rows in which at least one value is NaN or infinite. It needs `--deep`.

    ## Why it matters

    One such row of the output embeddings makes the probabilities of every token NaN, at every position.
    One of the input embeddings does so for every text that contains its token. Training that meets it is
    lost.

    ## How to fix it

    Find where they come from: a save in float16 of values beyond 65504, a merge or a quantisation that
    divided by zero, a run that diverged. Take the rows from the model before that step; for rows of padding,
    write zeros.
    """

    code = "TA601"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        values = contract.values
        for table in values.tables:
            ids = list(table.non_finite)
            if not ids:
                continue
            hidden = table.table.tensor.shape[-1]
            has = "row holds" if len(ids) == 1 else "rows hold"
            yield self.finding(
                f"{len(ids)} {has} NaN or infinite values in {table.table.name}: {contract.names(ids)}",
                [
                    Claim(table.at(id), f"{table.non_finite[id]} of {counted(hidden, 'value')} not finite")
                    for id in ids[:3]
                ],
                why="whatever is computed from such a row is NaN",
                fix="take the rows from the model before the step that broke them (a float16 save, a merge)",
                subject=table.table.name,
            )
        for name, reason in values.unread.items():
            raise FactMissing(f"{name} was not read: {reason}")
