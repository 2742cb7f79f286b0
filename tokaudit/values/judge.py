"""What is odd about each row: the numbers of one table, and the limits that they are held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from tokaudit.contract import Contract, Indicators, Missing, RowClass, Table, TableKind
from tokaudit.values.statistics import Statistics
from tokaudit.values.stored import StoredTable

NEAR_ZERO = 5e-3  # of the typical norm: weight decay without gradients leaves less, training does not
OUTLIER_SPREADS, OUTLIER_FACTOR = 8.0, 3.0
SMALL_SPREADS, SMALL_FACTOR = 5.0, 2.0
LEAST_KNOWN, LEVEL, SLACK, MOST_BELOW = 3, 0.95, 1.25, 0.25  # as in values/unused.py, for norms


@dataclass(frozen=True)
class Measured:
    """One table, measured. ``purpose`` holds the value of a RowClass for each row (int16 [rows]).

    ``same`` are groups of rows of the same bytes; row numbers, not ids, here and everywhere in this package.
    """

    contract: Contract
    stored: StoredTable
    ids: range
    purpose: torch.Tensor
    statistics: Statistics
    same: Sequence[tuple[int, ...]]
    near: Indicators | Missing

    def marked(self, wanted: RowClass) -> torch.Tensor:
        """bool [rows]: rows of these purposes."""
        return (self.purpose & wanted.value) != 0

    @cached_property
    def judged(self) -> torch.Tensor:
        """bool [rows]: rows in use; all of them where no tokenizer tells. Finite, and not zero."""
        in_use = self.marked(RowClass.IN_USE)
        norms = self.statistics.norms
        return (in_use if in_use.any() else torch.ones_like(in_use)) & (norms > 0)

    @cached_property
    def typical(self) -> float:
        """The median norm of the judged rows; 0 where there is none."""
        norms = self.statistics.norms[self.judged]
        return float(norms.median()) if len(norms) else 0.0

    @cached_property
    def spread(self) -> float:
        """The robust standard deviation of the logarithms of their norms."""
        if not self.typical:
            return 0.0
        logarithms = (self.statistics.norms[self.judged] / self.typical).log()
        return 1.4826 * float(logarithms.abs().median())

    @cached_property
    def dead(self) -> torch.Tensor:
        """bool [rows]: rows that are zero or next to it."""
        share = min(NEAR_ZERO, math.exp(-OUTLIER_SPREADS * self.spread))
        return (self.statistics.norms < share * self.typical) | (self.statistics.largest == 0)

    @cached_property
    def alive(self) -> torch.Tensor:
        """bool [rows]: judged rows with a direction to speak of."""
        return self.judged & ~self.dead


def gives_logits(contract: Contract, stored: StoredTable) -> bool:
    """Whether the table is the output table, or is used as one under a tie."""
    return stored.table.kind is TableKind.OUTPUT or (stored.table.kind is TableKind.INPUT and tied(contract))


def tied(contract: Contract) -> bool:
    tie = contract.embeddings.tie_or
    return not isinstance(tie, Missing) and tie.tied


def _untied(contract: Contract) -> bool:
    return isinstance(contract.embeddings.output_or, Table) and not tied(contract)


def classes(measured: Measured, signs: dict[int, str]) -> torch.Tensor:
    """The value of each row's RowClass (int16 [rows]); ``signs`` are the rows that look never trained."""
    norms, largest = measured.statistics.norms, measured.statistics.largest
    found = measured.purpose.clone()
    zero = largest == 0
    distance = (norms / (measured.typical or 1.0)).log().abs()
    far = distance > max(OUTLIER_SPREADS * measured.spread, math.log(OUTLIER_FACTOR))
    for wanted, marked in (
        (RowClass.NON_FINITE, norms.isnan()),
        (RowClass.ZERO, zero),
        (RowClass.NEAR_ZERO, measured.dead & ~zero),
        (RowClass.OUTLIER, far & measured.alive),
        (RowClass.IDENTICAL, _mask(len(norms), [row for group in measured.same for row in group])),
        (RowClass.UNDER_TRAINED, _mask(len(norms), list(signs))),
    ):
        found[marked] |= wanted.value
    return found


def under_trained(measured: Measured) -> dict[int, str]:
    """Rows in use that look like rows that were never trained, and what shows it."""
    if not measured.marked(RowClass.IN_USE).any():
        return {}
    signs = _like_unused(measured)
    if measured.stored.table.kind is TableKind.INPUT and _untied(measured.contract):
        for row, sign in _small(measured).items():
            signs[row] = f"{sign}; {signs[row]}" if row in signs else sign
    return signs


def _like_unused(measured: Measured) -> dict[int, str]:
    near = measured.near
    if isinstance(near, Missing):
        return {}
    distances = near.cosine if near.judged_by == "cosine" else near.without_component
    words = "" if near.judged_by == "cosine" else " without the first principal component"
    return {
        row: f"cosine distance {distances[row]:.2g} to {near.unused} unused rows{words}"
        for row in measured.alive.nonzero().flatten().tolist()
        if distances[row] <= near.level
    }


def _small(measured: Measured) -> dict[int, str]:
    """By the norm of input rows, which stays where it began, or decays, without gradients."""
    norms = measured.statistics.norms
    known = measured.marked(RowClass.PADDING | RowClass.HOLE | RowClass.RESERVED) & (norms > 0)
    for group in measured.same:
        if any(bool(measured.alive[row]) for row in group):
            known[list(group)] = False  # padding that repeats the row of a token
    if int(known.sum()) < LEAST_KNOWN:
        limit = measured.typical / math.exp(max(SMALL_SPREADS * measured.spread, math.log(SMALL_FACTOR)))
        sign = "norm {:.3g}, far below the others"
    else:
        limit = SLACK * float(norms[known].quantile(LEVEL))
        sign = f"norm {{:.3g}}, like the {int(known.sum())} unused rows"
    small = measured.alive & (norms <= limit)
    if int(small.sum()) >= MOST_BELOW * int(measured.alive.sum()):
        return {}
    return {row: sign.format(float(norms[row])) for row in small.nonzero().flatten().tolist()}


def _mask(rows: int, marked: Sequence[int]) -> torch.Tensor:
    mask = torch.zeros(rows, dtype=torch.bool)
    mask[list(marked)] = True
    return mask
