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
    """By row the nearest of the ``candidates`` (bool [rows]), by cosine; one pass over the table.

    ``Neighbour.id`` is a row number here. Rows without a direction have no neighbours. Only the first
    MOST_ASKED rows are looked up.
    """
    rows = list(rows)[:MOST_ASKED]
    if not rows:
        return {}
    wanted = torch.nn.functional.normalize(table.gather(rows), dim=1)
    own = torch.tensor(rows)
    parts: list[tuple[torch.Tensor, torch.Tensor]] = []
    lock = threading.Lock()

    def visit(first: int, chunk: torch.Tensor, raw: torch.Tensor) -> None:
        norms = torch.linalg.vector_norm(chunk, dim=1)
        cosines = (wanted @ chunk.T) / norms
        usable = candidates[first : first + len(chunk)] & norms.isfinite() & (norms > 0)
        cosines[:, ~usable] = -torch.inf
        here = (own >= first) & (own < first + len(chunk))
        cosines[here, own[here] - first] = -torch.inf
        best = cosines.nan_to_num(nan=-torch.inf).topk(min(NEAREST, len(chunk)), dim=1)
        with lock:
            parts.append((best.values, best.indices + first))

    table.scan(visit)
    cosines, numbers = (torch.cat([part[i] for part in parts], 1) for i in (0, 1))
    best = cosines.topk(min(NEAREST, cosines.shape[1]), dim=1)
    return {
        row: tuple(
            Neighbour(id, cosine)
            for id, cosine in zip(ids, values, strict=True)
            if cosine > -2  # below every cosine: no candidate was left
        )
        for row, ids, values in zip(
            rows, numbers.gather(1, best.indices).tolist(), best.values.tolist(), strict=True
        )
    }
