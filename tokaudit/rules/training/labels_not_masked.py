from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted

_LEAST = 0.01  # of the ends of sequences: a few may have been cut off by hand


class LabelsNotMasked(Rule):
    """The labels train padding, or leave out the end of sequences.

    ## What it finds

    In data with labels made of their inputs (as those of a language model are): pad positions whose label is
    not -100; and end-of-sequence tokens whose label is -100 although the token before is trained, if they are
    1 % or more. Where the pad token also ends sequences, the first one after a text counts as its end, and
    those after it as padding. Ends of prompts, whose labels are -100 throughout, are no breach.

    ## Why it matters

    A model that is trained on padding learns to write it. One that never sees the end of a sequence as a
    label does not learn to stop. Masking every pad token where pad and end-of-sequence are one is how most
    data comes to that.

    ## How to fix it

    Set the labels of padding to -100 by the attention mask and not by the id, so that the end-of-sequence
    token keeps its label; or give the tokenizer a pad token of its own.
    """

    code = "TA903"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        data = contract.data
        moved = set(data.moved)
        labels = data.labels_of(column for column in data.statistics.labelled if column not in moved)
        if not labels.items:
            raise FactMissing("the labels are those of the next positions (TA904)")
        if not labels.of_inputs:
            raise FactMissing("the labels are not made of the inputs at their positions")
        if labels.pad_trained is not None:
            yield self.finding(
                f"{labels.pads_trained} of {counted(labels.pads, 'pad position')} have a label other than "
                f"-100; the first is at {labels.pad_trained.words} of {labels.pad_trained.file}",
                [
                    Claim(labels.pad_trained.at, f"pad id {labels.pad_trained.id}, and its label is trained"),
                ],
                why="the model is trained to write padding",
                fix="set the labels of padding to -100, by the attention mask",
                subject="pad",
            )
        if labels.end_masked is not None and labels.ends_masked >= _LEAST * labels.ends:
            yield self.finding(
                f"{labels.ends_masked} of {counted(labels.ends, 'end-of-sequence token')} after trained text "
                f"have the label -100; the first is at {labels.end_masked.words} of "
                f"{labels.end_masked.file}",
                [Claim(labels.end_masked.at, f"end of sequence {labels.end_masked.id}, label -100")],
                why="the model never learns to stop",
                fix="mask padding by the attention mask and not by the id of the pad token",
                subject="eos",
            )
