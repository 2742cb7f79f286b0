from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, RowClass
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.values._rows import row_claims, token_tables


class RowNormOutliers(Rule):
    """Rows whose norm is far outside the table's own distribution.

    ## What it finds

    Rows of tokens in use whose norm is more than three times above or below the table's median, and more
    than eight robust standard deviations away, both on a logarithmic scale. Rows next to zero belong to
    `dead-rows-in-use`. It needs `--deep`.

    ## Why it matters

    An output row that is far too short gives logits near zero, which beat the negative ones of trained
    tokens; one that is far too long drowns them. Some tokens of released models are so, such as the first
    one of a sequence.

    ## How to fix it

    For tokens that you added: start them at the norm of the others (`tokaudit resize` has initialisers that
    do), and train them. For others there is nothing to do.
    """

    code = "TA605"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        _ = contract.values
        _ = contract.vocabulary
        for table in token_tables(contract):
            ids = table.having(RowClass.OUTLIER, within=RowClass.IN_USE)
            if not ids:
                continue
            short = sum(table.norm(id) < table.typical_norm for id in ids)
            yield self.finding(
                f"{len(ids)} row{'s' if len(ids) > 1 else ''} of {table.table.name} with a norm far from the "
                f"typical {table.typical_norm:.3g} ({short} below, {len(ids) - short} above): "
                f"{contract.names(ids)}",
                row_claims(table, ids),
                why="short output rows win against trained ones, long ones drown them",
                fix="train added tokens, from a start of the same norm as the others",
                subject=table.table.name,
            )
