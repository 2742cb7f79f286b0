"""What the labels of a block say about its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tokaudit.contract.data import IGNORED, DataColumn, LabelStatistics, Place
from tokaudit.data.blocks import Block

if TYPE_CHECKING:
    from tokaudit.data.tally import Measure


def label_statistics(column: DataColumn, block: Block, measure: Measure) -> LabelStatistics:
    """Labels [items] against the inputs at their positions and at the next ones."""
    if block.labels is None:
        return LabelStatistics(unaligned=block.unaligned)
    ids, labels = block.ids.to(torch.int64), block.labels.to(torch.int64)
    ends = block.layout.ends(len(ids))
    trained = labels != IGNORED
    negative, beyond = (labels < 0) & trained, labels >= measure.rows
    pads = _pads(ids, ends, measure)
    closing = _any_of(ids, measure.ends)
    finals = closing & _after(trained & ~closing, ends)
    followed = trained & ~ends
    pads_trained, ends_masked = pads & trained, finals & ~trained

    def first(marked: torch.Tensor, values: torch.Tensor) -> Place | None:
        if not marked.any():
            return None
        index = int(marked.int().argmax())
        row, item = block.layout.place(index)
        name = column.labels if values is labels else column.column
        return Place(column.file, name, row, item, int(values[index]), block.layout.flat)

    return LabelStatistics(
        unaligned=block.unaligned,
        items=len(labels),
        trained=_sum(trained),
        negative=_sum(negative),
        beyond=_sum(beyond),
        same=_sum(trained & (labels == ids)),
        followed=_sum(followed),
        shifted=_sum(followed[:-1] & (labels[:-1] == ids[1:])),
        pads=_sum(pads),
        pads_trained=_sum(pads_trained),
        ends=_sum(finals),
        ends_masked=_sum(ends_masked),
        outside=first(negative | beyond, labels),
        pad_trained=first(pads_trained, ids),
        end_masked=first(ends_masked, ids),
    )


def _pads(ids: torch.Tensor, ends: torch.Tensor, measure: Measure) -> torch.Tensor:
    """Positions that are padding. Of a pad id with two meanings, those that follow another pad."""
    if measure.pad is None:
        return torch.zeros(len(ids), dtype=torch.bool)
    pads = ids == measure.pad
    return pads & _after(pads, ends) if measure.pad_shared else pads


def _any_of(ids: torch.Tensor, wanted: Sequence[int]) -> torch.Tensor:
    """Which ids are one of a few. (`torch.isin` takes ten times as long for one.)"""
    found = torch.zeros(len(ids), dtype=torch.bool)
    for id in wanted:
        found |= ids == id
    return found


def _after(marked: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The positions that follow a marked one in their row."""
    found = torch.zeros_like(marked)
    found[1:] = (marked & ~ends)[:-1]
    return found


def _sum(marked: torch.Tensor) -> int:
    return int(torch.count_nonzero(marked))
