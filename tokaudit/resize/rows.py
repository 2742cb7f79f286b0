"""Rows of a stored table as numbers, without ever holding the table: single ones, or all in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tokaudit.contract import Table, TableKind
from tokaudit.sources import OpenFile
from tokaudit.values.stored import CHUNK_BYTES, DTYPES, gather, working


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
        return DTYPES[self.table.tensor.dtype]

    @property
    def working(self) -> torch.dtype:
        return working(self.dtype)

    @cached_property
    def row_bytes(self) -> int:
        return self.table.tensor.nbytes // self.table.rows

    @property
    def hidden(self) -> int:
        return self.row_bytes // self.dtype.itemsize

    @property
    def is_bias(self) -> bool:
        return self.table.kind is TableKind.BIAS

    def gather(self, ids: Sequence[int]) -> torch.Tensor:
        """The rows with these ids [len(ids), hidden]."""
        return gather(self.file, self.table.tensor.start, ids, self.hidden, self.dtype)

    def chunks(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(first row, [n, hidden]) over the whole table; each chunk is the caller's until the next one.

        All chunks use the same memory: fresh memory for each would cost more than reading it, and leave holes
        in the heap that add up to a good part of the table.
        """
        step = min(self.table.rows, max(1, CHUNK_BYTES // self.row_bytes))
        data = bytearray(step * self.row_bytes)
        stored = torch.frombuffer(data, dtype=self.dtype).view(step, self.hidden)
        numbers = torch.empty(step, self.hidden, dtype=self.working)
        for first in range(0, self.table.rows, step):
            rows = min(step, self.table.rows - first)
            window = memoryview(data)[: rows * self.row_bytes]
            self.file.fill(self.table.tensor.start + first * self.row_bytes, window)
            numbers[:rows].copy_(stored[:rows])
            yield first, numbers[:rows]

    @cached_property
    def summary(self) -> RowSummary:
        """Mean and norms of the used rows: one pass.

        Rows that are not finite are left out, and zero ones: they were never trained. In a bias zero is a
        value like any other.
        """
        total = torch.zeros(self.hidden, dtype=torch.float64)
        norms = torch.empty(self.table.rows)
        counted = torch.zeros(self.table.rows, dtype=torch.bool)
        for first, rows in self.chunks():
            past = first + len(rows)
            norm = torch.linalg.vector_norm(rows, dim=1)
            norms[first:past] = norm
            counted[first:past] = self.used[first:past] & norm.isfinite() & ((norm > 0) | self.is_bias)
            rows[~counted[first:past]] = 0
            total += rows.sum(0, dtype=torch.float64)
        count = max(1, int(counted.sum()))
        median = float(norms[counted].median()) if counted.any() else 0.0
        return RowSummary((total / count).to(self.working), counted, median)


@dataclass(frozen=True)
class RowSummary:
    """``mean`` [hidden] and ``median_norm`` are those of the ``counted`` rows, bool [rows]."""

    mean: torch.Tensor
    counted: torch.Tensor
    median_norm: float


def used_rows(rows: int, token_ids: Sequence[int]) -> torch.Tensor:
    """bool [rows]: rows of the tokens; all rows where no token is known."""
    known = [id for id in token_ids if id < rows]
    mask = torch.full((rows,), not known)
    mask[known] = True
    return mask
