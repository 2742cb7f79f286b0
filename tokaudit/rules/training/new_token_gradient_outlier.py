from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._ledger import names, new_ids, window

_TIMES = 10.0
_LEAST_OLD = 5  # fewer rows have no typical gradient


class NewTokenGradientOutlier(Rule):
    """New tokens whose gradients are of another size than those of old ones.

    ## What it finds

    New rows whose gradient through the input path, per visit, is more than ten times the median of the old
    rows that were visited, or less than a tenth of it. It looks at recorded training steps; without new ids
    that were visited, and at least five old ones, it is skipped.

    ## Why it matters

    Rows that start far off (too long, zeros, random where the others are trained) get gradients of another
    size, and one learning rate does not fit both: the new rows diverge, or hardly move while the old ones
    drift. Gradients that are next to nothing also come from tokens that nothing after them depends on, as an
    end-of-sequence token, whose input row learns nothing: that is as it should be.

    ## How to fix it

    Start new rows from the rows of their parts, at the norm of the others (`tokaudit resize`, its
    `subword-mean-rescaled`). For a while, train them at a learning rate of their own.
    """

    code = "TA934"
    severity = Severity.NOTE
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        from tokaudit.contract.ledger import median

        ledger = contract.ledger
        new_ids(ledger)
        new, old = ledger.visited_new, ledger.visited_old
        table = ledger.input
        usual = median(ledger.per_visit(old))
        if table is None or not new or len(old) < _LEAST_OLD or not usual:
            raise FactMissing("too few visited rows, new or old, had a gradient through the input path")
        ratios = {id: size / usual for id, size in zip(new, ledger.per_visit(new), strict=True)}
        far = [id for id, ratio in ratios.items() if not 1 / _TIMES <= ratio <= _TIMES]
        if not far:
            return
        large = sum(ratios[id] > 1 for id in far)
        yield self.finding(
            f"{len(far)} of {len(new)} visited new tokens had gradients far from those of old ones "
            f"{window(ledger)} ({large} above, {len(far) - large} below): {names(ledger, far)}",
            [
                Claim(ledger.at(table, id), f"{ratios[id]:.3g} times the median of old rows, per visit")
                for id in far[:3]
            ],
            why="one learning rate does not fit both new and old rows",
            fix="start new rows at the norm of the others, or train them at a rate of their own",
            subject="new tokens",
        )
