"""What readers hand on: some ids in the order of their file, their labels, and where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

DTYPES: dict[str, torch.dtype] = {
    "uint8": torch.uint8,
    "int8": torch.int8,
    "uint16": torch.uint16,
    "int16": torch.int16,
    "uint32": torch.uint32,
    "int32": torch.int32,
    "uint64": torch.uint64,
    "int64": torch.int64,
}
BLOCK_ITEMS = 1 << 20  # with 32-bit copies they stay in the processor's cache


class Layout(Protocol):
    """How the items of a block lie in rows."""

    @property
    def flat(self) -> bool:
        """Whether there is one row only."""

    def place(self, index: int) -> tuple[int, int]:
        """The row of an item of the block, and its number in the row."""

    def ends(self, items: int) -> torch.Tensor:
        """Bool [items]: the last item of a row, or of what is known of it."""


@dataclass(frozen=True, slots=True)
class Flat:
    """One row, of which the block begins at ``start``."""

    start: int
    flat: bool = True

    def place(self, index: int) -> tuple[int, int]:
        return 0, self.start + index

    def ends(self, items: int) -> torch.Tensor:
        found = torch.zeros(items, dtype=torch.bool)
        found[-1:] = True
        return found


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of one ``length``; the block begins at item ``start`` of all."""

    start: int
    length: int
    flat: bool = False

    def place(self, index: int) -> tuple[int, int]:
        return divmod(self.start + index, self.length)

    def ends(self, items: int) -> torch.Tensor:
        found = torch.zeros(items, dtype=torch.bool)
        found[self.length - 1 - self.start % self.length :: self.length] = True
        found[-1:] = True
        return found


@dataclass(frozen=True)
class Ragged:
    """Whole rows from ``first_row`` on; ``lengths`` (int64) has the items of each."""

    first_row: int
    lengths: torch.Tensor
    flat: bool = False

    def place(self, index: int) -> tuple[int, int]:
        stops = self.lengths.cumsum(0)
        row = int(torch.searchsorted(stops, index, right=True))
        return self.first_row + row, index - int(stops[row] - self.lengths[row])

    def ends(self, items: int) -> torch.Tensor:
        found = torch.zeros(items, dtype=torch.bool)
        found[self.lengths.cumsum(0)[self.lengths > 0] - 1] = True
        return found


@dataclass(frozen=True)
class Block:
    """``ids`` and ``labels`` [items], as they are stored; ``labels`` is None where there are none.

    ``unaligned`` counts rows whose labels are more or fewer than their inputs; their labels are left out.
    """

    ids: torch.Tensor
    layout: Layout
    labels: torch.Tensor | None = None
    unaligned: int = 0


def tensor(data: bytearray | memoryview, dtype: str, *, swapped: bool = False) -> torch.Tensor:
    """The integers [items] in a writable buffer; ``swapped`` where their bytes stand the other way round."""
    if not len(data):
        return torch.empty(0, dtype=DTYPES[dtype])
    width = DTYPES[dtype].itemsize
    raw = torch.frombuffer(data, dtype=torch.uint8)
    if swapped and width > 1:
        raw = raw.view(-1, width).flip(1).flatten()
    return raw.view(DTYPES[dtype])
