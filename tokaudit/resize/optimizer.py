"""optimizer.pt beside the weights: the moments of a grown table grow too, with zero rows.

The file is what transformers' Trainer writes: ``state`` maps a parameter's number to its tensors, without
names. Adam keeps moments of the parameter's own shape; Adafactor keeps a mean for each row and each column.
All tables of one shape grow alike, so it is enough that as many parameters have that shape as there are
tables.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tokaudit.atomic import CannotWrite, file_mode
from tokaudit.contract import TableKind, has_shape
from tokaudit.contract.optimizer import FACTORS
from tokaudit.errors import Unreadable
from tokaudit.pickles.process import read_shapes
from tokaudit.progress import Progress
from tokaudit.resize.carry import OPTIMIZER as FILE
from tokaudit.resize.copying import copy_file, create
from tokaudit.resize.plan import Plan, TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.sources import OpenFile, open_named
from tokaudit.text import first_line

# What is zero for a row that was never updated. Anything else of a table's shape (8-bit states, master
# copies of the weights, running averages of them) is not ours to make up.
_MOMENTS = frozenset(
    {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg",
     "acc_delta", "sum"}
)  # fmt: skip
_OF_ROWS = frozenset(of_rows for of_rows, _ in FACTORS)
_AFRESH = "leave --optimizer out: the optimizer starts afresh"


def grow_optimizer(file: OpenFile, mode: int, target: Path, plan: Plan, progress: Progress) -> None:
    """Write the optimizer's state with zero rows for the new rows. Raises Refused where it does not fit.

    torch's weights-only loader reads it: nothing in the file is executed. A pickle may still crash or fill
    the process that reads it, so an isolated one does first. The file is mapped into memory, and so are the
    grown tensors, so that their size does not matter; what is mapped is a copy, which nobody changes
    meanwhile.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        copied = Path(scratch, FILE)
        out = create(copied, mode)
        try:
            copy_file(file, out, progress)
        finally:
            os.close(out)
        document = _load(copied)
        for moments, shape, rows in _states_to_grow(document["state"], plan.tensors):
            _grow(moments, shape, rows, [row.id for row in plan.rows], Path(scratch))
        try:
            torch.save(document, target)
        except RuntimeError as error:  # torch's way to say that the disk is full
            raise CannotWrite(f"{FILE} cannot be written: {first_line(error)}") from error
        target.chmod(file_mode(mode))


def _load(path: Path) -> dict[str, Any]:
    try:
        with open_named(str(path)) as file:
            read_shapes(file)
    except Unreadable as error:
        raise Refused(f"{FILE}: {error.message}", hint=_AFRESH) from error
    try:
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises pickle, zip and runtime errors of many kinds here
        raise Refused(f"{FILE} cannot be read as plain tensors: {first_line(error)}", hint=_AFRESH) from None
    if not isinstance(document, dict) or not isinstance(document.get("state"), dict):
        raise Refused(f"{FILE} holds no optimizer state", hint=_AFRESH)
    return document


def _states_to_grow(
    state: Mapping[object, Any], edits: Iterable[TensorEdit]
) -> list[tuple[dict[str, Any], tuple[int, ...], int]]:
    """(the tensors of a parameter, its shape, its rows afterwards) for every parameter that is a table."""
    by_shape: dict[tuple[int, ...], list[TensorEdit]] = {}
    for edit in edits:
        by_shape.setdefault(edit.table.tensor.shape, []).append(edit)
    found: list[tuple[dict[str, Any], tuple[int, ...], int]] = []
    for shape, tables in by_shape.items():
        states = [moments for moments in state.values() if _belongs(moments, shape)]
        if not _parameters(tables) <= len(states) <= len(tables):
            names = ", ".join(edit.table.name for edit in tables)
            raise Refused(
                f"{FILE} has {len(states)} states of shape {list(shape)}, for {len(tables)} tables ({names})",
                hint=_AFRESH,
            )
        found += [(moments, shape, tables[0].rows_after) for moments in states]
    return found


def _parameters(tables: Sequence[TensorEdit]) -> int:
    """How many of the tables are parameters of their own, at least: copies and aliases are not."""
    biases = sum(edit.table.kind is TableKind.BIAS for edit in tables)
    return sum(not edit.repeats for edit in tables) - max(0, biases - 1)


def _belongs(moments: Any, shape: tuple[int, ...]) -> bool:
    if not isinstance(moments, dict):
        return False
    shapes = {name: tuple(value.shape) for name, value in moments.items() if isinstance(value, torch.Tensor)}
    return has_shape(shapes, shape)


def _grow(
    moments: dict[str, Any], shape: tuple[int, ...], rows: int, new: Sequence[int], scratch: Path
) -> None:
    for name, value in moments.items():
        if not isinstance(value, torch.Tensor):
            continue
        of_rows = name in _OF_ROWS and value.numel() == shape[0]
        if tuple(value.shape) != shape and not of_rows:
            continue
        if not of_rows and (name not in _MOMENTS or not value.is_floating_point()):
            raise Refused(f"{FILE} keeps {name!r} for the tables: how it grows is not known", hint=_AFRESH)
        axis = 1 if len(shape) == 2 and shape[0] == 1 else 0
        size = [rows if place == axis else length for place, length in enumerate(value.shape)]
        grown = _zeros(size, value.dtype, scratch)
        grown.narrow(axis, 0, value.shape[axis]).copy_(value)
        grown.index_fill_(axis, torch.tensor([id for id in new if id < value.shape[axis]]).long(), 0)
        moments[name] = grown


def _zeros(size: Sequence[int], dtype: torch.dtype, scratch: Path) -> torch.Tensor:
    """Zeros that live in a file without a name. Raises OSError where the disk has no room for it."""
    count = torch.Size(size).numel()
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        if hasattr(os, "posix_fallocate") and count:  # a write to memory cannot report a full disk
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        return torch.from_file(file.name, shared=True, size=count, dtype=dtype).view(*size)
