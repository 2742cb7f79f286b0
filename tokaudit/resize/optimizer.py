"""optimizer.pt beside the weights: the moments of a grown table grow too, with zero rows.

The file is what transformers' Trainer writes: ``state`` maps a parameter's number to its tensors, without
names. Adam keeps moments of the parameter's own shape; Adafactor keeps a mean per row [rows] and per column.
All tables of one shape grow alike, so it is enough that as many parameters have that shape as there are
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tokaudit.resize.plan import Plan, TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.sources import OpenFile

FILE = "optimizer.pt"
_ROW_MEANS = "exp_avg_sq_row"


def grow_optimizer(file: OpenFile, target: Path, plan: Plan) -> None:
    """Write the optimizer's state with zero rows for the new rows. Raises Refused where it does not fit.

    torch's weights-only loader reads it, from a memory map: nothing in the file is executed.
    """
    try:
        path = f"/dev/fd/{file.fileno()}"
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises pickle, zip and runtime errors of many kinds here
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        message = f"{FILE} cannot be read as plain tensors: {reason}"
        raise Refused(message, hint="leave --optimizer out") from None
    state = document.get("state") if isinstance(document, dict) else None
    if not isinstance(state, dict):
        raise Refused(f"{FILE} holds no optimizer state", hint="leave --optimizer out")
    rewritten = [row.id for row in plan.rows if row.id < plan.rows_before]
    for shape, edits in _by_shape(plan.tensors).items():
        found = [moments for moments in state.values() if _belongs(moments, shape)]
        if len(found) != len(edits):
            names = ", ".join(edit.table.name for edit in edits)
            raise Refused(
                f"{FILE} has {len(found)} states of shape {list(shape)}, for {len(edits)} tables ({names})",
                hint="leave --optimizer out: the optimizer starts afresh",
            )
        for moments in found:
            _grow(moments, shape, edits[0].rows_after, rewritten)
    torch.save(document, target)


def _by_shape(edits: Iterable[TensorEdit]) -> Mapping[tuple[int, ...], Sequence[TensorEdit]]:
    found: dict[tuple[int, ...], list[TensorEdit]] = {}
    for edit in edits:
        found.setdefault(edit.table.tensor.shape, []).append(edit)
    return found


def _belongs(moments: Any, shape: tuple[int, ...]) -> bool:
    if not isinstance(moments, dict):
        return False
    tensors = [value for value in moments.values() if isinstance(value, torch.Tensor)]
    if any(tuple(tensor.shape) == shape for tensor in tensors):
        return True
    rows = moments.get(_ROW_MEANS)
    columns = moments.get("exp_avg_sq_col")
    if not isinstance(rows, torch.Tensor) or not isinstance(columns, torch.Tensor):
        return False
    return (*rows.shape, *columns.shape) == shape


def _grow(moments: dict[str, Any], shape: tuple[int, ...], rows: int, rewritten: Sequence[int]) -> None:
    for name, value in moments.items():
        if not isinstance(value, torch.Tensor):
            continue
        if tuple(value.shape) == shape or (name == _ROW_MEANS and tuple(value.shape) == shape[:1]):
            grown = value.new_zeros(rows, *value.shape[1:])
            grown[: len(value)] = value
            grown[list(rewritten)] = 0
            moments[name] = grown
