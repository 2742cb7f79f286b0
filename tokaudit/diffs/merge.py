"""Parents of a merge: the rows of the merged model are made of theirs, id by id."""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.diffs.comparison import Comparison, rows_of
from tokaudit.diffs.difference import Difference
from tokaudit.text import counted


def reasons(found: Comparison) -> list[str]:
    tables = [str(change) for change in found.tables if not _harmless(found, change)]
    return [*found.mapping_words(), *_union(found), *tables]


def remarks(found: Comparison) -> list[str]:
    tables = [str(change) for change in found.tables if _harmless(found, change)]
    return [*tables, *found.words("pipeline", "templates", "special")]


def _union(found: Comparison) -> Iterator[str]:
    """What a tokenizer with the tokens of both would take."""
    left, right, mapping = found.left, found.right, found.mapping
    if mapping is None or not mapping.complete or not (left.knows_all_ids and right.knows_all_ids):
        return
    both = len(left.ids) - len(mapping.removed)
    words = (
        f"a union has {both + len(mapping.removed) + len(mapping.added)} tokens: {both} of both, "
        f"{len(mapping.removed)} of the left and {len(mapping.added)} of the right side alone"
    )
    again = len(mapping.moved) + len(mapping.replaced)
    yield f"{words}; {counted(again, 'token')} of the right side would get other ids" if again else words


def _harmless(found: Comparison, change: Difference) -> bool:
    """Whether merging is possible all the same: other values, another dtype, other padding rows."""
    if change.layer in ("contents", "expected_rows") or change.path[-1:] == ("dtype",):
        return True
    return change.path[-1:] == ("rows",) and _only_padding(found, change.path[0])


def _only_padding(found: Comparison, table: str) -> bool:
    """Whether both sides have a row for every token; the merged table has the rows that both have."""
    sides = [(side.lock.mapping, rows_of(side, table)) for side in (found.left, found.right)]
    return all(mapping is not None and rows is not None and rows >= mapping.end for mapping, rows in sides)
