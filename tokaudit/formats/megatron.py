"""The index (.idx) of Megatron's token data, whose ids lie in a .bin file beside it.

Format (Megatron-LM, megatron/core/datasets/indexed_dataset.py), all little endian: the magic ``MMIDIDX`` and
two NUL bytes; a 64-bit version, 1; one byte for the dtype; 64-bit numbers of sequences and of document
boundaries; 32-bit lengths of the sequences in items, 64-bit offsets of theirs in bytes of the .bin file, and
64-bit document boundaries. Multimodal data sets append a byte for each sequence.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass

from tokaudit.contract.data import width
from tokaudit.errors import Unreadable
from tokaudit.sources import OpenFile

MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<9sQBQQ")
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_FLOATS = (6, 7)
_AT_ONCE = 1 << 18  # sequences


@dataclass(frozen=True, slots=True)
class TokenIndex:
    """``items`` are all ids of all sequences, ``covered`` the bytes of the .bin file up to the last one."""

    dtype: str
    sequences: int
    items: int
    covered: int


def read_index(file: OpenFile, bin_bytes: int) -> TokenIndex:
    """Read an index, in parts, for a .bin file of so many bytes.

    Raises Unreadable: "data-header", "data-dtype", "data-truncated" where the index is shorter than it says,
    and "data-outside" where a sequence lies outside of the .bin file.
    """
    if file.size < _HEAD.size:
        raise _damaged(file, f"expected a header of {_HEAD.size} bytes, found {file.size}")
    magic, version, code, sequences, documents = _HEAD.unpack(file.read(0, _HEAD.size))
    if magic != MAGIC or version != 1:
        raise _damaged(file, "expected version 1 of Megatron's index")
    if code not in _DTYPES:
        found = "floating point numbers" if code in _FLOATS else f"the unknown dtype {code}"
        raise Unreadable("data-dtype", file.name, f"expected token ids as integers, found {found}")
    needed = _HEAD.size + 12 * sequences + 8 * documents
    if needed > file.size:
        raise Unreadable(
            "data-truncated",
            file.name,
            f"{sequences} sequences and {documents} boundaries need {needed} bytes, the file has {file.size}",
            hint="write or download the file again",
        )
    dtype = _DTYPES[code]
    items, covered = _extent(file, sequences, width(dtype), bin_bytes)
    return TokenIndex(dtype, sequences, items, covered)


def _extent(file: OpenFile, sequences: int, itemsize: int, bin_bytes: int) -> tuple[int, int]:
    """How many ids there are, and where the last one ends. Raises Unreadable."""
    items = covered = 0
    for first in range(0, sequences, _AT_ONCE):
        count = min(_AT_ONCE, sequences - first)
        lengths = _integers(file, "i", _HEAD.size + 4 * first, count)
        offsets = _integers(file, "q", _HEAD.size + 4 * sequences + 8 * first, count)
        ends = [offset + itemsize * length for offset, length in zip(offsets, lengths, strict=True)]
        if min(lengths) < 0 or min(offsets) < 0 or max(ends) > bin_bytes:
            wrong = next(
                number
                for number, end in enumerate(ends)
                if lengths[number] < 0 or offsets[number] < 0 or end > bin_bytes
            )
            raise Unreadable(
                "data-outside",
                file.name,
                f"sequence {first + wrong} has {lengths[wrong]} ids from byte {offsets[wrong]} on, "
                f"and the .bin file {bin_bytes} bytes",
                hint="write both files again: they do not belong together, or one is cut off",
            )
        items += sum(lengths)
        covered = max(covered, *ends)
    return items, covered


def _integers(file: OpenFile, code: str, start: int, count: int) -> array[int]:
    found = array(code, file.read(start, count * array(code).itemsize))
    if struct.pack("=H", 1) == b"\x00\x01":  # this machine is big endian
        found.byteswap()
    return found


def _damaged(file: OpenFile, reason: str) -> Unreadable:
    return Unreadable("data-header", file.name, reason, hint="write or download the file again")
