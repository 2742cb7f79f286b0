"""How near the output rows are to those of tokens that are known to be unused.

The indicators are those of Land and Bartolo, "Fishing for Magikarp" (2024). They are worked out from
products with three directions, so that one pass over the table is enough; docs/values.md says where they
differ from the publication.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tokaudit.contract import Indicators, Missing
from tokaudit.values.statistics import as_array
from tokaudit.values.stored import StoredTable

LEAST_KNOWN = 3  # known rows, to tell their direction from chance
MOST_KNOWN = 2048
SAMPLED = 2048  # rows in use that the mean and the first component are estimated from
LEVEL, SLACK = 0.95, 1.5
MOST_BELOW = 0.25  # of the rows in use: if more are that near to the known rows, nearness says nothing
ROUNDING = 1e-6  # products are made in float32
_STEPS = 30
_LEAST_NORM = 1e-30


@dataclass(frozen=True)
class Reference:
    """The known rows [n, hidden], and what rows are compared with: each vector is [hidden], in float64."""

    known: torch.Tensor
    mean_of_known: torch.Tensor
    mean: torch.Tensor
    component: torch.Tensor

    @property
    def directions(self) -> torch.Tensor:
        return torch.stack([self.mean_of_known, self.mean, self.component])


def reference(table: StoredTable, known: torch.Tensor, in_use: torch.Tensor) -> Reference | Missing:
    """``known`` and ``in_use`` are bool [rows]: unused for certain, and belonging to a token.

    Zero rows have no direction. Padding that repeats the last row in use is a copy of a trained one.
    """
    used = in_use.nonzero().flatten()
    sample = _finite(table.gather(_spread(used, SAMPLED)))
    rows = _finite(table.gather(_spread(known.nonzero().flatten(), MOST_KNOWN))).double()
    rows = rows[(rows != 0).any(1)]
    if len(used):
        last = table.gather([int(used[-1])]).double()
        rows = rows[(rows != last).any(1)]
    if len(rows) < LEAST_KNOWN:
        return Missing("fewer than three rows are known to be unused: padding, holes, reserved names")
    if not len(sample):
        return Missing("no row is in use")
    mean = sample.mean(0, dtype=torch.float64)
    return Reference(rows, rows.mean(0), mean, _first_component(sample))


def indicators(
    reference: Reference, norms: torch.Tensor, products: torch.Tensor, judged: torch.Tensor
) -> Indicators | Missing:
    """``products`` [rows, 3] are those with the reference's directions, ``judged`` marks the rows in use."""
    rows = _indicators(reference.mean_of_known, reference, norms, products)
    n = len(reference.known)
    # Each known row against the mean of the others: its own share of the mean would draw it near.
    others = (n * reference.mean_of_known - reference.known) / (n - 1)
    products = torch.stack(
        [
            (reference.known * others).sum(1),
            reference.known @ reference.mean,
            reference.known @ reference.component,
        ],
        1,
    )
    known = _indicators(others, reference, reference.known.norm(dim=1), products)
    cosine, centred, without, distance = map(as_array, rows)
    for place, name in ((0, "cosine"), (2, "without_component")):
        level = SLACK * float(known[place].quantile(LEVEL)) + ROUNDING
        near = rows[place][judged] <= level
        if len(near) and float(near.double().mean()) < MOST_BELOW:
            return Indicators(n, cosine, centred, without, distance, name, level)
    return Missing("the rows that are known to be unused do not stand apart from those in use")


def _indicators(
    mean: torch.Tensor, reference: Reference, norms: torch.Tensor, products: torch.Tensor
) -> list[torch.Tensor]:
    """Cosine distances plain, centred and without the first component, and the L2 distance; each [rows].

    ``mean`` is one of known rows for all [hidden], or one for each row [rows, hidden].
    """
    with_known, with_mean, along = products.unbind(1)
    squares, square = norms**2, (mean * mean).sum(-1)
    centre, component = reference.mean, reference.component
    own_along, own_centre = mean @ component, mean @ centre
    plain = _distance(with_known, squares, square)
    centred = _distance(
        with_known - with_mean - own_centre + centre @ centre,
        squares - 2 * with_mean + centre @ centre,
        square - 2 * own_centre + centre @ centre,
    )
    without = _distance(with_known - along * own_along, squares - along**2, square - own_along**2)
    return [plain, centred, without, (squares - 2 * with_known + square).clamp(min=0).sqrt()]


def _distance(product: torch.Tensor, squares: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
    norms = (squares.clamp(min=0) * square.clamp(min=0)).sqrt()
    return torch.where(norms > _LEAST_NORM, 1 - product / norms, torch.nan)


def _first_component(rows: torch.Tensor) -> torch.Tensor:
    """The direction [hidden] that most of the rows' squares lie along, in float64, by power iteration.

    It settles in the type of the rows, which is the faster one, and is polished in float64.
    """
    scaled = rows / _largest(rows).amax().clamp(min=torch.finfo(rows.dtype).tiny)
    direction: torch.Tensor = scaled.sum(0) + scaled[0]
    for _ in range(_STEPS):
        direction = scaled.T @ (scaled @ _unit(direction))
    precise = scaled.double()
    return _unit(precise.T @ (precise @ _unit(direction.double())))


def _unit(vector: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vector, dim=0)


def _spread(rows: torch.Tensor, most: int) -> list[int]:
    """At most so many of them, at even distances."""
    step = max(1, -(-len(rows) // most))
    return [int(row) for row in rows[::step]]


def _finite(rows: torch.Tensor) -> torch.Tensor:
    return rows[_largest(rows).isfinite()]


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """The largest absolute value of each row [n]; not finite where one of its values is not."""
    return torch.maximum(rows.amax(1), -rows.amin(1))
