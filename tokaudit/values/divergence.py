"""How far two tables are apart, row by row, that some loader makes one."""

from __future__ import annotations

from array import array

import torch

from tokaudit.contract import Divergence
from tokaudit.errors import FactMissing
from tokaudit.values.stored import StoredTable


def divergence(left: StoredTable, right: StoredTable) -> Divergence:
    """One pass over both. Raises FactMissing for tables of different shapes, and Unreadable."""
    if (left.rows, left.hidden) != (right.rows, right.hidden):
        raise FactMissing(f"{left.table.name} and {right.table.name} have different shapes")
    distances = torch.empty(left.rows, dtype=torch.float64)
    relative = torch.empty(left.rows, dtype=torch.float64)
    working = torch.promote_types(left.working, right.working)
    with right.source.open(right.table.tensor.file) as file:

        def visit(first: int, chunk: torch.Tensor, raw: torch.Tensor) -> None:
            past = first + len(chunk)
            data = bytearray(len(chunk) * right.row_bytes)
            file.fill(right.table.tensor.start + first * right.row_bytes, memoryview(data))
            other = torch.frombuffer(data, dtype=right.dtype).view(len(chunk), right.hidden).to(working)
            ours = chunk.to(working)
            distance = torch.linalg.vector_norm(ours - other, dim=1).double()
            larger = torch.maximum(
                torch.linalg.vector_norm(ours, dim=1), torch.linalg.vector_norm(other, dim=1)
            ).double()
            distances[first:past] = distance
            relative[first:past] = torch.where(larger == 0, larger, distance / larger)

        left.scan(visit)
    return Divergence(left.table, right.table, array("d", distances.tolist()), array("d", relative.tolist()))
