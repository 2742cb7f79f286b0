"""Tokens that were added to a vocabulary: whether their rows are still what an initialiser wrote."""

from __future__ import annotations

import math

import torch

from tokaudit.contract import RowClass
from tokaudit.errors import FactMissing
from tokaudit.values.judge import Measured

MOST_EXAMINED = 4096
NEAR_MEAN = 0.02  # of the typical norm: transformers samples around the mean with 1e-9 of the covariance
LEAST_HIDDEN = 64  # below, the standard deviation of one row says too little
DISTINCT = 1.25  # trained rows must be so much larger or smaller than an initialiser's


def newcomers(measured: Measured) -> list[int]:
    """Rows of added tokens that are not in the base vocabulary and not reserved, the last ones if many."""
    if not measured.marked(RowClass.IN_USE).any():
        return []
    vocabulary = measured.contract.vocabulary
    base = vocabulary.base_ids
    ids = sorted({token.id for token in vocabulary.added if base and token.content not in base})
    rows = [id - measured.ids.start for id in ids if id in measured.ids]
    return [row for row in rows if measured.alive[row]][-MOST_EXAMINED:]


def still_initial(measured: Measured, rows: list[int]) -> dict[int, str]:
    """Those of the rows that an initialiser wrote and no training changed, and what shows it."""
    if not rows:
        return {}
    values = measured.stored.gather(rows).double()
    statistics = measured.statistics
    signs: dict[int, str] = {}
    for mean in (statistics.mean_of_all, statistics.mean):
        apart = torch.linalg.vector_norm(values - mean, dim=1) / measured.typical
        for row, distance in zip(rows, apart.tolist(), strict=True):
            if distance <= NEAR_MEAN:
                signs[row] = "still the mean of the table"
    for row in _drawn(measured, rows):
        signs.setdefault(row, "still what the initialiser drew")
    return signs


def _drawn(measured: Measured, rows: list[int]) -> list[int]:
    """Rows with the standard deviation of the configuration's ``initializer_range``, unlike trained ones."""
    hidden = measured.stored.hidden
    drawn = _initializer_range(measured) * math.sqrt(hidden)
    if hidden < LEAST_HIDDEN or not drawn:
        return []
    ratio = measured.typical / drawn
    if 1 / DISTINCT < ratio < DISTINCT:
        return []
    norms = measured.statistics.norms
    return [row for row in rows if abs(float(norms[row]) / drawn - 1) <= 4 / math.sqrt(2 * hidden)]


def _initializer_range(measured: Measured) -> float:
    """0 where the configuration states none."""
    try:
        config = measured.contract.config
    except FactMissing:
        return 0.0
    for part in (config, *(part for name, part in config.sections() if name == "text_config")):
        value = part.data.get("initializer_range")
        if isinstance(value, float) and 0 < value < 10:
            return value
    return 0.0
