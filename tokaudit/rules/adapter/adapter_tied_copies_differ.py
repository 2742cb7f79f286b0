from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Adapter, Contract, present
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.adapter._base import SIDES, what
from tokaudit.text import counted, listed


class AdapterTiedCopiesDiffer(Rule):
    """The adapter holds two different copies of the one table of a tied base.

    ## What it finds

    A base whose input and output embeddings are one table, and an adapter that holds both of them whole,
    with different values. Equal copies are how PEFT saves a tied table, and fine. It is a warning where
    `peft_version` in `adapter_config.json` is 0.19 or newer, since that PEFT merges them soundly.

    ## Why it matters

    Merged by PEFT before 0.19, there are two tables under a flag that still says tied. transformers 5 keeps
    both and warns; transformers 4 and most engines use one of them for both sides and lose the other without
    a word. PEFT 0.19 and newer set `tie_word_embeddings=false` as they merge, which is sound, and makes the
    model larger by a table. A script or an engine that merges by itself may do either.

    ## How to fix it

    Train with `ensure_weight_tying=True` (PEFT 0.18 or newer), which keeps the copies one. To keep what was
    trained, untie the base first: save it with `tie_word_embeddings=false` and both tables, and use that as
    the base.
    """

    code = "TA803"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        held = [table for kind in SIDES if (table := adapter.whole(kind)) is not None]
        if len(held) < len(SIDES):
            return
        base = adapter.base
        if not base.tied:
            return
        if held[0].tensor.shape != held[1].tensor.shape:
            raise FactMissing("the copies have different shapes")
        comparison = present(adapter.comparison_or)
        if comparison.equal:
            return
        rows = comparison.different_rows
        which = listed([str(row) for row in comparison.first], total=rows)
        by = comparison.max_difference
        yield self.finding(
            f"{counted(rows, 'row')} of the adapter's two copies of one table differ: {held[0].module} and "
            f"{held[1].module}" + (f" (rows {which}; by up to {by:.3g})" if by is not None else ""),
            [*(table.says(what(table)) for table in held), *base.tie_claims(), *base.claims],
            why="PEFT before 0.19 merges them under a flag that says tied, and most engines lose one; newer "
            "versions untie the model",
            fix="train with `ensure_weight_tying=True`, or untie the base and merge into that",
            severity=Severity.WARNING if _unties(adapter) else Severity.ERROR,
            subject=", ".join(table.module for table in held),
        )


def _unties(adapter: Adapter) -> bool:
    """Whether the PEFT that saved the adapter makes the model untied as it merges two tables."""
    stated = re.match(r"(\d{1,9})\.(\d{1,9})", str(adapter.config.data.get("peft_version")))
    return stated is not None and (int(stated[1]), int(stated[2])) >= (0, 19)
