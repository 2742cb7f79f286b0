"""What findings about an adapter have in common."""

from __future__ import annotations

from tokaudit.contract import AdaptedTable, TableKind
from tokaudit.text import counted

SIDES = (TableKind.INPUT, TableKind.OUTPUT)


def side(kind: TableKind) -> str:
    """``input`` or ``output``."""
    return kind.value.partition(" ")[0]


def tables_of(kinds: list[TableKind]) -> str:
    """``input embeddings``, ``input and output embeddings``."""
    return " and ".join(side(kind) for kind in SIDES if kind in kinds) + " embeddings"


def what(table: AdaptedTable) -> str:
    """What a tensor of the adapter holds, for a claim."""
    rows = counted(table.rows_or, "row") if isinstance(table.rows_or, int) else ""
    axis = " on axis 1" if table.axis else ""
    return f"{table.change.value} of the {table.kind.value}" + (f": {rows}{axis}" if rows else "")
