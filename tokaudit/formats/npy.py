"""The header of a NumPy array file (.npy), read without NumPy and without evaluating anything.

Format (numpy.lib.format): the magic ``\\x93NUMPY``, two bytes of version, the length of the header (16 bits
in version 1, 32 later), and a Python literal of a dictionary with the keys descr, fortran_order and shape.
The array's bytes follow, without padding between items. An array of objects is a pickle: it is refused here.
NumPy's reader takes any spelling of the literal, this one only what writers write: texts in single quotes,
without escapes, on one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from tokaudit.contract.data import width
from tokaudit.errors import Unreadable
from tokaudit.formats import limits
from tokaudit.text import shown

MAGIC = b"\x93NUMPY"
_PREAMBLE = 12  # bytes that hold the length in every version
_ENTRY = re.compile(r" *'(\w+)' *: *('[^'\\]*'|True|False|\([^()]*\)) *(?:,|$)")
_RECORDS = re.compile(r"'descr' *: *\[")
_SIZE = r"(?:0|[1-9][0-9]*)"
_SHAPE = re.compile(rf"\( *(?:(?:{_SIZE} *, *)+(?:{_SIZE} *)?)?\)")  # as in Python, (3) is no tuple
_LARGEST_SIZE = (1 << 63) - 1
_DESCR = re.compile(r"([<>|=])([iu])([1248])")
_KINDS = {"O": "objects (a pickle)", "b": "booleans", "f": "floating point numbers", "c": "complex numbers"}


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """An array of integers: ``dtype`` as "uint16", ``start`` the offset of its bytes in the file.

    ``swapped`` marks big-endian integers, ``fortran`` the order in which the first axis runs fastest.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    swapped: bool
    fortran: bool

    @property
    def items(self) -> int:
        return prod(self.shape)

    @property
    def width(self) -> int:
        """Bytes of an item."""
        return width(self.dtype)


def parse(head: bytes, name: str) -> ArrayHeader:
    """The header at the beginning of ``head`` (at most limits.NPY_HEADER_BYTES are looked at).

    Raises Unreadable: "data-header" where it is damaged, "data-dtype" for anything but integers.
    """
    if not head.startswith(MAGIC) or len(head) < _PREAMBLE:
        raise _damaged(name, "expected the header of a NumPy array")
    version, minor = head[6:8]
    if version not in (1, 2, 3) or minor:
        raise _damaged(name, f"expected version 1.0, 2.0 or 3.0 of the format, found {version}.{minor}")
    begin = 10 if version == 1 else 12
    length = int.from_bytes(head[8:begin], "little")
    if begin + length > min(len(head), limits.NPY_HEADER_BYTES):
        raise _damaged(name, f"its length is given as {length} bytes")
    text = head[begin : begin + length].decode("latin-1").strip()
    return _header(text, begin + length, name)


def _header(text: str, start: int, name: str) -> ArrayHeader:
    if _RECORDS.search(text):
        raise Unreadable("data-dtype", name, "expected integers, found records of several fields")
    found = _entries(text)
    descr, order, shape = (found.get(key, "") for key in ("descr", "fortran_order", "shape"))
    if len(found) != 3 or descr[:1] != "'" or order not in ("True", "False") or shape[:1] != "(":
        raise _damaged(name, f"expected descr, fortran_order and shape, found {shown(text)}")
    sizes = [int(size) for size in re.findall("[0-9]{1,20}", shape)]
    if not _SHAPE.fullmatch(shape) or max(sizes, default=0) > _LARGEST_SIZE or len(sizes) > 64:
        raise _damaged(name, f"the shape ({shown(shape)}) is impossible")
    stated = _DESCR.fullmatch(descr[1:-1])
    if stated is None:
        raise _no_integers(descr[1:-1], name)
    bytes_order, kind, nbytes = stated.groups()
    dtype = f"{'u' if kind == 'u' else ''}int{8 * int(nbytes)}"
    return ArrayHeader(dtype, tuple(sizes), start, bytes_order == ">", order == "True")


def _entries(text: str) -> dict[str, str]:
    """The members of a dictionary of texts, flags and tuples; none where it is anything else."""
    if text[:1] != "{" or text[-1:] != "}":
        return {}
    inner = text[1:-1].rstrip()
    found: dict[str, str] = {}
    at = 0
    while at < len(inner):
        match = _ENTRY.match(inner, at)
        if match is None:
            return {}
        key, value = match.groups()
        found[key] = value
        at = match.end()
    return found


def _no_integers(descr: str, name: str) -> Unreadable:
    kind = _KINDS.get(descr.lstrip("<>|=")[:1], f"the type {shown(descr)}")
    return Unreadable(
        "data-dtype",
        name,
        f"expected token ids as integers, found {kind}",
        hint="save the ids as integers: ids.astype('uint32')",
    )


def _damaged(name: str, reason: str) -> Unreadable:
    return Unreadable("data-header", name, reason, hint="write or download the file again")
