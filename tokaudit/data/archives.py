"""NumPy archives (.npz): zip files of arrays, compressed or not. Members are streams: no file is unpacked."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from tokaudit.contract.data import DataColumn
from tokaudit.data.blocks import BLOCK_ITEMS, Block, Flat, Matrix, tensor
from tokaudit.data.columns import choose
from tokaudit.errors import Unreadable
from tokaudit.formats import limits, npy
from tokaudit.sources import open_named
from tokaudit.text import shown

_WRITTEN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # by NumPy; other methods have errors of their own
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class ArchiveUnit:
    """A whole member, and the one with its labels ("" for none)."""

    path: str
    column: DataColumn
    member: str
    labels: str
    nbytes: int
    begins: bool = True

    def split(self, nbytes: int) -> Iterator[ArchiveUnit]:
        yield self

    def blocks(self) -> Iterator[Block]:
        """Raises Unreadable."""
        with _opened(self.path, self.column.file) as archive, ExitStack() as streams:
            names = [self.member, *filter(None, [self.labels])]
            arrays = [_Array(archive, name, self.column.file, streams) for name in names]
            header = arrays[0].header
            length = header.shape[-1] if len(header.shape) > 1 and not header.fortran else 0
            for first in range(0, header.items, BLOCK_ITEMS):
                items = min(BLOCK_ITEMS, header.items - first)
                read = [
                    tensor(array.read(items), array.header.dtype, swapped=array.header.swapped)
                    for array in arrays
                ]
                layout = Matrix(first, length) if length else Flat(first)
                yield Block(read[0], layout, read[1] if self.labels else None)


class _Array:
    """A member, its header read."""

    def __init__(self, archive: zipfile.ZipFile, member: str, name: str, streams: ExitStack) -> None:
        self.header = _header(archive, member, name)
        self.name = f"{name}/{member}"
        self.stream: IO[bytes] = streams.enter_context(archive.open(member))
        self.stream.read(self.header.start)

    def read(self, items: int) -> bytearray:
        """Raises Unreadable where the stream ends early."""
        data = bytearray(items * self.header.width)
        window = memoryview(data)
        while window:
            part = self.stream.read(len(window))
            if not part:
                raise Unreadable("data-truncated", self.name, f"the array ends {len(window)} bytes too early")
            window[: len(part)] = part
            window = window[len(part) :]
        return data


def plan(path: str, name: str) -> list[ArchiveUnit]:
    """The arrays of ids in an archive. Raises Unreadable."""
    with _opened(path, name) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        if len(members) > limits.ARCHIVE_MEMBERS:
            raise Unreadable(
                "data-header", name, f"more than {limits.ARCHIVE_MEMBERS} arrays: {len(members)}"
            )
        headers: dict[str, npy.ArrayHeader] = {}
        others: dict[str, Unreadable] = {}  # sound, and not of integers
        for info in members:
            column = info.filename.removesuffix(".npy")
            if info.compress_type not in _WRITTEN:
                raise Unreadable(
                    "data-header", f"{name}/{info.filename}", "compressed as NumPy does not compress"
                )
            try:
                header = _header(archive, info.filename, name)
            except Unreadable as error:
                if error.code != "data-dtype":
                    raise
                others[column] = error
                continue
            if header.start + header.items * header.width != info.file_size:
                raise Unreadable(
                    "data-truncated",
                    f"{name}/{info.filename}",
                    f"{header.dtype} of shape {list(header.shape)} does not take {info.file_size} bytes",
                )
            headers[column] = header
        if not headers and others:
            raise next(iter(others.values()))
        known = dict.fromkeys(headers, True) | dict.fromkeys(others, False)
        ids, labels = choose(name, known, what="an array")
        aligned = bool(labels) and headers[labels].shape == headers[ids].shape
        labels = labels if aligned and headers[labels].fortran == headers[ids].fortran else ""
        made = DataColumn(name, ids, headers[ids].dtype, labels=labels)
        nbytes = headers[ids].items * headers[ids].width
        return [ArchiveUnit(path, made, f"{ids}.npy", f"{labels}.npy" if labels else "", nbytes)]


def _header(archive: zipfile.ZipFile, member: str, name: str) -> npy.ArrayHeader:
    with archive.open(member) as stream:
        return npy.parse(stream.read(limits.NPY_HEADER_BYTES), f"{name}/{member}")


@contextmanager
def _opened(path: str, name: str) -> Iterator[zipfile.ZipFile]:
    with open_named(path) as file, os.fdopen(os.dup(file.fileno()), "rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                yield archive
        except _DAMAGE as error:
            raise Unreadable(
                "data-header", name, f"the archive cannot be read: {shown(str(error))}"
            ) from error
