"""How near the output rows are to those of tokens that are known to be unused.

The indicators are those of Land and Bartolo, "Fishing for Magikarp" (2024). They are worked out from
products with three directions, so that one pass over the table is enough; docs/values.md says where they
differ from the publication.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_ROWS_AT_ONCE = 32  # they stay in the processor's cache between the two products of a step
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
    sample = table.gather(_spread(used, SAMPLED))
    sample = sample[_largest(sample).isfinite()]
    rows = table.gather(_spread(known.nonzero().flatten(), MOST_KNOWN))
    largest = _largest(rows)
    rows = rows[largest.isfinite() & (largest > 0)]
    if len(used):
        rows = rows[(rows != table.gather([int(used[-1])])).any(1)]
    if len(rows) < LEAST_KNOWN:
        return Missing("fewer than three rows are known to be unused: padding, holes, reserved names")
    if not len(sample):
        return Missing("no row is in use")
    rows = rows.double()
    return Reference(rows, rows.mean(0), _mean(sample), _first_component(sample))


@dataclass(frozen=True, slots=True)
class _Mean:
    """The products of a mean with itself, the centre and the component: one number, or one for each row."""

    square: torch.Tensor
    centre: torch.Tensor
    along: torch.Tensor


def indicators(
    reference: Reference, norms: torch.Tensor, products: torch.Tensor, judged: torch.Tensor
) -> Indicators | Missing:
    """``products`` [rows, 3] are those with the reference's directions, ``judged`` marks the rows in use."""
    mean = _Mean(*(reference.directions @ reference.mean_of_known))
    rows = _indicators(mean, reference, norms, products)
    known = _indicators(*_known(reference, mean))
    cosine, centred, without, distance = map(as_array, rows)
    for place, name in ((0, "cosine"), (2, "without_component")):
        level = SLACK * float(known[place].quantile(LEVEL)) + ROUNDING
        near = rows[place][judged] <= level
        if len(near) and float(near.double().mean()) < MOST_BELOW:
            n = len(reference.known)
            return Indicators(n, cosine, centred, without, distance, name, level)
    return Missing("the rows that are known to be unused do not stand apart from those in use")


def _known(reference: Reference, mean: _Mean) -> tuple[_Mean, Reference, torch.Tensor, torch.Tensor]:
    """Each known row against the mean of the others: its own share of the mean would draw it near.

    That mean is (n * mean - row) / (n - 1), and its products follow from those of the two.
    """
    n = len(reference.known)
    norms = torch.linalg.vector_norm(reference.known, dim=1)
    products = reference.known @ reference.directions.T
    with_mean, with_centre, along = products.unbind(1)
    others = _Mean(
        (n * n * mean.square - 2 * n * with_mean + norms**2) / (n - 1) ** 2,
        (n * mean.centre - with_centre) / (n - 1),
        (n * mean.along - along) / (n - 1),
    )
    with_others = (n * with_mean - norms**2) / (n - 1)
    return others, reference, norms, torch.stack([with_others, with_centre, along], 1)


def _indicators(
    mean: _Mean, reference: Reference, norms: torch.Tensor, products: torch.Tensor
) -> list[torch.Tensor]:
    """Cosine distances plain, centred and without the first component, and the L2 distance; each [rows].

    ``products`` [rows, 3] are those of the rows with the mean, the centre and the component.
    """
    with_known, with_centre, along = products.unbind(1)
    squares, centre = norms**2, reference.mean @ reference.mean
    plain = _distance(with_known, squares, mean.square)
    centred = _distance(
        with_known - with_centre - mean.centre + centre,
        squares - 2 * with_centre + centre,
        mean.square - 2 * mean.centre + centre,
    )
    without = _distance(with_known - along * mean.along, squares - along**2, mean.square - mean.along**2)
    return [plain, centred, without, (squares - 2 * with_known + mean.square).clamp(min=0).sqrt()]


def _distance(product: torch.Tensor, squares: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
    norms = (squares.clamp(min=0) * square.clamp(min=0)).sqrt()
    return torch.where(norms > _LEAST_NORM, 1 - product / norms, torch.nan)


def _first_component(rows: torch.Tensor) -> torch.Tensor:
    """The direction [hidden] that most of the rows' squares lie along, in float64, by power iteration.

    It settles in the type of the rows, which is the faster one; the last step is made in float64.
    """
    scaled = rows / _largest(rows).amax().clamp(min=torch.finfo(rows.dtype).tiny)
    parts = torch.split(scaled, _ROWS_AT_ONCE)
    direction: torch.Tensor = scaled.sum(0) + scaled[0]
    for _ in range(_STEPS):
        direction = _onward(parts, _unit(direction))
    return _unit(_onward(parts, _unit(direction.double())))


def _onward(parts: Sequence[torch.Tensor], unit: torch.Tensor) -> torch.Tensor:
    """The product of the vector with the rows, and of that with the rows again, in the vector's type."""
    result = torch.zeros_like(unit)
    for part in parts:
        part = part.to(unit.dtype)
        result.addmv_(part.T, part @ unit)
    return result


def _mean(rows: torch.Tensor) -> torch.Tensor:
    """That of the rows [hidden], in float64."""
    sums = (part.double().sum(0) for part in torch.split(rows, _ROWS_AT_ONCE))
    return sum(sums, torch.zeros(rows.shape[1], dtype=torch.float64)) / len(rows)


def _unit(vector: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vector, dim=0)


def _spread(rows: torch.Tensor, most: int) -> list[int]:
    """At most so many of them, at even distances."""
    step = max(1, -(-len(rows) // most))
    return [int(row) for row in rows[::step]]


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """The largest absolute value of each row [n]; not finite where one of its values is not."""
    return torch.maximum(rows.amax(1), -rows.amin(1))
