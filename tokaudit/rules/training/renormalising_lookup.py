from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule


class RenormalisingLookup(Rule):
    """The input embeddings rewrite the rows that are looked up.

    ## What it finds

    `max_norm` at an `nn.Embedding`. It is an error with a tied table and a warning with one of its own.

    ## Why it matters

    In every forward pass torch scales the visited rows whose norm is larger down to it, in place and
    outside of the gradient, also in evaluation. With a tied table these are rows of the output, too: logits
    change by looking tokens up, and the backward pass may stop because a value it needs was overwritten.

    ## How to fix it

    `embedding.max_norm = None`; weight decay keeps norms small where that is wanted.
    """

    code = "TA915"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        norm = module.options.max_norm
        if norm is None:
            return
        shared = f", and with them the rows of {module.output.name}" if module.tied else ""
        yield self.finding(
            f"every lookup scales the visited rows of {module.input.name} down to a norm of {norm:g}{shared}",
            [
                module.input.says(f"max_norm={norm:g}"),
                *([module.output.says("the same table")] if module.tied else []),
            ],
            why="the table changes in forward passes, outside of the gradient and of the optimizer",
            fix="set `embedding.max_norm` to None",
            severity=None if module.tied else Severity.WARNING,
            subject=module.input.name,
        )
