"""Whether two tables hold the same bytes, and where they do not.

Both are read once, side by side, in pieces of fixed size, so memory stays the same for any table. Equal
pieces cost one comparison by the C library; only pieces that differ are looked at row by row.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import compress, count

from tokaudit.contract import TableComparison, Tensor
from tokaudit.errors import FactMissing
from tokaudit.formats import limits
from tokaudit.sources import OpenFile, Source
from tokaudit.text import size

PIECE_BYTES = 2**18  # larger pieces take fresh pages from the kernel each time and are three times slower
ROWS_LISTED = 5


def compare_tables(
    source: Source, left: Tensor, right: Tensor, *, stop_early: bool = False
) -> TableComparison:
    """Compare two stored tables of one shape; with ``stop_early`` only up to the first row that differs.

    Raises FactMissing for tables that cannot be compared row by row, and Unreadable.
    """
    if left.shape != right.shape:
        raise FactMissing(f"{left.name} and {right.name} have different shapes")
    rows = left.shape[0] if left.shape else 1
    if left.dtype != right.dtype:
        return TableComparison(left, right, rows, (), None)
    if left.nbytes == 0:
        return TableComparison(left, right, 0, (), None)
    if left.nbytes > limits.TABLE_BYTES_COMPARED:
        raise FactMissing(f"{left.name} holds {size(left.nbytes)}, too much to compare")
    if left.nbytes % rows:
        raise FactMissing(f"the rows of {left.name} do not end at whole bytes")
    # Two descriptors even for one file: the kernel reads ahead separately for each.
    with source.open(left.file) as left_file, source.open(right.file) as right_file:
        pair = RowPair(left_file, left.start, right_file, right.start, rows, left.nbytes // rows)
        found, listed = _count(pair.differing(), stop_early)
        return TableComparison(
            left, right, found, listed, pair.largest_difference(listed, left.dtype), not stop_early
        )


class RowPair:
    """The rows of two stored tables, as bytes. Each table begins at an offset of its file."""

    def __init__(
        self, left: OpenFile, left_start: int, right: OpenFile, right_start: int, rows: int, row_bytes: int
    ) -> None:
        self.left = left
        self.left_start = left_start
        self.right = right
        self.right_start = right_start
        self.rows = rows
        self.row_bytes = row_bytes

    def differing(self) -> Iterator[Sequence[int]]:
        """The rows that differ, in order, a piece at a time."""
        if self.row_bytes > PIECE_BYTES:
            yield from ([row] for row in range(self.rows) if self._long_row_differs(row))
            return
        row = struct.Struct(f"{self.row_bytes}s")
        rows_per_piece = PIECE_BYTES // self.row_bytes
        for first in range(0, self.rows, rows_per_piece):
            rows = min(rows_per_piece, self.rows - first)
            left, right = self._read(first * self.row_bytes, rows * self.row_bytes)
            if left != right:
                differ = map(operator.ne, row.iter_unpack(left), row.iter_unpack(right))
                yield list(compress(count(first), differ))

    def row_differs(self, left: int, right: int) -> bool:
        """Whether one row of the left table differs from one of the right table."""
        ours = self.left.read(self.left_start + left * self.row_bytes, self.row_bytes)
        return ours != self.right.read(self.right_start + right * self.row_bytes, self.row_bytes)

    def largest_difference(self, rows: Sequence[int], dtype: str) -> float | None:
        """Largest absolute difference of two values in these rows, pairs with a NaN left out."""
        decode = _DECODERS.get(dtype)
        if decode is None or self.row_bytes > PIECE_BYTES:
            return None
        differences: list[float] = []
        for row in rows:
            left, right = self._read(row * self.row_bytes, self.row_bytes)
            differences += map(abs, map(operator.sub, decode(left), decode(right)))
        return max((value for value in differences if value == value), default=None)

    def _long_row_differs(self, row: int) -> bool:
        start, stop = row * self.row_bytes, (row + 1) * self.row_bytes
        pieces = (self._read(here, min(PIECE_BYTES, stop - here)) for here in range(start, stop, PIECE_BYTES))
        return any(left != right for left, right in pieces)

    def _read(self, offset: int, length: int) -> tuple[bytes, bytes]:
        return self.left.read(self.left_start + offset, length), self.right.read(
            self.right_start + offset, length
        )


def _count(pieces: Iterator[Sequence[int]], stop_early: bool) -> tuple[int, tuple[int, ...]]:
    """How many rows there are, and the first few."""
    found = 0
    listed: list[int] = []
    for rows in pieces:
        if stop_early:
            return 1, (rows[0],)
        found += len(rows)
        listed += rows[: ROWS_LISTED - len(listed)]
    return found, tuple(listed)


def _floats(code: str) -> Callable[[bytes], Sequence[float]]:
    width = struct.calcsize(f"<{code}")
    return lambda data: struct.unpack(f"<{len(data) // width}{code}", data)


def _bfloat16(data: bytes) -> Sequence[float]:
    """The upper half of a 32-bit float; the lower half is zero."""
    wide = bytearray(2 * len(data))
    wide[2::4] = data[0::2]
    wide[3::4] = data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", wide)


def _float8_e5m2(data: bytes) -> Sequence[float]:
    """The upper byte of a 16-bit float; the lower byte is zero."""
    wide = bytearray(2 * len(data))
    wide[1::2] = data
    return struct.unpack(f"<{len(data)}e", wide)


def _float8_e4m3(data: bytes) -> Sequence[float]:
    return [_e4m3_values()[byte] for byte in data]


@cache
def _e4m3_values() -> Sequence[float]:
    """Every value of OCP's E4M3: exponent bias 7, no infinity, NaN only with all bits set."""
    values: list[float] = []
    for byte in range(128):
        exponent, mantissa = byte >> 3, byte & 7
        scale = 2.0 ** (max(exponent, 1) - 7)
        values.append((mantissa / 8 + (exponent > 0)) * scale)
    values[127] = float("nan")
    return [*values, *(-value for value in values)]


_DECODERS: Mapping[str, Callable[[bytes], Sequence[float]]] = {
    "F64": _floats("d"),
    "F32": _floats("f"),
    "F16": _floats("e"),
    "BF16": _bfloat16,
    "F8_E4M3": _float8_e4m3,
    "F8_E5M2": _float8_e5m2,
}
