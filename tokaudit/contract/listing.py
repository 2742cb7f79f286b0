"""Rows that were asked for, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract.values import RowClass, TableValues


@dataclass(frozen=True, slots=True)
class Wanted:
    """A choice of rows: of tokens and ids, of a class, or the ``worst`` so many. By default the oddest few.

    With ``everything`` no choice means all rows.
    """

    tokens: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    worst: int | None = None
    kind: RowClass | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True)
class ListedRow:
    """``content`` is the text of the token, None where there is none; ``nearest`` are tokens and cosines."""

    id: int
    content: str | None
    classes: RowClass
    norm: float
    percentile: float
    largest: float
    sign: str
    nearest: tuple[tuple[int, str | None, float], ...]
    referred_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedTable:
    """``total`` counts the rows that fit the choice, of which ``rows`` may be the first few."""

    values: TableValues
    rows: tuple[ListedRow, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Listing:
    """``unread`` says by tensor why a table has no rows here."""

    target: str
    tables: tuple[ListedTable, ...]
    unread: tuple[tuple[str, str], ...]
