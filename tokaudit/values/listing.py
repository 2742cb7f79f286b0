"""Chooses rows of the tables and collects what there is to say about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokaudit.contract import Contract, Neighbour, Options, TableKind, TableValues, Values, present
from tokaudit.contract.listing import ListedRow, ListedTable, Listing, Recorded, Wanted
from tokaudit.errors import FactMissing, UsageError
from tokaudit.load import Opening
from tokaudit.text import listed, shown
from tokaudit.values.neighbours import MOST_ASKED
from tokaudit.values.read import neighbours

if TYPE_CHECKING:
    from tokaudit.contract.ledger import Ledger, TableLedger
    from tokaudit.sources import Source

FEW = 20


def list_rows(
    path: str | Path, wanted: Wanted, *, tokenizer: str | None = None, ledger: Ledger | None = None
) -> Listing:
    """Read the tables and list the wanted rows of each, with what the ledger says of them.

    Raises UsageError for a token or an id that there is not and for the ledger of other tables, FactMissing
    where no table is found, and Unreadable where that may be because a part could not be read.
    """
    with Opening(path, tokenizer) as opening:
        contract = opening.contract(Options(deep=True))
        values = _values(contract)
        ids = [*(_id_of(contract, text) for text in wanted.tokens), *wanted.ids]
        for id in ids:
            if not any(id in table.ids for table in values.tables):
                largest = max(table.ids.stop for table in values.tables)
                raise UsageError(f"no table has a row {id}", hint=f"there are {largest} rows")
        tables = tuple(
            _listed(contract, opening.model, table, wanted, ids, ledger) for table in values.tables
        )
        return Listing(contract.name, tables, tuple(values.unread.items()), ledger, contract.damage)


def _values(contract: Contract) -> Values:
    """The rows, of one table at least. Raises as ``list_rows`` does."""
    found = contract.values_or
    if isinstance(found, Values) and found.tables:
        return found
    if contract.damage:
        raise contract.damage[0]
    unread = present(found).unread
    raise FactMissing(listed([f"{name}: {reason}" for name, reason in unread.items()]))


def _id_of(contract: Contract, text: str) -> int:
    """The id of a token as a person writes it: a space may stand for the symbol that the vocabulary uses."""
    ids = contract.vocabulary.by_content
    for spelling in (text, text.replace(" ", "\u0120"), text.replace(" ", "\u2581")):
        if spelling in ids:
            return ids[spelling]
    hint = "give it as the vocabulary spells it (tokenizer.json); --id takes the number"
    raise UsageError(f"no token has the text {shown(text)}", hint=hint)


def _listed(
    contract: Contract,
    source: Source,
    table: TableValues,
    wanted: Wanted,
    ids: Sequence[int],
    ledger: Ledger | None,
) -> ListedTable:
    chosen = _chosen(table, wanted, ids)
    total = len(chosen)
    if wanted.worst is not None:
        chosen = chosen[: wanted.worst]
    elif not (wanted.everything or ids):
        chosen = chosen[: FEW if wanted.kind is None else MOST_ASKED]
    near = dict(table.new)
    if len(chosen) <= MOST_ASKED:
        near |= neighbours(contract, source, table, [id for id in chosen if id not in near])
    rows = [_row(contract, table, id, near) for id in chosen]
    record = _record(table, ledger)
    if ledger is not None and record is not None:
        rows = [replace(row, recorded=_recorded(ledger, record, row.id)) for row in rows]
    return ListedTable(table, tuple(rows), total)


def _record(table: TableValues, ledger: Ledger | None) -> TableLedger | None:
    """The ledger's side of the table. Raises UsageError where it has another number of rows."""
    if ledger is None or table.first_id != 0:
        return None
    kind = table.table.kind
    found = ledger.input if kind is TableKind.INPUT else ledger.output if kind is TableKind.OUTPUT else None
    if found is not None and found.rows != len(table.norms):
        raise UsageError(
            f"the ledger is of {found.rows} rows, {table.table.name} has {len(table.norms)}",
            hint="give the ledger of a run that trained this model, and the model as it was saved then",
        )
    return found


def _recorded(ledger: Ledger, record: TableLedger, id: int) -> Recorded:
    return Recorded(
        ledger.row(id).visits,
        record.input_gradients[id] if record.looked_up else None,
        record.output_gradients[id] if record.gives_logits else None,
        record.updates[id],
    )


def _chosen(table: TableValues, wanted: Wanted, ids: Sequence[int]) -> list[int]:
    if ids:
        return [id for id in ids if id in table.ids]
    if wanted.kind is not None:
        return table.having(wanted.kind)
    if wanted.everything and wanted.worst is None:
        return list(table.ids)
    return table.worst()


def _row(
    contract: Contract, table: TableValues, id: int, near: Mapping[int, tuple[Neighbour, ...]]
) -> ListedRow:
    return ListedRow(
        id,
        contract.text(id),
        table.class_of(id),
        table.norm(id),
        table.percentile(id),
        table.largest[id - table.first_id],
        table.signs.get(id, ""),
        tuple((other.id, contract.text(other.id), other.cosine) for other in near.get(id, ())),
        tuple(dict.fromkeys(reference.words for reference in contract.references.get(id, ()))),
    )
