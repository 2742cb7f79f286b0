"""A file -> the units that are counted. What kind of file it is, its first bytes tell; where they do not, its
name does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from tokaudit.contract.data import DataColumn, width
from tokaudit.data import archives, lines, tables
from tokaudit.data.blocks import DTYPES, Block
from tokaudit.data.columns import choose
from tokaudit.data.spans import Span, SpanUnit
from tokaudit.errors import Unreadable
from tokaudit.formats import limits, megatron, npy, safetensors
from tokaudit.formats.sniff import sniff
from tokaudit.formats.token_bin import read_raw
from tokaudit.sources import OpenFile, open_named

_RAW = (".bin", ".ds", ".tokens", ".raw")
_OF_SAFETENSORS = {
    f"{letter}{bits}": f"{'u' * (letter == 'U')}int{bits}" for letter in "UI" for bits in (8, 16, 32, 64)
}


class Unit(Protocol):
    """A part of one file that is counted by itself. Units are sent to other processes."""

    @property
    def column(self) -> DataColumn: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def begins(self) -> bool:
        """Whether it is the first one of its file."""

    def split(self, nbytes: int) -> Iterator[Unit]:
        """The same in parts of about so many bytes, where the format allows it."""

    def blocks(self) -> Iterator[Block]:
        """The ids in order. Raises Unreadable."""


def plan(path: str, dtype: str | None, required_rows: int, nbytes: int) -> list[Unit]:
    """The units of a file, of about so many bytes each.

    Raises Unreadable, and UsageError where pyarrow is needed and missing.
    """
    return [part for unit in _units(path, dtype, required_rows) for part in unit.split(nbytes)]


def _units(path: str, dtype: str | None, required_rows: int) -> list[Unit]:
    with open_named(path) as file:
        head = file.read(0, min(file.size, limits.NPY_HEADER_BYTES))
        if head.startswith(npy.MAGIC):
            return [_array(file, head)]
        if path.endswith(".bin") and os.path.lexists(f"{path.removesuffix('.bin')}.idx"):
            return [_megatron(file)]
        if path.endswith(".safetensors"):
            return [_safetensors(file)]
        if path.endswith(_RAW) and (dtype is not None or sniff(head) is None):
            return [_raw(file, dtype, required_rows)]
    return list(_by_head(path, head))


def _by_head(path: str, head: bytes) -> Sequence[Unit]:
    if head.startswith(b"PK\x03\x04"):
        return archives.plan(path, path)
    if head.startswith(b"PAR1"):
        return tables.plan(path, path, "parquet")
    if head.startswith(b"ARROW1"):
        return tables.plan(path, path, "arrow")
    if head.startswith(b"\xff\xff\xff\xff"):
        return tables.plan(path, path, "arrow-stream")
    if head.lstrip()[:1] in (b"{", b"["):
        return lines.plan(path, path)
    raise _unknown(path, head)


def _unknown(path: str, head: bytes) -> Unreadable:
    found = sniff(head)
    words = found.words if found else "an empty file" if not head else "something else"
    hint = found.hint if found else "give ids as .npy, .bin, .parquet, .arrow, .jsonl or .safetensors"
    return Unreadable("data-format", path, f"expected token data, found {words}", hint=hint)


def _array(file: OpenFile, head: bytes) -> SpanUnit:
    header = npy.parse(head, file.name)
    needed = header.start + header.items * header.width
    if needed > file.size:
        raise Unreadable(
            "data-truncated",
            file.name,
            f"{header.dtype} of shape {list(header.shape)} needs {needed} bytes, the file has {file.size}",
            hint="write or download the file again",
        )
    length = header.shape[-1] if len(header.shape) > 1 and not header.fortran else 0
    column = DataColumn(file.name, "", header.dtype)
    span = Span(header.start, header.dtype, header.swapped)
    return SpanUnit(file.name, column, span, 0, header.items, length)


def _megatron(file: OpenFile) -> SpanUnit:
    with open_named(f"{file.name.removesuffix('.bin')}.idx") as index_file:
        index = megatron.read_index(index_file, file.size)
    column = DataColumn(file.name, "", index.dtype)
    items = index.covered // width(index.dtype)
    return SpanUnit(file.name, column, Span(0, index.dtype), 0, items)


def _raw(file: OpenFile, dtype: str | None, required_rows: int) -> SpanUnit:
    raw = read_raw(file, dtype, required_rows)
    column = DataColumn(file.name, "", raw.dtype, deduced=raw.deduced)
    return SpanUnit(file.name, column, Span(raw.start, raw.dtype), 0, raw.items)


def _safetensors(file: OpenFile) -> SpanUnit:
    tensors = safetensors.read_header(file).tensors
    known = {name: tensor.dtype in _OF_SAFETENSORS for name, tensor in tensors.items()}
    ids, labels = choose(file.name, known, what="a tensor")
    tensor = tensors[ids]
    if labels and tensors[labels].shape != tensor.shape:
        labels = ""
    dtype = _OF_SAFETENSORS[tensor.dtype]
    length = tensor.shape[-1] if len(tensor.shape) > 1 else 0
    return SpanUnit(
        file.name,
        DataColumn(file.name, ids, dtype, labels=labels),
        Span(tensor.start, dtype),
        0,
        (tensor.stop - tensor.start) // DTYPES[dtype].itemsize,
        length,
        Span(tensors[labels].start, _OF_SAFETENSORS[tensors[labels].dtype]) if labels else None,
    )
