"""The nearest tokens of some rows: those whose rows point in the most similar direction."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from tokaudit.contract import Neighbour
from tokaudit.values.stored import StoredTable

NEAREST = 3
MOST_ASKED = 256  # rows at once: each chunk is multiplied with all of them


def nearest(
    table: StoredTable, rows: Sequence[int], candidates: torch.Tensor
) -> dict[int, tuple[Neighbour, ...]]:
    """By row the nearest of the ``candidates``, in one pass over the table; see `Nearest`."""
    if not rows:
        return {}
    search = Nearest(table, rows, candidates)
    table.scan(search.visit)
    return search.found


class Nearest:
    """By row the nearest of the ``candidates`` (bool [rows]), by cosine, once every chunk was visited.

    ``Neighbour.id`` is a row number here. Rows without a direction have no neighbours. Only the first
    MOST_ASKED rows are looked up.
    """

    def __init__(self, table: StoredTable, rows: Sequence[int], candidates: torch.Tensor) -> None:
        self._rows = list(rows)[:MOST_ASKED]
        self._own = torch.tensor(self._rows)
        wanted = table.gather(self._rows)
        self._wanted = wanted / torch.linalg.vector_norm(wanted, dim=1, keepdim=True)  # NaN: no direction
        self._candidates = candidates
        self._parts: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._lock = threading.Lock()

    def visit(self, first: int, chunk: torch.Tensor, raw: torch.Tensor) -> None:
        norms = torch.linalg.vector_norm(chunk, dim=1)
        cosines = (self._wanted @ chunk.T) / norms
        usable = self._candidates[first : first + len(chunk)] & norms.isfinite() & (norms > 0)
        cosines[:, ~usable] = -torch.inf
        here = (self._own >= first) & (self._own < first + len(chunk))
        cosines[here, self._own[here] - first] = -torch.inf
        best = cosines.nan_to_num(nan=-torch.inf).topk(min(NEAREST, len(chunk)), dim=1)
        with self._lock:
            self._parts.append((best.values, best.indices + first))

    @property
    def found(self) -> dict[int, tuple[Neighbour, ...]]:
        cosines, numbers = (torch.cat([part[i] for part in self._parts], 1) for i in (0, 1))
        best = cosines.topk(min(NEAREST, cosines.shape[1]), dim=1)
        ids = numbers.gather(1, best.indices)
        return {
            row: tuple(
                Neighbour(id, cosine)
                for id, cosine in zip(nearest_ids, nearest_cosines, strict=True)
                if cosine > -2  # below every cosine: no candidate was left
            )
            for row, nearest_ids, nearest_cosines in zip(
                self._rows, ids.tolist(), best.values.tolist(), strict=True
            )
        }
