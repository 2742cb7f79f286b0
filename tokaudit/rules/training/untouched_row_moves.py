from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._ledger import names, trained, window

if TYPE_CHECKING:
    from tokaudit.contract.ledger import Ledger, TableLedger


class UntouchedRowMoves(Rule):
    """Rows that got no gradient move all the same.

    ## What it finds

    Rows of a trained table that moved within the recorded training steps although no step gave them a
    gradient. New ones are named first. It looks at recorded training steps.

    ## Why it matters

    Weight decay pulls every row of its group towards zero in each step, also the rows of tokens that the data
    does not hold: rare tokens fade, and frozen rows (a gradient that is set to zero) are not frozen. With
    Adam and with momentum a row also moves on for a while after its last gradient, perhaps one from before
    the window. Neither is seen in the loss.

    ## How to fix it

    Put the embeddings into a parameter group without weight decay. Rows that are to stay need their values
    written back after each step; a zero gradient does not hold them. If neither weight decay nor momentum is
    in use, look for what else writes into the table (`max_norm`, averaging of weights).
    """

    code = "TA935"
    severity = Severity.NOTE
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        ledger = contract.ledger
        for table in trained(ledger):
            moved = [
                id
                for id in range(table.rows)
                if table.updates[id] > 0 and not table.input_gradients[id] and not table.output_gradients[id]
            ]
            if moved:
                new = frozenset(ledger.new_ids)
                moved.sort(key=lambda id: id not in new)
                yield self._finding(ledger, table, moved)

    def _finding(self, ledger: Ledger, table: TableLedger, moved: list[int]) -> Finding:
        cause = f"weight decay {table.weight_decay:g}" if table.weight_decay else "no weight decay is known"
        optimizer = f" of {table.optimizer}" if table.optimizer and table.weight_decay else ""
        rows = "row" if len(moved) == 1 else "rows"
        return self.finding(
            f"{len(moved)} {rows} of {table.name} moved without a gradient {window(ledger)} "
            f"({cause}{optimizer}): {names(ledger, moved)}",
            [Claim(ledger.at(table, id), f"no gradient; moved {table.updates[id]:.3g}") for id in moved[:3]],
            why="rows of tokens that the data does not hold fade, or drift",
            fix="put the table into a parameter group without weight decay"
            if table.weight_decay
            else "look for momentum from before, or for what else writes into the table",
            subject=table.name,
        )
