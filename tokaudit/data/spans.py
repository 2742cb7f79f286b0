"""Ids that lie one after the other in a file: raw files, NumPy arrays, Megatron's data, safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokaudit.contract.data import DataColumn, width
from tokaudit.data.blocks import BLOCK_ITEMS, Block, Flat, Layout, Matrix, tensor
from tokaudit.sources import OpenFile, open_named


@dataclass(frozen=True, slots=True)
class Span:
    """Integers of one ``dtype`` from byte ``start`` on; ``swapped`` where they are big endian."""

    start: int
    dtype: str
    swapped: bool = False

    def read(self, file: OpenFile, first: int, buffer: bytearray, items: int) -> memoryview:
        """The bytes of some items, in the buffer. Raises Unreadable."""
        window = memoryview(buffer)[: items * width(self.dtype)]
        file.fill(self.start + first * width(self.dtype), window)
        return window


@dataclass(frozen=True, slots=True)
class SpanUnit:
    """The items from ``first`` up to ``past`` of one array, with the labels at the same positions, if any.

    ``length`` is that of a row, 0 for a flat array. ``begins`` marks the beginning of a file.
    """

    path: str
    column: DataColumn
    ids: Span
    first: int
    past: int
    length: int = 0
    labels: Span | None = None

    @property
    def nbytes(self) -> int:
        return (self.past - self.first) * width(self.ids.dtype)

    @property
    def begins(self) -> bool:
        return self.first == 0

    def split(self, nbytes: int) -> Iterator[SpanUnit]:
        """The same in parts of about so many bytes, at the boundaries of blocks."""
        step = self._step * max(1, nbytes // (self._step * width(self.ids.dtype)))
        for first in range(self.first, max(self.past, self.first + 1), step):
            yield replace(self, first=first, past=min(self.past, first + step))

    @property
    def _step(self) -> int:
        """Items of a block: whole rows, where they are not longer than one."""
        return BLOCK_ITEMS // self.length * self.length if 0 < self.length <= BLOCK_ITEMS else BLOCK_ITEMS

    def blocks(self) -> Iterator[Block]:
        """Raises Unreadable. A block is valid until the next one is asked for."""
        step = min(self._step, self.past - self.first)
        spans = [self.ids] if self.labels is None else [self.ids, self.labels]
        buffers = [bytearray(step * width(span.dtype)) for span in spans]
        with open_named(self.path) as file:
            for first in range(self.first, self.past, step or 1):
                items = min(step, self.past - first)
                read = [
                    tensor(span.read(file, first, buffer, items), span.dtype, swapped=span.swapped)
                    for span, buffer in zip(spans, buffers, strict=True)
                ]
                yield Block(read[0], self._layout(first), read[1] if self.labels is not None else None)

    def _layout(self, first: int) -> Layout:
        return Matrix(first, self.length) if self.length else Flat(first)
