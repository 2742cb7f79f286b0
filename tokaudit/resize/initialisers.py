"""How a new row gets its values: pure functions in a table, in float32, rounded once when they are written.

Every initialiser takes the new row, the stored rows it may read and a seeded generator, and gives one row
[hidden]. Input rows come from input rows, output rows from output rows, a bias from the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tokaudit.resize.plan import NewRow
from tokaudit.resize.rows import StoredRows

Initialiser = Callable[[NewRow, StoredRows, torch.Generator], torch.Tensor]

# Scale of the covariance for `normal`. transformers takes 1e-9, which bfloat16 rounds away: most
# coordinates of two new rows come out bit-equal, and the tokens start indistinguishable.
NORMAL_SCALE = 1e-3


def mean(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """The mean of the used rows."""
    return rows.summary.mean


def mean_of_subwords(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """The mean of the rows of the token's pieces; the mean of the used rows where there is none."""
    if not row.pieces:
        return mean(row, rows, generator)
    return rows.gather([piece.id for piece in row.pieces]).mean(0)


def subword_mean_rescaled(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """The subword mean at the median norm: averaging m near-orthogonal rows shrinks it by 1/sqrt(m)."""
    start = mean_of_subwords(row, rows, generator)
    norm = float(torch.linalg.vector_norm(start))
    return start * (rows.summary.median_norm / norm) if norm > 0 else start


def weighted_subwords(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """Weights that rise along the pieces for input rows and fall for output rows.

    The input row must carry the state after the last piece, the output row must predict the first.
    """
    if not row.pieces:
        return mean(row, rows, generator)
    share = torch.tensor(weights("weighted-subwords", len(row.pieces), output_side=rows.output_side))
    return torch.matmul(share, rows.gather([piece.id for piece in row.pieces]))


def weights(method: str, pieces: int, *, output_side: bool) -> tuple[float, ...]:
    """The share of each of a token's pieces in its row; they add up to 1."""
    if method != "weighted-subwords":
        return (1.0 / pieces,) * pieces if pieces else ()
    total = pieces * (pieces + 1) / 2
    rising = tuple(place / total for place in range(1, pieces + 1))
    return rising[::-1] if output_side else rising


def normal(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """A sample of N(mean, scale * covariance) of the used rows."""
    factor = NORMAL_SCALE * rows.covariance
    jitter = 1e-6 * float(factor.diagonal().mean()) + 1e-30
    lower, _ = torch.linalg.cholesky_ex(factor + jitter * torch.eye(rows.hidden))
    return rows.summary.mean + torch.mv(lower, torch.randn(rows.hidden, generator=generator))


def zeros(row: NewRow, rows: StoredRows, generator: torch.Generator) -> torch.Tensor:
    """All zero. A zero output row has logit 0 and can win where the other logits are negative."""
    return torch.zeros(rows.hidden)


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
