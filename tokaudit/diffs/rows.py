"""Whether the rows of tokens that both sides have are the same, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from tokaudit.contract import Table
from tokaudit.diffs.difference import Side
from tokaudit.diffs.mapping import few
from tokaudit.diffs.tables import place
from tokaudit.errors import FactMissing
from tokaudit.formats import limits
from tokaudit.formats.compare import RowPair
from tokaudit.locks.make import counting_tables, locked_table
from tokaudit.text import counted, named, size


@dataclass(frozen=True, slots=True)
class RowsDiff:
    """The rows of one table. ``different`` are tokens by (id on the left, text), by id.

    ``table`` says which table, ``name`` is the tensor on the left. ``reason`` says why nothing was compared.
    """

    table: str
    name: str
    compared: int
    different: tuple[tuple[int, str], ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        what = f"{self.table} {self.name}"
        if self.reason:
            return f"{what}: not compared, {self.reason}"
        if not self.different:
            return f"{what}: the rows of all {self.compared} shared tokens are the same"
        words = few(self.different, lambda token: named(*token))
        rows = counted(self.compared, "shared token")
        return f"{what}: {len(self.different)} of the rows of {rows} differ: {words}"


def rows_diffs(left: Side, right: Side) -> tuple[RowsDiff, ...]:
    """One for each table that both sides have.

    Raises FactMissing where a side is a lock, or where its tokens or tables are not known, and Unreadable.
    """
    return tuple(_rows_diffs(left, right))


def _rows_diffs(left: Side, right: Side) -> Iterator[RowsDiff]:
    tables, others = _tables(left), _tables(right)
    shared = sorted((id, right.ids[text], text) for text, id in left.ids.items() if text in right.ids)
    for key, one in tables.items():
        other = others.get(key)
        if other is None:
            continue
        try:
            row_bytes = _row_bytes(one, other)
        except FactMissing as missing:
            yield RowsDiff(key, one.name, 0, reason=missing.reason)
            continue
        stored = [token for token in shared if token[0] < one.rows and token[1] < other.rows]
        yield RowsDiff(key, one.name, len(stored), _different(left, one, right, other, row_bytes, stored))


def _tables(side: Side) -> dict[str, Table]:
    if side.contract is None:
        raise FactMissing(f"{side.name} is a lock, which holds no rows")
    if not side.knows_all_ids:
        side.contract.vocabulary.effective  # noqa: B018  (raises, and says why)
    return {place(locked_table(table)): table for table in counting_tables(side.contract)}


def _row_bytes(left: Table, right: Table) -> int:
    """Bytes of a row, the same in both tables."""
    if left.tensor.dtype != right.tensor.dtype:
        raise FactMissing(f"one has {left.tensor.dtype} and the other {right.tensor.dtype}")
    one, other = _stored_row_bytes(left), _stored_row_bytes(right)
    if one != other:
        raise FactMissing(f"a row has {one} bytes in one and {other} in the other")
    return one


def _stored_row_bytes(table: Table) -> int:
    """Bytes of a row of a table whose rows are stored one after the other."""
    tensor = table.tensor
    if table.packed or not isinstance(table.rows_or, int):
        raise FactMissing("its values are packed")
    if any(length != 1 for length in tensor.shape[: table.axis]):
        raise FactMissing("its rows are not stored one after the other")
    if not tensor.nbytes or tensor.nbytes % table.rows:
        raise FactMissing("its rows do not end at whole bytes")
    if tensor.nbytes > limits.TABLE_BYTES_COMPARED:
        raise FactMissing(f"it holds {size(tensor.nbytes)}, too much to compare")
    return tensor.nbytes // table.rows


def _different(
    left: Side,
    one: Table,
    right: Side,
    other: Table,
    row_bytes: int,
    stored: list[tuple[int, int, str]],
) -> tuple[tuple[int, str], ...]:
    """Rows at the same place are compared by reading both tables once, those of moved tokens one by one."""
    assert left.source is not None
    assert right.source is not None
    still = {id: text for id, there, text in stored if id == there}
    moved = [token for token in stored if token[0] != token[1]]
    rows = min(one.rows, other.rows)
    with left.source.open(one.tensor.file) as ours, right.source.open(other.tensor.file) as theirs:
        pair = RowPair(ours, one.tensor.start, theirs, other.tensor.start, rows, row_bytes)
        found = [(row, still[row]) for row in chain.from_iterable(pair.differing()) if row in still]
        found += [(id, text) for id, there, text in moved if pair.row_differs(id, there)]
    return tuple(sorted(found))
