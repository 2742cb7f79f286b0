"""Counting: blocks of ids in, their statistics out.

The table of a 16-bit dtype has a place for every value, so one histogram of a block says everything; of wider
ones the extremes are looked at first. Measured (benchmarks/data.py): `torch.bincount` on 32 bits is the
fastest of what NumPy and torch have, twice as fast as `numpy.bincount`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from tokaudit.contract.data import DataColumn, DataStatistics, LabelStatistics, Place, Sample, first_samples
from tokaudit.data.blocks import Block
from tokaudit.data.labels import label_statistics

if TYPE_CHECKING:
    from tokaudit.data.plan import Unit

SAMPLED = 512  # ids at the beginning of a file
_RANGE = 1 << 64


@dataclass(frozen=True, slots=True)
class Measure:
    """What ids are held against: ids below ``rows`` have a row, ids below ``bins`` are counted one by one.

    ``pad`` and ``ends`` are the pad and the end-of-sequence ids; ``pad_shared`` where a pad id that follows
    no other one has another meaning (it also ends sequences, or stands for unknown text).
    """

    rows: int
    bins: int
    pad: int | None = None
    pad_shared: bool = False
    ends: tuple[int, ...] = ()


class Tally:
    """Takes in any number of units."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.counts = torch.zeros(measure.bins, dtype=torch.int64)
        self.narrow: dict[torch.dtype, torch.Tensor] = {}
        self.items = self.beyond = self.negative = 0
        self.least: int | None = None
        self.most: int | None = None
        self.outside: Place | None = None
        self.labelled: dict[DataColumn, LabelStatistics] = {}
        self.samples: tuple[Sample, ...] = ()

    def take(self, unit: Unit) -> None:
        """Count a unit. Raises Unreadable, with what came before counted."""
        head: list[int] = []
        try:
            for block in unit.blocks():
                if unit.begins and len(head) < SAMPLED:
                    head += block.ids[: SAMPLED - len(head)].tolist()
                self._add(unit.column, block)
        finally:
            if head:
                sample = Sample(unit.column.file, unit.column.column, tuple(head))
                self.samples = first_samples([*self.samples, sample])

    def _add(self, column: DataColumn, block: Block) -> None:
        ids = block.ids
        if block.labels is not None or block.unaligned:
            known = self.labelled.get(column, LabelStatistics())
            self.labelled[column] = known.merge(label_statistics(column, block, self.measure))
        self.items += len(ids)
        if not len(ids):
            return
        if self._count_narrow(ids) if ids.dtype.itemsize <= 2 else self._count_wide(ids):
            self._note(column, block)

    def _count_narrow(self, ids: torch.Tensor) -> bool:
        """Count 8 or 16 bits; whether some id has no row."""
        lowest = torch.iinfo(ids.dtype).min
        size = torch.iinfo(ids.dtype).max - lowest + 1
        numbers = ids.to(torch.int32)
        if lowest:
            numbers -= lowest
        found = torch.bincount(numbers, minlength=size)
        table = self.narrow.get(ids.dtype)
        if table is None:
            self.narrow[ids.dtype] = found
        else:
            table += found
        return bool(found[:-lowest].any() if lowest else False) or bool(
            found[self.measure.rows - lowest :].any()
        )

    def _count_wide(self, ids: torch.Tensor) -> bool:
        numbers, huge = _signed(ids)
        low, high = (int(bound) for bound in torch.aminmax(numbers))
        if not huge:
            self._extremes(low, high)
        if low >= 0 and high < self.measure.bins:
            self.counts += torch.bincount(numbers, minlength=self.measure.bins)
            return high >= self.measure.rows
        below = numbers < 0
        past = numbers >= self.measure.bins
        if huge:
            self._extremes(*_unsigned_extremes(numbers))
            past |= below
        else:
            self.negative += int(below.sum())
        self.beyond += int(past.sum())
        within = numbers[~(below | past)]
        self.counts += torch.bincount(within, minlength=self.measure.bins)
        return True

    def _extremes(self, low: int, high: int) -> None:
        self.least = low if self.least is None else min(self.least, low)
        self.most = high if self.most is None else max(self.most, high)

    def _note(self, column: DataColumn, block: Block) -> None:
        """Keep the first id without a row. Blocks of a file may come in any order."""
        row, item = block.layout.place(0)
        begin = Place(column.file, column.column, row, item, 0)
        if self.outside is not None and self.outside < begin:
            return
        numbers = block.ids.to(torch.int64)  # in a narrow type the number of rows would wrap around
        index = int(((numbers < 0) | (numbers >= self.measure.rows)).int().argmax())
        place = _place(column, block, index)
        self.outside = place if self.outside is None else min(self.outside, place)

    def result(self) -> DataStatistics:
        """The statistics of everything that was taken in."""
        statistics = DataStatistics(
            counts=_array(self.counts),
            items=self.items,
            beyond=self.beyond,
            negative=self.negative,
            least=self.least,
            most=self.most,
            outside=self.outside,
            labelled=self.labelled,
            samples=self.samples,
        )
        for dtype, table in self.narrow.items():
            statistics = statistics.merge(self._of_table(torch.iinfo(dtype).min, table))
        return statistics

    def _of_table(self, lowest: int, table: torch.Tensor) -> DataStatistics:
        """What a histogram says; its first place is for the value ``lowest``."""
        seen = table.nonzero().flatten()
        counts = torch.zeros_like(self.counts)
        within = table[-lowest:][: len(counts)]
        counts[: len(within)] = within
        return DataStatistics(
            counts=_array(counts),
            negative=int(table[:-lowest].sum()) if lowest else 0,
            beyond=int(table[-lowest:][len(counts) :].sum()),
            least=int(seen[0]) + lowest,
            most=int(seen[-1]) + lowest,
        )


def _place(column: DataColumn, block: Block, index: int) -> Place:
    row, item = block.layout.place(index)
    return Place(
        column.file, column.column, row, item, block.ids[index : index + 1].tolist()[0], block.layout.flat
    )


def _signed(ids: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The ids in a type that torch counts in, and whether ids from 2**63 on are negative there."""
    if ids.dtype is torch.uint64:
        numbers = ids.view(torch.int64)
        return numbers, bool((numbers < 0).any())
    return (ids.to(torch.int64) if ids.dtype in (torch.uint32, torch.uint16) else ids), False


def _unsigned_extremes(numbers: torch.Tensor) -> tuple[int, int]:
    """Of 64-bit numbers without a sign, some of them from 2**63 on, which are negative here."""
    huge, others = numbers[numbers < 0], numbers[numbers >= 0]
    low = int(others.min()) if len(others) else int(huge.min()) + _RANGE
    return low, int(huge.max()) + _RANGE


def _array(counts: torch.Tensor) -> array[int]:
    found = array("q", bytes(8 * len(counts)))
    if len(found):
        torch.frombuffer(found, dtype=torch.int64).copy_(counts)
    return found


def merged(parts: list[DataStatistics], bins: int) -> DataStatistics:
    """All parts together. Counts are added in one table: `merge` makes a new one for each part."""
    counts = torch.zeros(bins, dtype=torch.int64)
    nothing = array("q")
    total = DataStatistics(nothing)
    for part in parts:
        if bins:
            counts += torch.frombuffer(part.counts, dtype=torch.int64)
        total = total.merge(replace(part, counts=nothing))
    return replace(total, counts=_array(counts))
