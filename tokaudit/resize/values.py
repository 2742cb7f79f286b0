"""The stored bytes of new rows, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from tokaudit.resize.initialisers import INITIALISERS
from tokaudit.resize.plan import NewRow, Recipe, TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.resize.rows import StoredRows

PADDING_BIAS = -1e4  # a padding row must not win: far below any logit, and within float16
_BYTES_AT_ONCE = 8 << 20


@dataclass(frozen=True)
class RowValues:
    """What the new rows hold. ``seed`` makes sampled ones the same in every run, and in copies of a table."""

    rows: tuple[NewRow, ...]
    seed: int

    def blocks(self, edit: TensorEdit, stored: StoredRows) -> Iterator[tuple[int, bytes]]:
        """(first row, bytes) of everything that is to be written into the edited table.

        Raises Refused for a row that would not be finite.
        """
        for batch in _batches(self.rows, stored.row_bytes):
            for method, group in groupby(batch, lambda row: _recipe(row, edit).method):
                members = list(group)
                values = INITIALISERS[method](
                    [_recipe(row, edit) for row in members], stored, [self._seed(row) for row in members]
                )
                data = _encoded(values, stored, [f"{row.id} of {edit.table.name}" for row in members])
                yield from _runs([row.id for row in members], data, stored.row_bytes)
        yield from self._padding(edit, stored)

    def _seed(self, row: NewRow) -> int:
        return (self.seed * 1_000_003 + row.id) % 2**63

    def _padding(self, edit: TensorEdit, stored: StoredRows) -> Iterator[tuple[int, bytes]]:
        """Rows that no new token has."""
        taken = [row.id for row in self.rows if row.id >= edit.table.rows]
        gaps = [
            range(past + 1, following)
            for past, following in zip([edit.table.rows - 1, *taken], [*taken, edit.rows_after], strict=True)
            if past + 1 < following
        ]
        if not gaps:
            return
        one = _encoded(_padding_row(edit, stored)[None], stored, [f"padding of {edit.table.name}"])
        most = max(1, _BYTES_AT_ONCE // stored.row_bytes)
        for gap in gaps:
            for first in range(gap.start, gap.stop, most):
                yield first, one * min(most, gap.stop - first)


def _recipe(row: NewRow, edit: TensorEdit) -> Recipe:
    return row.output if edit.output_side else row.input


def _padding_row(edit: TensorEdit, stored: StoredRows) -> torch.Tensor:
    if edit.filler is not None:
        return stored.gather([edit.filler])[0]
    if stored.is_bias:
        return torch.full((stored.hidden,), PADDING_BIAS)
    return stored.summary.mean


def _batches(rows: Sequence[NewRow], row_bytes: int) -> Iterator[Sequence[NewRow]]:
    most = max(1, _BYTES_AT_ONCE // row_bytes)
    for first in range(0, len(rows), most):
        yield rows[first : first + most]


def _encoded(values: torch.Tensor, stored: StoredRows, names: Sequence[str]) -> bytes:
    """Rounded to the stored dtype, once."""
    rounded = values.to(stored.dtype).contiguous()
    finite = rounded.isfinite().all(1)
    if not finite.all():
        name = names[int(finite.logical_not().nonzero()[0])]
        raise Refused(f"row {name} would not be finite: a row that it is made from is not, or is too large")
    return _bytes(rounded)


def _bytes(values: torch.Tensor) -> bytes:
    data = bytearray(values.numel() * values.element_size())
    if data:
        torch.frombuffer(data, dtype=values.dtype).copy_(values.flatten())
    return bytes(data)


def _runs(ids: Sequence[int], data: bytes, row_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Cut the rows' bytes where their ids do not follow each other."""
    for _, group in groupby(enumerate(ids), lambda member: member[1] - member[0]):
        members = list(group)
        (start, first), stop = members[0], members[-1][0] + 1
        yield first, data[start * row_bytes : stop * row_bytes]
