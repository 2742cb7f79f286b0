"""Carry out a plan: stream the edited shards, let the kernel copy the rest, and prove the result.

Peak memory does not depend on the model's size: bytes move in the kernel, rows in chunks of a few MB.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from tokaudit.atomic import file_mode
from tokaudit.contract import Tensor
from tokaudit.formats.json_edit import append_items, replace_value, set_members
from tokaudit.resize.initialisers import INITIALISERS
from tokaudit.resize.plan import FileEdit, NewRow, TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.resize.rows import StoredRows
from tokaudit.sources import OpenFile, Source


class Progress(Protocol):
    """Follows the bytes of a run."""

    def start(self, total: int) -> None:
        """``total`` bytes will be written."""

    def advance(self, nbytes: int) -> None:
        """So many more bytes were written."""


PADDING_BIAS = -1e4  # a padding row must not win: far below any logit, and within float16
_FICLONE = 0x40049409
_COPY_AT_ONCE = 1 << 30
_BUFFER = 8 << 20
_ROWS_AT_ONCE = 4096
_NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM}
)


class Quiet:
    """The progress of a caller that wants none."""

    def start(self, total: int) -> None:
        pass

    def advance(self, nbytes: int) -> None:
        pass


def copy_file(file: OpenFile, target: Path, mode: int, progress: Progress) -> None:
    """Copy a whole file: as a reflink where the file system has them, else by the kernel."""
    out = _create(target, mode)
    try:
        try:
            fcntl.ioctl(out, _FICLONE, file.fileno())
            progress.advance(file.size)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            copy_range(file, 0, file.size, out, progress)
    finally:
        os.close(out)


def copy_range(file: OpenFile, start: int, length: int, out: int, progress: Progress) -> None:
    """Append ``length`` bytes from ``start`` of the file to ``out``."""
    end = start + length
    while start < end and hasattr(os, "copy_file_range"):
        try:
            moved = os.copy_file_range(file.fileno(), out, min(end - start, _COPY_AT_ONCE), start)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            break
        if moved == 0:
            break
        start += moved
        progress.advance(moved)
    while start < end:
        data = file.read(start, min(end - start, _BUFFER))
        write_all(out, data)
        start += len(data)
        progress.advance(len(data))


def write_all(out: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(out, view) :]


def _create(target: Path, mode: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.fchmod(out, file_mode(mode))
    return out


# --- shards --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardEdit:
    """One shard to rewrite: the edits of its tensors, and what initialises their rows."""

    file: OpenFile
    edits: Mapping[str, TensorEdit]
    rows: Mapping[str, StoredRows]


def write_shard(shard: ShardEdit, target: Path, mode: int, values: RowValues, progress: Progress) -> None:
    """Write the shard with its edited tensors grown: same names, dtypes, metadata and tensor order."""
    header, spans = _new_header(shard)
    out = _create(target, mode)
    try:
        write_all(out, header)
        for first, last, edit in _runs(spans, shard.edits):
            copy_range(shard.file, first.start, last.stop - first.start, out, progress)
            if edit is not None:
                beyond = [row for row in values.rows if row.id >= edit.table.rows]
                for data in values.encoded(shard.rows[edit.table.name], edit, beyond):
                    write_all(out, data)
                    progress.advance(len(data))
        _write_padding_rows(out, len(header), shard, values)
    finally:
        os.close(out)


def _new_header(shard: ShardEdit) -> tuple[bytes, list[Tensor]]:
    """The new header, and the old tensors in the order of their bytes."""
    (length,) = struct.unpack("<Q", shard.file.read(0, 8))
    entries: dict[str, Any] = json.loads(shard.file.read(8, length))
    spans = sorted(
        (
            Tensor(
                name,
                entry["dtype"],
                tuple(entry["shape"]),
                shard.file.name,
                8 + length + entry["data_offsets"][0],
                8 + length + entry["data_offsets"][1],
            )
            for name, entry in entries.items()
            if name != "__metadata__"
        ),
        key=lambda tensor: (tensor.start, tensor.stop),
    )
    offset = 0
    for tensor in spans:
        nbytes = tensor.nbytes
        edit = shard.edits.get(tensor.name)
        if edit is not None:
            nbytes += edit.bytes_added
            entries[tensor.name]["shape"] = list(edit.shape_after)
        entries[tensor.name]["data_offsets"] = [offset, offset + nbytes]
        offset += nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, spans


def _runs(
    spans: Sequence[Tensor], edits: Mapping[str, TensorEdit]
) -> Iterator[tuple[Tensor, Tensor, TensorEdit | None]]:
    """Runs of neighbouring tensors that one copy can move; a run ends with an edited tensor."""
    first: Tensor | None = None
    for index, tensor in enumerate(spans):
        first = first or tensor
        edit = edits.get(tensor.name)
        if edit is not None or index == len(spans) - 1:
            yield first, tensor, edit
            first = None


def _write_padding_rows(out: int, header: int, shard: ShardEdit, values: RowValues) -> None:
    """Write the new rows that lie inside the old table, where padding was."""
    grown = 0
    (length,) = struct.unpack("<Q", shard.file.read(0, 8))
    for edit in sorted(shard.edits.values(), key=lambda edit: edit.table.tensor.start):
        rows = shard.rows[edit.table.name]
        start = edit.table.tensor.start - (8 + length) + header + grown
        for row in values.rows:
            if row.id < edit.table.rows:
                for data in values.encoded(rows, edit, [row]):
                    os.pwrite(out, data, start + row.id * rows.row_bytes)
        grown += edit.bytes_added


@dataclass(frozen=True)
class RowValues:
    """The values of the new rows. ``seed`` makes sampled ones the same in every run and for both sides."""

    rows: tuple[NewRow, ...]
    seed: int

    def encoded(self, rows: StoredRows, edit: TensorEdit, wanted: Sequence[NewRow]) -> Iterator[bytearray]:
        """The stored bytes of these rows, a bounded number at a time."""
        for first in range(0, len(wanted), _ROWS_AT_ONCE):
            part = wanted[first : first + _ROWS_AT_ONCE]
            values = torch.stack([self.value(rows, edit, row) for row in part])
            data = bytearray(len(part) * rows.row_bytes)
            torch.frombuffer(data, dtype=rows.dtype).copy_(values.to(rows.dtype).flatten())
            yield data

    def value(self, rows: StoredRows, edit: TensorEdit, row: NewRow) -> torch.Tensor:
        """One row as float32 [hidden]."""
        method = row.output_method if edit.output_side else row.method
        if method == "padding":
            if rows.hidden == 1:
                return torch.full((1,), PADDING_BIAS)
            return rows.summary.mean
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + row.id)
        return INITIALISERS[method](row, rows, generator)


# --- JSON files ----------------------------------------------------------------------------------------


def apply_edits(text: str, edits: Sequence[FileEdit]) -> str:
    """Apply the edits of one file in order."""
    for edit in edits:
        if edit.operation == "replace":
            text = replace_value(text, edit.path, edit.after)
        elif edit.operation == "append":
            text = _appended(text, edit)
        else:
            text = set_members(text, edit.path, _pairs(edit.after))
    return text


def _appended(text: str, edit: FileEdit) -> str:
    items = edit.after if isinstance(edit.after, list) else [edit.after]
    try:
        return append_items(text, edit.path, items)
    except KeyError:  # a tokenizer.json without added tokens
        *parent, key = edit.path
        return set_members(text, tuple(parent), [(str(key), items)])


def _pairs(value: object) -> list[tuple[str, object]]:
    return [(str(key), member) for key, member in value] if isinstance(value, list) else []


# --- proof ---------------------------------------------------------------------------------------------


def compare_old_rows(before: StoredRows, after: StoredRows, rewritten: frozenset[int]) -> str:
    """Every old row must be byte for byte what it was, except the padding rows that were written.

    Returns the SHA-256 of the source's rows. Raises Refused naming the first row that differs: the output is
    not kept.
    """
    digest = hashlib.sha256()
    step = max(1, _BUFFER // before.row_bytes)
    for first in range(0, before.table.rows, step):
        past = min(first + step, before.table.rows)
        left, right = before.raw(first, past), after.raw(first, past)
        digest.update(left)
        if left == right:
            continue
        for id in range(first, past):
            a = (id - first) * before.row_bytes
            if left[a : a + before.row_bytes] != right[a : a + before.row_bytes] and id not in rewritten:
                raise Refused(f"row {id} of {before.table.name} came out different: a disk error?")
    return digest.hexdigest()


def used_rows(rows: int, token_ids: Sequence[int], new: frozenset[int]) -> torch.Tensor:
    """bool [rows]: rows of tokens that the old tokenizer had; all rows where it has none."""
    mask = torch.zeros(rows, dtype=torch.bool)
    known = [id for id in token_ids if id < rows and id not in new]
    if not known:
        return torch.ones(rows, dtype=torch.bool)
    mask[torch.tensor(known)] = True
    return mask


def stored_rows(stack: ExitStack, source: Source, edit: TensorEdit, used: torch.Tensor) -> StoredRows:
    """The rows of a table in the source, its file held open in ``stack``."""
    file = stack.enter_context(source.open(edit.table.tensor.file))
    return StoredRows(file, edit.table, used, edit.output_side)


def grown(edit: TensorEdit, tensor: Tensor) -> TensorEdit:
    """The edit's table as it stands in the result."""
    return replace(edit, table=replace(edit.table, tensor=tensor, rows_or=edit.rows_after))


def hard_link(source: Path, target: Path) -> bool:
    """Link instead of copying; False where the file system cannot, or the source is itself a link."""
    if source.is_symlink():
        return False
    with suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
        return True
    return False
