from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Missing
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._probed import claims, severity


class OutputNotAProjection(Rule):
    """The logits are something else than hidden states times the output embeddings, plus bias.

    ## What it finds

    A few hidden states are projected, and the result is compared with the product. Named are a factor, a
    soft cap, a wrapper of PEFT, a class of transformers with a way of its own, hooks, a quantised table and
    one that is not in memory; and what the model does to logits outside of the module, by its configuration
    (Gemma 2's cap, Cohere's and Granite's scale, the scale of T5's hidden states). It is a warning where the
    values are others and nothing of that explains it.

    ## Why it matters

    A loss or an export that multiplies with the table itself, as fused cross-entropy kernels do, computes
    other logits than the model.

    ## How to fix it

    Nothing, where it is meant. Give such a kernel the factor or the cap.
    """

    code = "TA918"
    severity = Severity.NOTE
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        probed = module.projection
        for deviation in probed.deviations:
            name = module.input.name if isinstance(module.output_or, Missing) else module.output.name
            yield self.finding(
                f"the output of {name} {deviation.words}",
                claims(deviation, deviation.at),
                why="logits are not, or not only, hidden states times the table",
                fix="nothing, where it is meant",
                severity=severity(deviation),
                subject=deviation.kind.value,
            )
        if probed.unanswered:
            raise FactMissing(probed.unanswered)
