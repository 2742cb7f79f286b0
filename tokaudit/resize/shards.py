"""Shards with grown tables: the new header, and where each byte of the old file goes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokaudit.contract import Tensor
from tokaudit.progress import Progress
from tokaudit.resize.copying import copy_range, write_at
from tokaudit.resize.plan import TensorEdit
from tokaudit.sources import OpenFile


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes that stay as they are: from ``start`` of the old file to ``at`` of the new one."""

    start: int
    at: int
    length: int


@dataclass(frozen=True)
class Layout:
    """A rewritten shard: its header, its size, what moves, and where each edited table begins."""

    header: bytes
    size: int
    moves: tuple[Move, ...]
    tables: Mapping[str, int]


def layout(file: OpenFile, edits: Mapping[str, TensorEdit]) -> Layout:
    """The shard with its edited tables grown: same names, dtypes, metadata and tensor order."""
    (length,) = struct.unpack("<Q", file.read(0, 8))
    entries: dict[str, Any] = json.loads(file.read(8, length))
    old = sorted(_tensors(file.name, entries, 8 + length), key=lambda tensor: (tensor.start, tensor.stop))
    offsets: dict[str, int] = {}
    end = 0
    for tensor in old:
        offsets[tensor.name] = end
        edit = edits.get(tensor.name)
        if edit is not None:
            entries[tensor.name]["shape"] = list(edit.shape_after)
            end += edit.bytes_added
        end += tensor.nbytes
        entries[tensor.name]["data_offsets"] = [offsets[tensor.name], end]
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = struct.pack("<Q", len(text)) + text
    moves = tuple(
        Move(first.start, len(header) + offsets[first.name], last.stop - first.start)
        for first, last in _runs(old, edits)
    )
    tables = {name: len(header) + offsets[name] for name in edits}
    return Layout(header, len(header) + end, moves, tables)


def _tensors(file: str, entries: Mapping[str, Any], data: int) -> Iterator[Tensor]:
    for name, entry in entries.items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            yield Tensor(name, entry["dtype"], tuple(entry["shape"]), file, data + start, data + stop)


def _runs(tensors: Sequence[Tensor], edits: Mapping[str, TensorEdit]) -> Iterator[tuple[Tensor, Tensor]]:
    """Neighbouring tensors that one copy can move: a run ends with an edited tensor."""
    first: Tensor | None = None
    for tensor in tensors:
        first = first or tensor
        if tensor.name in edits or tensor is tensors[-1]:
            yield first, tensor
            first = None


def write_old_bytes(file: OpenFile, plan: Layout, out: int, progress: Progress) -> None:
    """Everything but the new rows, whose places stay empty."""
    write_at(out, 0, plan.header)
    for move in plan.moves:
        copy_range(file, move.start, out, move.at, move.length, progress)
