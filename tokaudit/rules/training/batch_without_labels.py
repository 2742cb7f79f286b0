from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class BatchWithoutLabels(Rule):
    """No position of a batch has a label.

    ## What it finds

    Labels that are -100 (or what the loss ignores) everywhere.

    It looks at a batch in memory: `tokaudit.training.audit_batch`.

    ## Why it matters

    The loss is the mean of nothing, NaN, and one step of it makes every weight NaN. Where gradients of
    several batches are added up and divided by the labels in all of them, the batch is work for nothing.

    ## How to fix it

    Look for prompts that were cut before their answers begin, and for a mask that looks for the beginning of
    an answer and does not find it: a template that is tokenised differently in the middle of a text. Leave
    such texts out.
    """

    code = "TA927"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        labelled = contract.batch.labelled
        if not labelled.count:
            of = counted(labelled.positions, "position")
            yield self.finding(
                f"no label of the batch takes part in the loss: {of}, and {labelled.ignore_id} at each",
                [Claim(Location("batch", tensor="labels"), f"{labelled.ignore_id} everywhere")],
                why="the loss is the mean of nothing: NaN, and after one step so is every weight",
                fix="leave texts without an answer out; look at how the beginning of an answer is found",
                subject="labels",
            )
