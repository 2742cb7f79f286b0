from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule


class FrequencyScaledGradient(Rule):
    """The gradient of the input embeddings is divided by how often a token occurs in the batch.

    ## What it finds

    `scale_grad_by_freq` at an `nn.Embedding`. It is a warning with a tied table and a note otherwise.

    ## Why it matters

    The gradient of a row becomes the mean over its occurrences in one forward pass, so that it depends on
    how tokens are spread over micro-batches and devices. With a tied table only the input's part is
    divided: the two parts of one gradient have different scales.

    ## How to fix it

    `embedding.scale_grad_by_freq = False`, unless it is meant.
    """

    code = "TA916"
    severity = Severity.NOTE
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        if not module.options.scale_by_frequency:
            return
        tied = "; the part that comes through the tied output is not" if module.tied else ""
        yield self.finding(
            f"gradients that come through the lookup of {module.input.name} are divided by the number of "
            f"occurrences{tied}",
            [module.input.says("scale_grad_by_freq=True")],
            why="the same data in other micro-batches gives another gradient",
            fix="set `embedding.scale_grad_by_freq` to False, unless it is meant",
            severity=Severity.WARNING if module.tied else None,
            subject=module.input.name,
        )
