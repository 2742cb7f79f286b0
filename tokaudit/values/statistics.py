"""One pass over a table: norms, largest values, what is not finite, a checksum, sums, and projections."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import torch

from tokaudit.values.stored import StoredTable

_ARRAYS = {torch.float64: "d", torch.int16: "H"}
_SAFE = (1e-15, 1e18)  # norms between these were computed without underflow or overflow in float32


def as_array(values: torch.Tensor) -> array[Any]:
    """The numbers of a tensor (float64, or int16 of numbers that are not negative), which is not empty."""
    kind = _ARRAYS[values.dtype]
    numbers: array[Any] = array(kind, bytes(values.nbytes))
    torch.frombuffer(numbers, dtype=values.dtype).copy_(values)
    return numbers


class Statistics:
    """Numbers for each row of one table.

    ``norms`` and ``largest`` are float64 [rows] (NaN for a row that is not finite); ``checksums`` int64
    [rows], equal for rows of equal bytes; ``non_finite`` counts by row. ``projections`` [rows, k] are the
    products with the given directions [k, hidden]. ``mean`` [hidden] is that of the finite rows that
    ``counted`` (bool [rows]) marks, ``mean_of_all`` that of all finite rows; both float64.
    """

    def __init__(self, table: StoredTable, counted: torch.Tensor, directions: torch.Tensor) -> None:
        rows = table.rows
        self.norms = torch.empty(rows, dtype=torch.float64)
        self.largest = torch.empty(rows, dtype=torch.float64)
        self.checksums = torch.empty(rows, dtype=torch.int64)
        self.projections = torch.empty(rows, len(directions), dtype=torch.float64)
        self.non_finite: dict[int, int] = {}
        self._directions = directions.to(table.working)
        self._weights = counted.to(table.working)
        self._word = next(
            dtype
            for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8)
            if table.row_bytes % dtype.itemsize == 0
        )
        self._sums = torch.zeros(2, table.hidden, dtype=torch.float64)
        self._rows = torch.zeros(2)
        self._lock = threading.Lock()

    @property
    def mean(self) -> torch.Tensor:
        return self._sums[0] / max(1.0, float(self._rows[0]))

    @property
    def mean_of_all(self) -> torch.Tensor:
        return self._sums.sum(0) / max(1.0, float(self._rows.sum()))

    def visit(self, first: int, chunk: torch.Tensor, raw: torch.Tensor) -> None:
        """Take in a chunk: the rows as numbers [n, hidden] (changed where not finite) and their bytes."""
        past = first + len(chunk)
        self.checksums[first:past] = raw.view(self._word).sum(1, dtype=torch.int64)
        largest = torch.maximum(chunk.amax(1), -chunk.amin(1))
        finite = largest.isfinite()
        if not finite.all():
            self._take_out(first, chunk, ~finite)
            largest[~finite] = torch.nan
        norms = torch.linalg.vector_norm(chunk, dim=1).double()
        unsafe = (largest > 0) & ~((norms > _SAFE[0]) & (norms < _SAFE[1]))
        if unsafe.any():
            scale = largest[unsafe].double()
            norms[unsafe] = torch.linalg.vector_norm(chunk[unsafe].double() / scale[:, None], dim=1) * scale
        norms[~finite] = torch.nan
        self.norms[first:past] = norms
        self.largest[first:past] = largest
        for place, direction in enumerate(self._directions):
            self.projections[first:past, place] = torch.mv(chunk, direction)
        self._add(chunk, self._weights[first:past], finite)

    def _take_out(self, first: int, chunk: torch.Tensor, bad: torch.Tensor) -> None:
        """Count the values of these rows that are not finite, and let the rows be zero."""
        counts = chunk[bad].isfinite().logical_not().sum(1).tolist()
        with self._lock:
            rows = (first + bad.nonzero().flatten()).tolist()
            self.non_finite.update(zip(rows, counts, strict=True))
        chunk[bad] = 0

    def _add(self, chunk: torch.Tensor, weights: torch.Tensor, finite: torch.Tensor) -> None:
        sums = torch.zeros_like(self._sums)
        others = 1 - weights
        sums[0] = weights @ chunk
        if others.any():
            sums[1] = others @ chunk
        rows = torch.stack([(weights * finite).sum(), (others * finite).sum()])
        with self._lock:
            self._sums += sums
            self._rows += rows
