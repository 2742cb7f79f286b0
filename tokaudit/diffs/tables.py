"""What differs in the tables of token rows."""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import LockedTable, TableKind
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.values import NONE, short
from tokaudit.text import counted


def table_differences(left: Side, right: Side) -> Iterator[Difference]:
    """Shapes, dtypes, the tie, the rows that the configuration asks for, and digests of contents."""
    if left.lock.tables is not None and right.lock.tables is not None:
        yield from _tables(left.lock.tables, right.lock.tables)
    one, other = left.lock.tied, right.lock.tied
    if one is not None and other is not None and one != other:
        yield Difference("tied", "output embeddings are tied", _yes(one), _yes(other))
    before, after = left.lock.expected_rows, right.lock.expected_rows
    if before is not None and after is not None and before != after:
        yield Difference("expected_rows", "rows that config.json asks for", str(before), str(after))
    contents = left.lock.contents or {}, right.lock.contents or {}
    for name in sorted(contents[0].keys() & contents[1].keys()):
        if contents[0][name] != contents[1][name]:
            words = short(contents[0][name]), short(contents[1][name])
            yield Difference("contents", f"bytes of {name}", *words, path=(name,))


def describe(table: LockedTable) -> str:
    """``512 rows × 64, BF16, embed_tokens.weight``."""
    rows = "packed" if table.rows is None else counted(table.rows, "row")
    hidden = "" if table.hidden is None else f" × {table.hidden}"
    return f"{rows}{hidden}, {table.dtype}, {table.name}"


def place(table: LockedTable) -> str:
    """What a table is compared with: the only one of its kind, or the one of its name."""
    if table.kind in (TableKind.INPUT.value, TableKind.OUTPUT.value):
        return table.kind
    return f"{table.kind} {table.name}"


def _tables(left: tuple[LockedTable, ...], right: tuple[LockedTable, ...]) -> Iterator[Difference]:
    one, other = {place(table): table for table in left}, {place(table): table for table in right}
    for key in dict.fromkeys((*one, *other)):
        before, after = one.get(key), other.get(key)
        if before is None or after is None:
            words = [NONE if table is None else describe(table) for table in (before, after)]
            yield Difference("tables", key, words[0], words[1], (key,))
            continue
        for word, a, b in (
            ("rows", before.rows, after.rows),
            ("hidden", before.hidden, after.hidden),
            ("dtype", before.dtype, after.dtype),
            ("name", before.name, after.name),
        ):
            if a != b:
                yield Difference("tables", f"{word} of the {key}", _plain(a), _plain(b), (key, word))


def _plain(value: object) -> str:
    return "packed" if value is None else str(value)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
