"""Where new rows stand among the old ones: norms and the nearest tokens, in one pass over the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tokaudit.resize.rows import StoredRows

NEAREST = 3
_NOBODY = -2.0  # below every cosine


@dataclass(frozen=True, slots=True)
class Place:
    """``percentile`` is the share of used rows with a smaller norm; ``nearest`` are ids and cosines."""

    norm: float
    percentile: float
    nearest: tuple[tuple[int, float], ...]


def places(rows: StoredRows, ids: Sequence[int], *, most: int) -> list[Place]:
    """For each of these rows its norm among the used rows, and for the first ``most`` their neighbours.

    Used rows are old ones: a row is never its own neighbour, nor that of another new one.
    """
    values = rows.gather(ids)
    wanted = torch.nn.functional.normalize(values[:most], dim=1)
    best = torch.full((len(wanted), NEAREST), _NOBODY, dtype=rows.working)
    best_ids = torch.zeros(len(wanted), NEAREST, dtype=torch.long)
    norms: list[torch.Tensor] = []
    for first, chunk in rows.chunks():
        norm = torch.linalg.vector_norm(chunk, dim=1)
        used = rows.used[first : first + len(chunk)] & norm.isfinite() & (norm > 0)
        norms.append(norm[used])
        cosine = (wanted @ chunk.T) / norm
        cosine[:, ~used] = _NOBODY
        both = torch.cat([best, cosine], 1)
        numbers = torch.arange(first, first + len(chunk)).expand(len(wanted), -1)
        best, order = both.topk(NEAREST, dim=1)
        best_ids = torch.cat([best_ids, numbers], 1).gather(1, order)
    ordered = torch.cat(norms).sort().values
    own = torch.linalg.vector_norm(values, dim=1)
    below = torch.searchsorted(ordered, own).tolist()
    nearest = [
        tuple((id, cosine) for id, cosine in zip(*pair, strict=True) if cosine > _NOBODY)
        for pair in zip(best_ids.tolist(), best.tolist(), strict=True)
    ]
    nearest += [()] * (len(ids) - len(nearest))
    return [
        Place(norm, 100 * smaller / max(1, len(ordered)), near)
        for norm, smaller, near in zip(own.tolist(), below, nearest, strict=True)
    ]
