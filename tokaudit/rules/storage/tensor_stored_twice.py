from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Tensor
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import tensors
from tokaudit.text import listed, shown


class TensorStoredTwice(Rule):
    """One tensor name stands in two shards: the file that is read last wins.

    ## What it finds

    Tensors that more than one of the files that a loader reads holds under the same name. It is an error
    when the copies have different shapes or dtypes.

    ## Why it matters

    transformers loads every tensor of every listed file in sorted order and keeps the last, whatever the
    index says about the place; other loaders keep the first, or follow the index. Two loaders can run two
    different models from one directory, and neither says a word.

    ## How to fix it

    Find out which copy is the right one, remove the other from its shard, and write the index again by
    saving the model.
    """

    code = "TA708"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        unlike: list[tuple[Tensor, ...]] = []
        alike: list[tuple[Tensor, ...]] = []
        for copies in contract.checkpoint.repeated.values():
            (unlike if len({(copy.shape, copy.dtype) for copy in copies}) > 1 else alike).append(copies)
        for group, severity in ((unlike, Severity.ERROR), (alike, Severity.WARNING)):
            if group:
                yield self.finding(
                    f"{tensors(len(group))} in more than one file: {listed([_words(c) for c in group], 3)}",
                    [copy.says(f"{copy.dtype} {list(copy.shape)}") for copy in group[0]],
                    why="the file that is read last wins, and loaders differ in which one that is",
                    fix="remove the wrong copy and write the index again by saving the model",
                    severity=severity,
                    subject=group[0][0].name,
                )


def _words(copies: tuple[Tensor, ...]) -> str:
    return f"{shown(copies[0].name)} in {' and '.join(shown(copy.file) for copy in copies)}"
