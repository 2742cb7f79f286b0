from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._probed import claims, severity


class LookupNotAGather(Rule):
    """The input embeddings do something else than give the rows of their table.

    ## What it finds

    A few ids, the special tokens among them, are looked up, and the result is compared with the rows and
    with the product of one-hot rows and the table. Named are a factor (Gemma's square root of the width), a
    wrapper of PEFT, a class of transformers with a way of its own, forward hooks and hooks on the gradient,
    a quantised table, and one that is offloaded or on the meta device. It is a warning where the values are
    others and nothing of that explains it, or where rows are not finite. The probe calls the module in
    evaluation mode, without hooks and gradients, and leaves it as it was.

    ## Why it matters

    Rows that are copied from one model to another, averaged, or compared with output rows mean something
    else where the lookup scales them. A hook sees every training step, and code that bypasses the module
    bypasses it.

    ## How to fix it

    Nothing, where it is meant. Give `inputs_embeds` the output of the module and not rows of its table.
    """

    code = "TA917"
    severity = Severity.NOTE
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        for deviation in module.lookup.deviations:
            yield self.finding(
                f"the lookup in {module.input.name} {deviation.words}",
                claims(deviation, module.input.at),
                why="what the model reads is not, or not only, a row of the table",
                fix="nothing, where it is meant",
                severity=severity(deviation),
                subject=deviation.kind.value,
            )
        if module.lookup.unanswered:
            raise FactMissing(module.lookup.unanswered)
