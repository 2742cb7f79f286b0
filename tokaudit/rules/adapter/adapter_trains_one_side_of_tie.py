from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import AdaptedTable, Base, Change, Contract, TableKind
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.adapter._base import SIDES, side, what


class AdapterTrainsOneSideOfTie(Rule):
    """The adapter changes the input or the output embeddings of a base that ties them.

    ## What it finds

    A base whose input and output embeddings are one table, and an adapter that holds a table, or factors,
    for one side only, or low-rank factors of its own for each side. Adapters that were trained with
    `ensure_weight_tying`, and rows of chosen tokens on the input side (`trainable_token_indices`), are left
    alone: PEFT applies those to both sides.

    ## Why it matters

    While the adapter is loaded, the two sides differ. Merged, low-rank factors are added to the one table
    that both sides share, so that the other side changes, too, and factors of both sides add up: it is
    another model than the one trained. A whole table becomes a second one: PEFT 0.19 and newer untie the
    model as they merge; older ones leave a flag that says tied, and then transformers 5 keeps both and warns,
    transformers 4 and most engines use one for both sides and lose the other without a word.

    ## How to fix it

    Train with `ensure_weight_tying=True` (PEFT 0.18 or newer), or name both modules
    (`modules_to_save=["embed_tokens", "lm_head"]`). To keep what was trained, untie the base first: save it
    with `tie_word_embeddings=false` and both tables, and merge into that.
    """

    code = "TA802"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        changed = [table for table in adapter.tables if not table.malformed]
        kinds = {table.kind for table in changed}
        factors = [table for table in changed if table.change is Change.LOW_RANK]
        apart = {table.kind for table in factors} == set(SIDES)
        if adapter.keeps_tie or not (apart or len(kinds) == 1) or all(map(_is_shared, changed)):
            return
        base = adapter.base
        if not base.tied:
            return
        if apart:
            yield self._apart(factors, base)
            return
        kind = kinds.pop()
        other = next(each for each in SIDES if each is not kind)
        names = ", ".join(dict.fromkeys(table.module for table in changed))
        yield self.finding(
            f"the adapter changes the {kind.value} ({names}) and not the {other.value}, "
            "which are the same table in its base",
            [
                *(table.says(what(table)) for table in changed),
                *base.tie_claims(),
                *base.claims,
            ],
            why=_why(changed, side(other)),
            fix="train with `ensure_weight_tying=True`, or untie the base before merging",
            subject=names,
        )

    def _apart(self, factors: list[AdaptedTable], base: Base) -> Finding:
        names = ", ".join(dict.fromkeys(table.module for table in factors))
        return self.finding(
            f"the adapter changes the input and the output embeddings ({names}) by factors of their own, "
            "which are the same table in its base",
            [*(table.says(what(table)) for table in factors), *base.tie_claims(), *base.claims],
            why="merged, both are added to that one table: it is another model than the one trained",
            fix="train with `ensure_weight_tying=True`, or untie the base before merging",
            subject=names,
        )


def _why(changed: list[AdaptedTable], other: str) -> str:
    if any(table.change is Change.LOW_RANK for table in changed):
        return f"merged, the {other} side changes too: it is another model than the one trained"
    return (
        "PEFT before 0.19 merges it under a flag that says tied, and most engines lose one of two tables; "
        "newer versions untie the model"
    )


def _is_shared(table: AdaptedTable) -> bool:
    """Whether PEFT applies the change to the other side of a tie by itself."""
    return table.change is Change.ROWS and table.kind is TableKind.INPUT
