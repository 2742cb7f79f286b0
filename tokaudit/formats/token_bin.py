"""Raw token files: ids of one width after another, and nothing that says which width.

nanoGPT and datatrove write them without a header (.bin, .ds). The files of llm.c and modded-nanoGPT begin
with 256 integers of 32 bits: a magic number, a version, and the number of ids.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tokaudit.contract.data import width
from tokaudit.errors import Unreadable
from tokaudit.sources import OpenFile

_HEADER_BYTES = 1024
_HEADERS = {(20240520, 1): "uint16", (20240801, 7): "uint32"}  # llm.c: GPT-2 and Llama 3 data
_SAMPLE_BYTES = 1 << 16
_CANDIDATES = (("int64", "q"), ("uint32", "I"), ("uint16", "H"))
_LIKELY_IDS = 1 << 18  # twice the largest vocabularies in use: ids that are wrong lie below this, too


@dataclass(frozen=True, slots=True)
class RawTokens:
    """``start`` is the offset of the ids; ``deduced`` marks a dtype that nothing states."""

    dtype: str
    start: int
    items: int
    deduced: bool


def read_raw(file: OpenFile, dtype: str | None, required_rows: int) -> RawTokens:
    """How the ids lie in a file whose tokenizer needs so many rows. Raises Unreadable ("data-truncated")."""
    header = _header(file)
    if header is not None:
        return header
    found = dtype or _deduced(file, required_rows)
    if file.size % width(found):
        raise Unreadable(
            "data-truncated",
            file.name,
            f"expected a multiple of {width(found)} bytes ({found}), found {file.size}",
            hint="the file is cut off, or --dtype is another one",
        )
    return RawTokens(found, 0, file.size // width(found), deduced=dtype is None)


def _header(file: OpenFile) -> RawTokens | None:
    if file.size < _HEADER_BYTES:
        return None
    magic, version, items = struct.unpack("<3i", file.read(0, 12))
    dtype = _HEADERS.get((magic, version))
    if dtype is None:
        return None
    needed = _HEADER_BYTES + items * width(dtype)
    if items < 0 or needed > file.size:
        raise Unreadable(
            "data-truncated",
            file.name,
            f"its header promises {items} ids of {dtype}, {needed} bytes in all; the file has {file.size}",
            hint="write or download the file again",
        )
    return RawTokens(dtype, _HEADER_BYTES, items, deduced=False)


def _deduced(file: OpenFile, required_rows: int) -> str:
    """The widest dtype in which a sample of the file is plausible throughout.

    Read too wide, two ids make one number, which is far too large unless every other id is next to 0: then
    16 bits are taken where all such ids have rows and a tenth of the wide ones has none.
    """
    limit = max(_LIKELY_IDS, 2 * required_rows)
    for dtype, code in _CANDIDATES:
        if file.size % width(dtype):
            continue
        numbers = _sample(file, dtype, code)
        if all(0 <= number < limit for number in numbers):
            if _is_of_pairs(file, numbers, required_rows):
                break
            return dtype
    return "uint16"


def _is_of_pairs(file: OpenFile, numbers: list[int], required_rows: int) -> bool:
    """Whether the numbers are rather two ids each: 1, 2, 1, 2 also make plausible numbers of 32 bits."""
    with_row = sum(number < required_rows for number in numbers)
    if 10 * with_row > 9 * len(numbers) or not numbers:
        return False
    return max(_sample(file, *_CANDIDATES[-1])) < required_rows


def _sample(file: OpenFile, dtype: str, code: str) -> list[int]:
    """Ids from the beginning and from the middle of the file."""
    size = width(dtype)
    found: list[int] = []
    for start in (0, file.size // 2 // size * size):
        length = min(_SAMPLE_BYTES, file.size - start) // size * size
        found += struct.unpack(f"<{length // size}{code}", file.read(start, length))
    return found
