from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule

if TYPE_CHECKING:
    from tokaudit.contract.batch import Moved


class BatchLabelsShifted(Rule):
    """The labels of a batch are its inputs moved by one.

    ## What it finds

    Labels that equal the input at the next position, or at the one before, nine in ten of them at the least,
    while most differ from the input at their own. Sequences that are one token repeated cannot be told
    apart, and have nothing to find; nor do fewer than three labels, masked language models and
    encoder-decoders.

    It looks at a batch in memory: `tokaudit.training.audit_batch`. It is a note where the model is given
    and nothing in its class shows that it moves labels: they may be meant for a loss outside of it.

    ## Why it matters

    Causal models of transformers compare the logits of each position with the label of the next one. Labels
    that were moved before make the model predict the token after the next; moved the other way, it learns to
    repeat its input, at a loss near 0.

    ## How to fix it

    `labels = input_ids`, with -100 on padding. For a loop that computes its own loss from labels that were
    moved, give the model no labels.
    """

    code = "TA925"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        moved = contract.batch.moved
        if moved.by:
            neighbour = "next position" if moved.by == 1 else "position before"
            yield self.finding(
                f"the labels were moved already: {moved.matching} of {moved.compared} are the input at the "
                f"{neighbour}",
                [
                    Claim(Location("batch", tensor="labels"), f"the input at the {neighbour}"),
                    Claim(Location("module"), _model(moved)),
                ],
                why=_why(moved),
                fix=_fix(moved),
                severity=self.severity if moved.model_moves else Severity.NOTE,
                subject="labels",
            )


def _model(moved: Moved) -> str:
    return "moves labels itself" if moved.model_moves else "nothing shows whether it moves labels itself"


def _why(moved: Moved) -> str:
    if not moved.model_moves:
        return (
            "right for a loss that compares each position with its own label, wrong for one that moves them"
        )
    if moved.by == 1:
        return "a model that moves them again learns to predict the token after the next"
    return "a model that moves them learns to repeat its input"


def _fix(moved: Moved) -> str:
    fix = "labels = input_ids, with -100 on padding"
    return fix if moved.model_moves else f"nothing where the loss takes them so; else {fix}"
