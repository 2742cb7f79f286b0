from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Adapter, Contract, Missing, Vocabulary
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._beyond import RowLimit, shown_strays, stray_tokens
from tokaudit.text import counted, listed


class AdapterTokenizerMismatch(Rule):
    """The adapter's own tokenizer has ids for which neither the adapter nor its base has a row.

    ## What it finds

    Ids of the tokenizer beside the adapter at or above the rows of the input embeddings: the adapter's own
    where it holds them whole, else the base's. It is a warning for added tokens that nothing refers to and
    that the base's own tokenizer has, too, as Gemma 3 1B is released.

    ## Why it matters

    The tokenizer was given tokens and the model no rows, or the rows were added in memory and not saved with
    the adapter (PEFT leaves them out when it cannot see the base's configuration). The lookup of such an id
    fails: an `IndexError` on a CPU, a device-side assert on a GPU.

    ## How to fix it

    If the tokens were trained, save again with `save_embedding_layers=True`. If they were not, use the
    base's tokenizer; or give the base their rows, `tokaudit resize BASE DST --to-tokenizer ADAPTER`, and
    train on DST.
    """

    code = "TA805"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        contract.vocabulary  # noqa: B018  (raises where the adapter has no tokenizer)
        rows = adapter.addressable()
        limit = RowLimit(
            rows.value,
            rows.says(f"{rows.value} rows: ids 0 to {rows.value - 1}"),
            f"there are {rows.value} rows",
        )
        strays = stray_tokens(contract, limit)
        released = tuple(id for id in strays.unused if _is_the_bases(contract, adapter, id))
        wrong = tuple(sorted({*strays.mattering, *strays.unused} - set(released)))
        if wrong:
            yield self._found(contract, wrong, limit, Severity.ERROR)
        if released:
            yield self._found(contract, released, limit, Severity.WARNING)

    def _found(
        self, contract: Contract, ids: tuple[int, ...], limit: RowLimit, severity: Severity
    ) -> Finding:
        shown = shown_strays(contract, ids)
        have = "has no row" if len(ids) == 1 else "have no row"
        alike = ", as in the base's own tokenizer" if severity is Severity.WARNING else ""
        return self.finding(
            f"{counted(len(ids), 'token id')} of the adapter's tokenizer {have} in adapter or base{alike}: "
            f"{listed([stray.words for stray in shown], total=len(ids))}; {limit.words}",
            [*(stray.claim for stray in shown[:3]), limit.claim],
            why="looking such an id up fails: an IndexError on a CPU, a device-side assert on a GPU",
            fix="save the adapter with `save_embedding_layers=True` if the tokens were trained; otherwise "
            "use the base's tokenizer, or `tokaudit resize BASE DST --to-tokenizer ADAPTER`",
            severity=severity,
            subject="released" if severity is Severity.WARNING else "",
        )


def _is_the_bases(contract: Contract, adapter: Adapter, id: int) -> bool:
    """Whether the base's own tokenizer gives the id to the same text."""
    if isinstance(adapter.base_or, Missing) or not isinstance(adapter.base_or.vocabulary_or, Vocabulary):
        return False
    return adapter.base_or.vocabulary_or.by_content.get(contract.vocabulary.by_id[id]) == id
