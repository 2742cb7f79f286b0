"""Where new rows stand among the old ones: norms and the nearest tokens, in one pass over the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tokaudit.contract import Neighbour
from tokaudit.values.neighbours import Nearest
from tokaudit.values.stored import StoredTable


@dataclass(frozen=True, slots=True)
class Place:
    """``percentile`` is the share of used rows with a smaller norm; ``nearest`` are used rows."""

    norm: float
    percentile: float
    nearest: tuple[Neighbour, ...]


def places(table: StoredTable, ids: Sequence[int], used: torch.Tensor) -> Mapping[int, Place]:
    """By id the place of these rows among the ``used`` ones (bool [rows]), to which they do not belong.

    Neighbours are looked for up to a number of rows, `tokaudit.values.neighbours.MOST_ASKED`.
    """
    norms = torch.empty(table.rows, dtype=table.working)

    def measure(first: int, chunk: torch.Tensor, raw: torch.Tensor) -> None:
        norms[first : first + len(chunk)] = torch.linalg.vector_norm(chunk, dim=1)

    search = Nearest(table, ids, used)
    table.scan(measure, search.visit)
    ordered = norms[used & norms.isfinite() & (norms > 0)].sort().values
    own = norms[list(ids)]
    below = torch.searchsorted(ordered, own) * (100 / max(1, len(ordered)))
    found = search.found
    return {
        id: Place(norm, percentile, found.get(id, ()))
        for id, norm, percentile in zip(ids, own.tolist(), below.tolist(), strict=True)
    }
