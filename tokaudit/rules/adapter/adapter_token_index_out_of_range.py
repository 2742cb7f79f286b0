from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Adapter, ChosenTokens, Contract, Fact, TableKind
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed


class AdapterTokenIndexOutOfRange(Rule):
    """The adapter names tokens to train that have no row.

    ## What it finds

    Ids in `trainable_token_indices` (or `token_indices` of the TRAINABLE_TOKENS method) that are negative,
    or at or above the rows of the table: the adapter's own where it holds it whole, else the base's.
    Members that are no integers, and lists of another length than the rows that the adapter stores for
    them.

    ## Why it matters

    The stored rows take the place of the named ones: an id without a row is an IndexError when the adapter
    is made or loaded, a negative one replaces a row counted from the end.

    ## How to fix it

    Name ids below the rows of the base. For new tokens give the base their rows first: `tokaudit resize
    BASE DST --to-tokenizer ADAPTER`.
    """

    code = "TA804"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        for chosen in adapter.chosen:
            yield from self._malformed(chosen)
            yield from self._count(chosen)
        for chosen in adapter.chosen:
            negative = [id for id in chosen.ids.value if id < 0]
            if negative:
                yield self._out_of_range(contract, chosen, negative, None)
            rows = _rows(adapter, chosen.kind)
            past = [id for id in chosen.ids.value if id >= rows.value]
            if past:
                yield self._out_of_range(contract, chosen, past, rows)

    def _malformed(self, chosen: ChosenTokens) -> Iterator[Finding]:
        if chosen.malformed:
            yield self.finding(
                f"{counted(len(chosen.malformed), 'member')} of the list of trained tokens "
                f"{'is' if len(chosen.malformed) == 1 else 'are'} no token id: {listed(chosen.malformed)}",
                [chosen.ids.says(f"holds {listed(chosen.malformed)}")],
                why="PEFT indexes the table with them",
                fix="list the ids as integers",
                subject=f"{chosen.ids.at.pointer} type",
            )

    def _count(self, chosen: ChosenTokens) -> Iterator[Finding]:
        stored, named = chosen.stored, len(chosen.ids.value) + len(chosen.malformed)
        if stored is not None and stored.shape[:1] != (named,):
            rows = stored.shape[0] if stored.shape else 0
            yield self.finding(
                f"{counted(named, 'token')} {'is' if named == 1 else 'are'} to be trained, "
                f"and the adapter stores {counted(rows, 'row')}",
                [chosen.ids.says(counted(named, "id")), stored.says(f"shape {list(stored.shape)}")],
                why="PEFT cannot load it: size mismatch",
                fix="restore the list of ids that the adapter was trained with",
                subject=f"{chosen.ids.at.pointer} count",
            )

    def _out_of_range(
        self, contract: Contract, chosen: ChosenTokens, ids: list[int], rows: Fact[int] | None
    ) -> Finding:
        names = [contract.named(id) if id >= 0 else str(id) for id in ids[:5]]
        claims = [chosen.ids.says(f"names {listed([str(id) for id in ids])}")]
        if rows is not None:
            claims.append(rows.says(f"{rows.value} rows: ids 0 to {rows.value - 1}"))
        limit = "" if rows is None else f"; the {chosen.kind.value} have {rows.value} rows"
        return self.finding(
            f"{counted(len(ids), 'trained token')} {'has' if len(ids) == 1 else 'have'} no row: "
            f"{listed(names, total=len(ids))}{limit}",
            claims,
            why="their rows are to take the place of rows that there are not: an IndexError"
            if rows is not None
            else "a negative id replaces a row counted from the end",
            fix="give the base these rows (`tokaudit resize BASE DST --rows N`), or correct the ids",
            subject=chosen.ids.at.pointer + (" negative" if rows is None else ""),
        )


def _rows(adapter: Adapter, kind: TableKind) -> Fact[int]:
    """The rows of the table as it is once the adapter is loaded. Raises FactMissing."""
    if kind is TableKind.INPUT:
        return adapter.addressable()
    whole = adapter.whole(kind)
    if whole is not None and isinstance(whole.rows_or, int):
        return Fact(whole.rows_or, whole.tensor.at)
    return adapter.base.rows(kind)
