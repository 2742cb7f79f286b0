"""Byte for byte: what of the result should be the source's is compared with it.

The result is read back from its file by its own header, not by what was meant to be written there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from tokaudit.contract import Shard, Tensor
from tokaudit.progress import Progress
from tokaudit.resize.plan import TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.sources import OpenFile

_BUFFER = 1 << 20


def compare_files(before: OpenFile, after: OpenFile, progress: Progress) -> None:
    """Raises Refused where the copy is not the source."""
    if before.size != after.size or not _same(before, 0, after, 0, before.size, progress):
        raise Refused(f"{before.name} came out different: is the disk or the memory damaged?")


def _same(before: OpenFile, start: int, after: OpenFile, at: int, length: int, progress: Progress) -> bool:
    pieces = _side_by_side(before, start, after, at, length, progress)
    return all(left == right for left, right in pieces)


def compare_shards(
    before: OpenFile,
    after: OpenFile,
    shards: tuple[Shard, Shard],
    edits: Mapping[str, TensorEdit],
    rewritten: Sequence[int],
    progress: Progress,
) -> None:
    """Every tensor byte for byte, and every old row of the edited tables but the ``rewritten`` ones.

    ``shards`` are what the two files say they hold. Raises Refused for the first tensor or row that differs.
    """
    old, new = shards
    _compare_headers(old, new, edits)
    for name, tensor in old.tensors.items():
        at = new.tensors[name].start
        if name in edits:
            _compare_rows(before, after, (tensor, at), edits[name], rewritten, progress)
        elif not _same(before, tensor.start, after, at, tensor.nbytes, progress):
            raise Refused(f"{name} came out different: is the disk or the memory damaged?")


def _compare_headers(old: Shard, new: Shard, edits: Mapping[str, TensorEdit]) -> None:
    shapes = {name: edit.shape_after for name, edit in edits.items()}
    wanted = [(name, t.dtype, shapes.get(name, t.shape)) for name, t in old.tensors.items()]
    found = [(name, t.dtype, t.shape) for name, t in new.tensors.items()]
    if wanted != found or old.metadata != new.metadata:
        raise Refused(f"the header of {old.file} came out other than planned")


def _compare_rows(
    before: OpenFile,
    after: OpenFile,
    places: tuple[Tensor, int],
    edit: TensorEdit,
    rewritten: Sequence[int],
    progress: Progress,
) -> None:
    tensor, at = places
    for first, past in _kept(edit.table.rows, rewritten):
        done = first * edit.row_bytes
        length = (past - first) * edit.row_bytes
        for left, right in _side_by_side(before, tensor.start + done, after, at + done, length, progress):
            if left != right:
                place = next(i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a != b)
                raise Refused(f"row {(done + place) // edit.row_bytes} of {tensor.name} came out different")
            done += len(left)


def digest_rows(file: OpenFile, edit: TensorEdit, rewritten: Sequence[int], progress: Progress) -> str:
    """The SHA-256 of the rows of a table that stay, in order."""
    digest = hashlib.sha256()
    buffer = bytearray(_BUFFER)
    for first, past in _kept(edit.table.rows, rewritten):
        start, stop = (edit.table.tensor.start + row * edit.row_bytes for row in (first, past))
        for at in range(start, stop, _BUFFER):
            window = memoryview(buffer)[: stop - at]
            file.fill(at, window)
            digest.update(window)
            progress.advance(0)
    return digest.hexdigest()


def _kept(rows: int, rewritten: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, past the last) of the runs of rows that stay; ``rewritten`` ascends."""
    first = 0
    for id in (id for id in rewritten if id < rows):
        if first < id:
            yield first, id
        first = id + 1
    if first < rows:
        yield first, rows


def _side_by_side(
    before: OpenFile, start: int, after: OpenFile, at: int, length: int, progress: Progress
) -> Iterator[tuple[bytearray, bytearray]]:
    """Both files piece by piece, through two buffers that are used again."""
    left, right = bytearray(min(length, _BUFFER)), bytearray(min(length, _BUFFER))
    for done in range(0, length, _BUFFER):
        if length - done < len(left):
            del left[length - done :], right[length - done :]
        with memoryview(left) as window:
            before.fill(start + done, window)
        with memoryview(right) as window:
            after.fill(at + done, window)
        yield left, right
        progress.advance(len(left))
