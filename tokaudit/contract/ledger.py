"""What a window of training steps did to each row of the tables (`tokaudit.training.GradientLedger`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tokaudit.contract.facts import Missing
from tokaudit.findings import Location
from tokaudit.text import named


@dataclass(frozen=True, slots=True)
class Residual:
    """How far the two paths are from the gradient that the optimizer got, in the row where that is worst.

    ``relative`` is the distance along one random direction over the sum of the norms of the two paths, or
    over a thousandth of the largest such sum where the row's own is smaller. ``tolerance`` is what rounding
    explains in that row; ``rows`` counts the rows beyond theirs.
    """

    id: int
    relative: float
    tolerance: float
    rows: int


@dataclass(frozen=True)
class TableLedger:
    """One parameter of [rows, hidden], and what reached its rows. Everything is a sum over optimizer steps.

    ``looked_up`` and ``gives_logits`` say which paths lead to it: both in a tied table. ``input_gradients``
    and ``output_gradients`` are sums of L2 norms: of the row's gradient through the one path, as the
    optimizer got it: added up over the backward passes of the step, unscaled and clipped (0 for a path that
    does not lead here). ``updates`` are sums of the L2 norms of how far the row moved from the end of one
    step to the end of the next, ``untouched`` the part of them in steps that gave the row no gradient.
    ``masked`` counts the rows whose gradient something set to zero before the step. ``trained`` is False for
    a table that takes no gradient. ``optimizer`` is the class of the optimizer that holds the table ("" where
    none was given), ``weight_decay`` that of the table's group.
    """

    name: str
    looked_up: bool
    gives_logits: bool
    trained: bool
    input_gradients: array[float] = field(repr=False)
    output_gradients: array[float] = field(repr=False)
    updates: array[float] = field(repr=False)
    untouched: array[float] = field(repr=False)
    residual_or: Residual | Missing
    masked: int = 0
    optimizer: str = ""
    weight_decay: float = 0.0

    @property
    def rows(self) -> int:
        return len(self.updates)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One id. The updates are None where the model has no such table, or none with a row for it."""

    id: int
    content: str | None
    visits: int
    input_gradient: float
    output_gradient: float
    input_update: float | None
    output_update: float | None
    new: bool = False
    pad: bool = False


@dataclass(frozen=True)
class Ledger:
    """The tables of one model over a window of ``steps`` optimizer steps and ``passes`` backward passes.

    ``visits`` counts, by id, the positions of inputs whose gradient came back (of a table that takes no
    gradient: the positions looked up). ``new_ids`` are the ids that the caller calls new. ``contents`` are
    texts of tokens by id. ``pad_starts`` where the pad id also begins what a decoder reads, as T5's does; a
    file does not say it. ``file`` is where it was read from, "" for one in memory.
    """

    steps: int
    passes: int
    visits: array[int] = field(repr=False)
    tables: tuple[TableLedger, ...]
    new_ids: tuple[int, ...] = ()
    pad_id: int | None = None
    contents: Mapping[int, str] = field(default_factory=dict, repr=False)
    file: str = ""
    pad_starts: bool = False

    @property
    def input(self) -> TableLedger | None:
        return next((table for table in self.tables if table.looked_up), None)

    @property
    def output(self) -> TableLedger | None:
        return next((table for table in self.tables if table.gives_logits), None)

    @property
    def tied(self) -> bool:
        return self.input is not None and self.input is self.output

    def at(self, table: TableLedger, id: int) -> Location:
        return Location(self.file or "ledger", tensor=table.name, rows=(id, id + 1))

    def named(self, id: int) -> str:
        """The id with its token's text, where that is known."""
        return named(id, self.contents[id]) if id in self.contents else str(id)

    def row(self, id: int) -> LedgerRow:
        return LedgerRow(
            id,
            self.contents.get(id),
            self.visits[id] if id < len(self.visits) else 0,
            self.input_gradient(id),
            self.output_gradient(id),
            _at(self.input.updates, id) if self.input else None,
            _at(self.output.updates, id) if self.output else None,
            id in self._new,
            id == self.pad_id,
        )

    @property
    def ids(self) -> range:
        return range(max((table.rows for table in self.tables), default=0))

    def rows(self) -> Iterator[LedgerRow]:
        """Every row of the longer table, by id."""
        return map(self.row, self.ids)

    def input_gradient(self, id: int) -> float:
        return (_at(self.input.input_gradients, id) or 0.0) if self.input else 0.0

    def output_gradient(self, id: int) -> float:
        return (_at(self.output.output_gradients, id) or 0.0) if self.output else 0.0

    @cached_property
    def _new(self) -> frozenset[int]:
        return frozenset(self.new_ids)

    @cached_property
    def visited_old(self) -> tuple[int, ...]:
        """The ids that were visited and are neither new nor that of padding: what new ones are held to."""
        apart = self._new | {self.pad_id}
        return tuple(id for id, count in enumerate(self.visits) if count and id not in apart)

    @property
    def visited_new(self) -> tuple[int, ...]:
        return tuple(id for id in self.new_ids if id < len(self.visits) and self.visits[id])

    def per_visit(self, ids: Iterable[int], *, output: bool = False) -> list[float]:
        """The gradients of visited rows through one path, each over the row's visits."""
        gradient = self.output_gradient if output else self.input_gradient
        return [gradient(id) / self.visits[id] for id in ids]

    def ratio(self, *, output: bool = False) -> float | None:
        """The median gradient per visit of new rows over that of old ones, of those that were visited.

        None where there are none, or where the old ones got no gradient.
        """
        new, old = (self.per_visit(ids, output=output) for ids in (self.visited_new, self.visited_old))
        return median(new) / median(old) if new and median(old) else None


def median(values: list[float]) -> float:
    """The one in the middle, the lower one of two; 0 without any."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def _at(values: array[float], id: int) -> float | None:
    return values[id] if id < len(values) else None
