"""Rows of a stored table as float32, without ever holding the table: single ones, or all in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tokaudit.contract import DTYPE_BITS, Table
from tokaudit.sources import OpenFile

# How safetensors' dtype names are called in torch. Integer and packed tables have no rows to average.
TORCH_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class StoredRows:
    """The rows of one table in its file, vocabulary first: [rows, hidden]; a bias is [rows, 1].

    A [1, rows] tensor (``final_logits_bias``) has one value per row as well. ``used`` marks the rows that
    belong to a token: padding rows and holes do not count for means and norms.
    """

    file: OpenFile
    table: Table
    used: torch.Tensor  # bool [rows]
    output_side: bool

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.table.tensor.dtype]

    @property
    def hidden(self) -> int:
        return self.row_bytes * 8 // DTYPE_BITS[self.table.tensor.dtype]

    @property
    def row_bytes(self) -> int:
        return self.table.tensor.nbytes // self.table.rows

    def raw(self, first: int, past: int) -> bytes:
        """The stored bytes of rows first .. past - 1."""
        start = self.table.tensor.start + first * self.row_bytes
        return self.file.read(start, (past - first) * self.row_bytes)

    def gather(self, ids: Sequence[int]) -> torch.Tensor:
        """The rows with these ids as float32 [len(ids), hidden]."""
        data = bytearray().join(self.raw(id, id + 1) for id in ids)
        return self._decoded(data)

    def chunks(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, float32 [n, hidden]) over the whole table, a few MB at a time."""
        step = max(1, _CHUNK_BYTES // self.row_bytes)
        for first in range(0, self.table.rows, step):
            past = min(first + step, self.table.rows)
            yield first, self._decoded(bytearray(self.raw(first, past)))

    def _decoded(self, data: bytearray) -> torch.Tensor:
        if not data:
            return torch.empty(0, self.hidden)
        return torch.frombuffer(data, dtype=self.dtype).view(-1, self.hidden).to(torch.float32)

    @cached_property
    def summary(self) -> RowSummary:
        """Mean and norms of the used rows: one pass. Zero rows and rows that are not finite are left out."""
        total = torch.zeros(self.hidden, dtype=torch.float64)
        norms = torch.empty(self.table.rows)
        counted = torch.zeros(self.table.rows, dtype=torch.bool)
        for first, rows in self.chunks():
            norm = torch.linalg.vector_norm(rows, dim=1)
            past = first + len(rows)
            norms[first:past] = norm
            counted[first:past] = self.used[first:past] & torch.isfinite(norm) & (norm > 0)
            total += rows[counted[first:past]].sum(0, dtype=torch.float64)
        count = int(counted.sum())
        if count == 0:
            return RowSummary(torch.zeros(self.hidden), norms, counted, 0.0)
        mean = (total / count).to(torch.float32)
        return RowSummary(mean, norms, counted, float(norms[counted].median()))

    @cached_property
    def covariance(self) -> torch.Tensor:
        """Covariance of the used rows, float32 [hidden, hidden]: a second pass."""
        summary = self.summary
        total = torch.zeros(self.hidden, self.hidden)
        for first, rows in self.chunks():
            centred = rows[summary.counted[first : first + len(rows)]] - summary.mean
            total += centred.T @ centred
        return total / max(1, int(summary.counted.sum()) - 1)


@dataclass(frozen=True)
class RowSummary:
    """``mean`` [hidden] and ``norms`` [rows] as float32; ``counted`` bool [rows]."""

    mean: torch.Tensor
    norms: torch.Tensor
    counted: torch.Tensor
    median_norm: float

    def percentile(self, norm: float) -> float:
        """Share of the used rows whose norm is below this one, in percent."""
        used = self.norms[self.counted]
        return 100.0 * float((used < norm).sum()) / max(1, len(used))
