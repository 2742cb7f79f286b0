from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Missing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed


class SparseGradientMismatch(Rule):
    """The sparse gradients of the input embeddings meet something that needs dense ones.

    ## What it finds

    `sparse=True` at an `nn.Embedding` whose table is also the output's, which has a dense gradient; and at
    one whose optimizer refuses the gradient that results (most refuse sparse ones, `SparseAdam` dense ones).

    ## Why it matters

    Sparse and dense parts add up to a dense gradient: nothing is saved. An optimizer that refuses the
    gradient stops the run with an error in its first step.

    ## How to fix it

    `sparse=False` for a tied table. Otherwise `SparseAdam` for the input embeddings alone, in an optimizer
    of its own, or `SGD` without weight decay.
    """

    code = "TA914"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        sparse, optimizer = module.options.sparse, module.optimizer_or
        claims = [module.input.says(f"sparse={sparse}")]
        dense = module.tied or not sparse
        if not isinstance(optimizer, Missing):
            refusing = optimizer.refuses_dense if dense else optimizer.refuses_sparse
            if refusing:
                kind = "dense" if dense else "sparse"
                tied = " (its other part comes through the tied output)" if sparse and dense else ""
                yield self.finding(
                    f"the gradient of {module.input.name} is {kind}{tied}, which {listed(refusing)} refuses",
                    [*claims, Claim(Location("optimizer"), f"{listed(refusing)} takes no {kind} gradient")],
                    why="the first step of the optimizer raises an error",
                    fix="sparse=False, or another optimizer for this table",
                    subject=module.input.name,
                )
                return
        if sparse and module.tied:
            yield self.finding(
                f"{module.input.name} asks for sparse gradients; the output tied to it has dense ones",
                [*claims, module.output.says("the same table: a gradient for every row")],
                why="the sum is dense: nothing is saved, and it costs a conversion in every step",
                fix="sparse=False",
                severity=Severity.WARNING,
                subject=module.input.name,
            )
