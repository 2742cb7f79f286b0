from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule

if TYPE_CHECKING:
    from tokaudit.contract.data import DataColumn, TokenData

_NAMED = 4  # columns that a finding names
_TAKEN = ("labels", "label_ids")  # what model classes and the Trainer of transformers take them as


class LabelsShifted(Rule):
    """The labels are the inputs moved by one; the model moves them again.

    ## What it finds

    Labels that are the next input at nine of ten positions or more, and the input at their own position at
    fewer than half of them. A file with 64 such labels or more is judged by itself; smaller ones go by the
    labels of all files together, however few these are. Labels of other tasks (of masked language models, of
    translations) are neither.
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
        data = contract.data
        by_name: dict[str, list[DataColumn]] = {}
        for column in data.moved:
            by_name.setdefault(column.labels, []).append(column)
        for name, columns in sorted(by_name.items()):
            yield self._finding(data, name, columns)

    def _finding(self, data: TokenData, name: str, columns: Sequence[DataColumn]) -> Finding:
        """Of the columns whose labels are called ``name``."""
        labels = data.labels_of(columns)
        named = sum(column.labels == name for column in data.statistics.labelled)
        where = f" of {len(columns)} of {named} files" if named > len(columns) else ""
        taken = name in _TAKEN
        return self.finding(
            f"{labels.shifted} of {labels.followed} labels{where} are the next input, and {labels.same} of "
            f"{labels.trained} are their own: the labels are moved by one already",
            [Claim(column.at, f"the inputs of {name}") for column in columns[:_NAMED]],
            why="model classes move labels themselves: each position would learn the token after the next",
            fix="give the inputs as labels, unmoved"
            if taken
            else f"nothing where the loss takes {name} as they are; else give the inputs as labels",
            subject=name,
            severity=self.severity if taken else Severity.NOTE,
        )
