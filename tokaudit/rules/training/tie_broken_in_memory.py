from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract, Missing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted

if TYPE_CHECKING:
    from tokaudit.contract.module import LiveModule, LiveTable, LiveTie


class TieBrokenInMemory(Rule):
    """Input and output embeddings in memory are not tied as class and configuration say, or only look tied.

    ## What it finds

    Two parameters where class and configuration ask for one table, with equal values or not; one table where
    they ask for two; two parameters over one storage; two parameters with equal values that nothing ties; and
    an adapter of PEFT on one side of a tie. Identity and memory are compared, never values alone: one
    parameter, a view of it, and a parametrization that reads it are one table. It is a warning for adapters,
    for the two parameters over one storage, and where equal values are all that speaks for a tie.

    ## Why it matters

    Two tables that should be one drift apart with the first update, and saving keeps one of them. One table
    that should be two is saved once and loaded with a random output. Two parameters over one storage get
    half of the gradient each, and the optimizer moves the storage twice.

    ## How to fix it

    `model.tie_weights()` before the optimizer is made, or `head.weight = embedding.weight`. Where two tables
    are meant, set `tie_word_embeddings` to false and give the output a parameter of its own.
    """

    code = "TA911"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        tie, output = module.tie, module.output
        asked = None if isinstance(tie.asked_or, Missing) else tie.asked_or.value
        if tie.by is None and asked:
            yield self._broken(module, tie, output)
        elif tie.by is None and asked is None and tie.equal:
            yield self._looks_tied(module, output, [], "nothing ties them")
        elif tie.by is None and asked is False and tie.equal:
            yield self._looks_tied(module, output, _asks(tie, "untied"), "the configuration says untied")
        elif tie.by is not None and asked is False:
            yield self._unasked(module, tie, output)
        if tie.by is not None and bool(module.input.adapter) != bool(output.adapter):
            yield self._one_sided(module, output)
        if tie.over_one_storage and tie.parameters > 1:
            yield self._two_over_one(module, output)

    def _broken(self, module: LiveModule, tie: LiveTie, output: LiveTable) -> Finding:
        adapter = module.input.adapter or output.adapter
        values = "" if isinstance(tie.equal_or, Missing) else ("equal so far" if tie.equal else "different")
        made_by = f"; PEFT's {adapter} made the copy" if adapter else ""
        return self.finding(
            f"{output.name} should be {module.input.name}, but they are two tables"
            + (f", {values}" if values else "")
            + made_by,
            [output.says("a table of its own"), module.input.says("another table"), *_asks(tie, "tied")],
            why="they drift apart while training, and only one of them is kept when the model is saved",
            fix="`ensure_weight_tying=True` in the adapter's configuration, or train neither table"
            if adapter
            else "`model.tie_weights()`, before the optimizer is made",
            severity=Severity.WARNING if adapter else None,
            subject=output.name,
        )

    def _looks_tied(
        self, module: LiveModule, output: LiveTable, claims: list[Claim], because: str
    ) -> Finding:
        return self.finding(
            f"{output.name} has the values of {module.input.name} and is another parameter; {because}",
            [output.says("a table of its own"), module.input.says("a table with the same values"), *claims],
            why="it looks tied and is not: the two drift apart with the first update",
            fix="assign the parameter and not its values: `head.weight = embedding.weight`",
            severity=Severity.WARNING,
            subject=output.name,
        )

    def _unasked(self, module: LiveModule, tie: LiveTie, output: LiveTable) -> Finding:
        by = tie.by.value if tie.by else ""
        return self.finding(
            f"{output.name} and {module.input.name} are {by}, but the configuration says untied",
            [output.says(by), module.input.says(by), *_asks(tie, "untied")],
            why="the table is saved once, and loading the model makes a random output table",
            fix="set `tie_word_embeddings` to true, or give the output a parameter of its own",
            subject=output.name,
        )

    def _one_sided(self, module: LiveModule, output: LiveTable) -> Finding:
        changed, other = (module.input, output) if module.input.adapter else (output, module.input)
        return self.finding(
            f"PEFT's {changed.adapter} changes {changed.name} and not {other.name}, which is the same table",
            [changed.says(f"wrapped in {changed.adapter}"), other.says("the same table, not wrapped")],
            why="with the adapter the two are different, and merging it breaks the tie",
            fix="`ensure_weight_tying=True` in the adapter's configuration, or leave out the table",
            severity=Severity.WARNING,
            subject=changed.name,
        )

    def _two_over_one(self, module: LiveModule, output: LiveTable) -> Finding:
        return self.finding(
            f"{output.name} and {module.input.name} are {counted(2, 'parameter')} over one storage",
            [output.says("a parameter"), module.input.says("another parameter over the same memory")],
            why="each gets a part of the gradient, and an optimizer that holds both moves the table twice",
            fix="assign the parameter itself: `head.weight = embedding.weight`",
            severity=Severity.WARNING,
            subject=f"{output.name} storage",
        )


def _asks(tie: LiveTie, words: str) -> list[Claim]:
    return [tie.asked.says(f"asks for {words} tables")]
