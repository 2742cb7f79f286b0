"""Rows that were asked for, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract.ledger import Ledger
from tokaudit.contract.values import RowClass, TableValues
from tokaudit.errors import Unreadable


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
class Recorded:
    """What a gradient ledger says of a row: see `tokaudit.contract.Ledger`.

    A gradient is None for a path that does not lead to the table.
    """

    visits: int
    input_gradient: float | None
    output_gradient: float | None
    update: float


@dataclass(frozen=True, slots=True)
class ListedRow:
    """``content`` is the text of the token, None where there is none; ``nearest`` are tokens and cosines.

    ``recorded`` is None without a ledger, and for a table that it does not follow.
    """

    id: int
    content: str | None
    classes: RowClass
    norm: float
    percentile: float
    largest: float
    sign: str
    nearest: tuple[tuple[int, str | None, float], ...]
    referred_by: tuple[str, ...]
    recorded: Recorded | None = None


@dataclass(frozen=True, slots=True)
class ListedTable:
    """``total`` counts the rows that fit the choice, of which ``rows`` may be the first few."""

    values: TableValues
    rows: tuple[ListedRow, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Listing:
    """``unread`` says by tensor why a table has no rows here; ``ledger`` is what the rows are shown with.

    ``errors`` are parts of the directory that could not be read: a table, a text or a use may be missing.
    """

    target: str
    tables: tuple[ListedTable, ...]
    unread: tuple[tuple[str, str], ...]
    ledger: Ledger | None = None
    errors: tuple[Unreadable, ...] = ()
