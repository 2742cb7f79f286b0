"""How new rows get their values: pure functions in a table. Sums in float32, rounded once when written.

Every initialiser takes the recipes of some new rows, the stored rows that it may read, and a seed for each
new row; it gives the values [number of recipes, hidden]. Input rows come from input rows, output rows from
output rows, a bias from the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from tokaudit.resize.plan import Recipe
from tokaudit.resize.rows import StoredRows

Initialiser = Callable[[Sequence[Recipe], StoredRows, Sequence[int]], torch.Tensor]

# Scale of the covariance for `normal`. transformers takes 1e-9, which bfloat16 rounds away: most
# coordinates of two new rows come out bit-equal, and the tokens start indistinguishable.
NORMAL_SCALE = 1e-3


def mean(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """The mean of the used rows."""
    return rows.summary.mean.expand(len(recipes), -1)


def zeros(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """All zero. A zero output row has logit 0 and wins where the other logits are negative."""
    return torch.zeros(len(recipes), rows.hidden)


def mean_of_subwords(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """The mean of the rows of the token's pieces; the mean of the used rows where there is none."""
    return torch.stack([_of_pieces(recipe, rows) for recipe in recipes])


def _of_pieces(recipe: Recipe, rows: StoredRows) -> torch.Tensor:
    if not recipe.pieces:
        return rows.summary.mean
    return rows.gather([piece.id for piece in recipe.pieces]).mean(0)


def subword_mean_rescaled(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """The subword mean at the median norm: averaging m near-orthogonal rows shrinks it by 1/sqrt(m).

    A bias has no direction to keep: its mean stays.
    """
    values = mean_of_subwords(recipes, rows, seeds)
    if rows.is_bias:
        return values
    norms = torch.linalg.vector_norm(values, dim=1, keepdim=True)
    return torch.where(norms > 0, values * (rows.summary.median_norm / norms), values)


def weighted_subwords(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """The pieces by their weights: `Recipe.weights` has them, and the reason."""
    return torch.stack([_weighted(recipe, rows) for recipe in recipes])


def _weighted(recipe: Recipe, rows: StoredRows) -> torch.Tensor:
    if not recipe.pieces:
        return rows.summary.mean
    shares = torch.tensor(recipe.weights(output_side=rows.output_side), dtype=rows.working)
    weighted: torch.Tensor = shares @ rows.gather([piece.id for piece in recipe.pieces])
    return weighted


def normal(recipes: Sequence[Recipe], rows: StoredRows, seeds: Sequence[int]) -> torch.Tensor:
    """Samples of N(mean, scale * covariance) of the used rows.

    The covariance is never formed: with independent standard normal numbers z, one for each of n centred rows
    X, the sum of z X / sqrt(n - 1) has exactly the covariance of X. One pass over the table makes them all.
    """
    summary = rows.summary
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    total = torch.zeros(len(recipes), rows.hidden, dtype=torch.float64)
    for first, chunk in rows.chunks():
        counted = summary.counted[first : first + len(chunk)]
        noise = torch.stack([torch.randn(len(chunk), generator=each) for each in generators])
        chunk -= summary.mean
        chunk[~counted] = 0
        total += noise.to(rows.working) @ chunk
    scale = math.sqrt(NORMAL_SCALE / max(1, int(summary.counted.sum()) - 1))
    return summary.mean + total.to(rows.working) * scale


INITIALISERS: Mapping[str, Initialiser] = {
    "mean-of-subwords": mean_of_subwords,
    "mean": mean,
    "subword-mean-rescaled": subword_mean_rescaled,
    "weighted-subwords": weighted_subwords,
    "normal": normal,
    "zeros": zeros,
    "copy": mean_of_subwords,  # its one piece is the token that is copied
    "description": mean_of_subwords,  # its pieces are those of the description
}
