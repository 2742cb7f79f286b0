"""Reads the tables of a contract, and makes of each row what `--deep` knows about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from tokaudit.contract import (
    Contract,
    Divergence,
    Indicators,
    Missing,
    Neighbour,
    RowClass,
    Table,
    TableComparison,
    TableKind,
    TableValues,
    Values,
)
from tokaudit.contract.values import DEAD
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.sources import Source
from tokaudit.values.divergence import divergence
from tokaudit.values.identical import identical_rows
from tokaudit.values.judge import Measured, classes, gives_logits, under_trained
from tokaudit.values.neighbours import nearest
from tokaudit.values.newcomers import newcomers, still_initial
from tokaudit.values.purposes import purposes
from tokaudit.values.statistics import Statistics, as_array
from tokaudit.values.stored import StoredTable, one_thread, stored
from tokaudit.values.unused import Reference, indicators, reference

MOST_NEW = 32  # added tokens whose neighbours are looked up in an audit: the last ones

SPARE = RowClass.PADDING | RowClass.HOLE | RowClass.RESERVED


def read_values(contract: Contract, source: Source) -> Values:
    """Every table of token rows, each read once. Raises FactMissing where none was found."""
    found: list[TableValues] = []
    unread: dict[str, str] = {}
    with one_thread(), ThreadPoolExecutor(1, thread_name_prefix="tokaudit") as ahead:
        # What a pass needs to know before it is worked out by one thread during the pass before it.
        prepared = [
            (table, ahead.submit(_prepared, contract, source, table, first_id))
            for table, first_id in _tables(contract)
        ]
        try:
            for table, future in prepared:
                try:
                    found.append(_table_values(contract, future.result()))
                except FactMissing as missing:
                    unread[table.name] = missing.reason
                except Unreadable as error:
                    unread[table.name] = f"{error.file} could not be read: {error.message}"
        finally:
            ahead.shutdown(cancel_futures=True)
    if not found and not unread:
        raise FactMissing("no table of token rows was found")
    return Values(tuple(found), unread, tuple(_divergences(contract, source)))


def neighbours(
    contract: Contract, source: Source, values: TableValues, ids: list[int]
) -> dict[int, tuple[Neighbour, ...]]:
    """The nearest tokens in use of some ids of a table that was read. Raises Unreadable."""
    start = values.first_id
    unfit = (SPARE | DEAD | RowClass.NON_FINITE).value
    alive = torch.tensor([not value & unfit for value in values.classes])
    return _from_rows(nearest(stored(source, values.table), [id - start for id in ids], alive), start)


def _from_rows(found: Mapping[int, tuple[Neighbour, ...]], start: int) -> dict[int, tuple[Neighbour, ...]]:
    return {
        start + row: tuple(Neighbour(start + other.id, other.cosine) for other in others)
        for row, others in found.items()
    }


def _tables(contract: Contract) -> Iterator[tuple[Table, int]]:
    """The tables with the id of their first row; copies that are equal to another one only once."""
    embeddings = contract.embeddings
    for table in embeddings.tables:
        apart = table.kind is TableKind.BIAS or table in embeddings.extra_inputs
        if not (apart or any(_equal(contract, other, table) for other in embeddings.tables)):
            yield table, 0
    first_id = embeddings.input_rows.value if embeddings.extra_inputs else 0
    for table in reversed(embeddings.extra_inputs):
        first_id -= table.rows
        yield table, first_id


def _equal(contract: Contract, left: Table, right: Table) -> bool:
    comparison = _comparisons(contract).get((left.name, right.name))
    return comparison is not None and comparison.equal


def _comparisons(contract: Contract) -> dict[tuple[str, str], TableComparison]:
    pairs = contract.comparisons_or
    if isinstance(pairs, Missing):
        return {}
    return {names: pair for names, pair in pairs.items() if isinstance(pair, TableComparison)}


def _divergences(contract: Contract, source: Source) -> Iterator[Divergence]:
    """Of tables that some loader makes one; of others only the first difference was looked for."""
    tables = {table.name: table for table in contract.embeddings.tables}
    for (left, right), comparison in _comparisons(contract).items():
        if comparison.exhaustive and not comparison.equal:
            try:
                yield divergence(stored(source, tables[left]), stored(source, tables[right]))
            except (FactMissing, Unreadable):
                continue  # what the comparison of the bytes says stands without numbers


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A table before the pass over it. ``purpose`` is as in `Measured`."""

    table: StoredTable
    ids: range
    purpose: torch.Tensor
    against: Reference | Missing


def _prepared(contract: Contract, source: Source, table: Table, first_id: int) -> _Prepared:
    """Raises FactMissing for a table whose rows cannot be had as numbers, and Unreadable."""
    rows = stored(source, table)
    ids = range(first_id, first_id + rows.rows)
    purpose = torch.tensor(purposes(contract, table, ids), dtype=torch.int16)
    against: Reference | Missing = Missing("the table gives no logits")
    if gives_logits(contract, rows):
        spare, in_use = ((purpose & each.value) != 0 for each in (SPARE, RowClass.IN_USE))
        against = reference(rows, spare, in_use)
    return _Prepared(rows, ids, purpose, against)


def _table_values(contract: Contract, prepared: _Prepared) -> TableValues:
    measured = _measured(contract, prepared)
    table, first_id = prepared.table, prepared.ids.start
    new = newcomers(measured)
    signs = {**under_trained(measured), **still_initial(measured, new)}
    values = measured.statistics
    return TableValues(
        table=table.table,
        first_id=first_id,
        norms=as_array(values.norms),
        largest=as_array(values.largest),
        classes=as_array(classes(measured, signs)),
        non_finite={first_id + row: count for row, count in sorted(values.non_finite.items())},
        identical=tuple(tuple(first_id + row for row in rows) for rows in measured.same),
        typical_norm=measured.typical,
        spread=measured.spread,
        signs={first_id + row: sign for row, sign in sorted(signs.items())},
        indicators_or=measured.near,
        new=_from_rows(nearest(table, new[-MOST_NEW:], measured.alive), first_id),
    )


def _mixed(group: tuple[int, ...], in_use: torch.Tensor) -> bool:
    """Whether rows in use and others are equal, copies of the last row in use aside."""
    marked = in_use[list(group)]
    last = int(in_use.nonzero()[-1]) if in_use.any() else -1
    return bool(marked.any()) and not bool(marked.all()) and last not in group


def _measured(contract: Contract, prepared: _Prepared) -> Measured:
    """The pass over the table, and what follows from it."""
    table, against = prepared.table, prepared.against
    in_use = (prepared.purpose & RowClass.IN_USE.value) != 0
    directions = torch.empty(0, table.hidden) if isinstance(against, Missing) else against.directions
    values = Statistics(table, in_use, directions)
    table.scan(values.visit)
    same = identical_rows(table, values.checksums, (values.largest == 0) | values.norms.isnan())
    near: Indicators | Missing
    if isinstance(against, Missing):
        near = against
    elif any(_mixed(group, in_use) for group in same):
        near = Missing("rows that are known to be unused repeat the row of a token in use")
    else:
        near = indicators(against, values.norms, values.projections, in_use & (values.norms > 0))
    return Measured(contract, table, prepared.ids, prepared.purpose, values, same, near)
