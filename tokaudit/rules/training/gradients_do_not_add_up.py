from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract, Missing
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._ledger import trained, window
from tokaudit.text import counted

if TYPE_CHECKING:
    from tokaudit.contract.ledger import Ledger, Residual, TableLedger


class GradientsDoNotAddUp(Rule):
    """The gradient of a table is not the sum of what came through its input and its output path.

    ## What it finds

    Rows whose gradient, as the optimizer got it, is not what came back at the lookups of the input embeddings
    plus what came back at the logits of the output embeddings, by more than rounding explains. Factors that
    all rows share (unscaling, clipping) are taken out first, and rows that were set to zero do not count. It
    looks at recorded training steps, and is skipped where the output embeddings are used in a way that
    cannot be watched. docs/training.md says how it is measured.

    ## Why it matters

    Something else writes into the gradient, or uses the table: a third module that shares it (an encoder, a
    second head, a loss on the weights), a lookup that goes past the module, a hook, gradients of another
    process, or gradients that were not cleared. What the ledger says about the two paths is then not the
    whole truth; and a table that is used where nobody knows of it is the usual cause of rows that move
    for no reason.

    ## How to fix it

    Look for other uses of the parameter (`named_parameters(remove_duplicate=False)` lists its names), and for
    hooks on it. Name the modules of the tables (`GradientLedger(..., input=, output=)`) if the wrong ones
    were found. If the third use is meant, ignore this rule.
    """

    code = "TA933"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        ledger = contract.ledger
        unknown: list[Missing] = []
        for table in trained(ledger):
            residual = table.residual_or
            if isinstance(residual, Missing):
                unknown.append(residual)
            elif residual.rows:
                yield self._finding(ledger, table, residual)
        for missing in unknown:
            raise FactMissing(missing.reason)

    def _finding(self, ledger: Ledger, table: TableLedger, residual: Residual) -> Finding:
        paths = [
            words for words, there in (("input", table.looked_up), ("output", table.gives_logits)) if there
        ]
        what = f"the {' and the '.join(paths)} path{'s' if len(paths) > 1 else ''}"
        id = residual.id
        return self.finding(
            f"the gradient of {counted(residual.rows, 'row')} of {table.name} is not what came through "
            f"{what} {window(ledger)}: worst {ledger.named(id)}",
            [
                Claim(
                    ledger.at(table, id),
                    f"off by {residual.relative:.2g} of the paths' norms; rounding explains "
                    f"{residual.tolerance:.2g}",
                )
            ],
            why="something else uses the table, or writes into its gradient",
            fix="look for other uses of the parameter, and for hooks on it",
            subject=table.name,
        )
