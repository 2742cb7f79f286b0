from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule

_TAKEN = ("labels", "label_ids")  # what model classes and the Trainer of transformers take them as


class LabelsShifted(Rule):
    """The labels are the inputs moved by one; the model moves them again.

    ## What it finds

    Labels that are the next input at nine of ten positions or more, and the input at their own position at
    fewer than half of them. Labels of other tasks (of masked language models, of translations) are neither.
    It is a note where the column is called `targets` or `target_ids`: no model class of transformers takes
    it by that name, and loops that do mostly want it moved.

    ## Why it matters

    The model classes of transformers move the labels by one themselves. Moved twice, each position is
    trained to predict the token after the next one: the loss falls, and the model writes nonsense.

    ## How to fix it

    Give the inputs as labels (`labels = input_ids`, -100 where nothing is to be learned). If a training loop
    of your own computes the loss without moving them, the data is right and this finding can be set aside.
    """

    code = "TA904"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        labels = contract.data.labels
        if not labels.moved:
            return
        columns = [column for column in contract.data.columns if column.labels]
        column = next((column for column in columns if column.labels in _TAKEN), columns[0])
        named = column.labels in _TAKEN
        yield self.finding(
            f"{labels.shifted} of {labels.followed} labels are the next input, and {labels.same} of "
            f"{labels.trained} are their own: the labels are moved by one already",
            [
                Claim(column.at, f"the inputs of {column.labels}"),
            ],
            why="model classes move labels themselves: each position would learn the token after the next",
            fix="give the inputs as labels, unmoved"
            if named
            else f"nothing where the loss takes {column.labels} as they are; else give the inputs as labels",
            severity=self.severity if named else Severity.NOTE,
        )
