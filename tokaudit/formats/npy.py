"""The header of a NumPy array file (.npy), read without NumPy and without evaluating anything.

Format (numpy.lib.format): the magic ``\\x93NUMPY``, two bytes of version, the length of the header (16 bits
in version 1, 32 later), and a Python literal of a dictionary with the keys descr, fortran_order and shape.
The array's bytes follow, without padding between items. An array of objects is a pickle: it is
refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from tokaudit.errors import Unreadable
from tokaudit.formats import limits
from tokaudit.text import shown

MAGIC = b"\x93NUMPY"
_PREAMBLE = 12  # bytes that hold the length in every version
_ENTRY = re.compile(
    r"'(?:(descr)': *'([^'\\]*)'|(fortran_order)': *(True|False)|(shape)': *\(([0-9, ]*)\)) *,? *"
)
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


def width(dtype: str) -> int:
    """Bytes of an item: ``width("uint16") == 2``."""
    return int(dtype.removeprefix("u").removeprefix("int")) // 8


def parse(head: bytes, name: str) -> ArrayHeader:
    """The header at the beginning of ``head`` (at most limits.NPY_HEADER_BYTES are looked at).

    Raises Unreadable: "data-header" where it is damaged, "data-dtype" for anything but integers.
    """
    if not head.startswith(MAGIC) or len(head) < _PREAMBLE:
        raise _damaged(name, "expected the header of a NumPy array")
    version = head[6]
    if version not in (1, 2, 3):
        raise _damaged(name, f"expected version 1, 2 or 3 of the format, found {version}")
    begin = 10 if version == 1 else 12
    length = int.from_bytes(head[8:begin], "little")
    if begin + length > min(len(head), limits.NPY_HEADER_BYTES):
        raise _damaged(name, f"its length is given as {length} bytes")
    text = head[begin : begin + length].decode("latin-1").strip()
    return _header(text, begin + length, name)


def _header(text: str, start: int, name: str) -> ArrayHeader:
    found: dict[str, str] = {}
    inner = text.removeprefix("{").removesuffix("}").strip()
    for match in _ENTRY.finditer(inner):
        key, value = (part for part in match.groups() if part is not None)
        found[key] = value
    if found.keys() != {"descr", "fortran_order", "shape"}:
        if "'descr'" in text and "descr" not in found:
            raise Unreadable("data-dtype", name, "expected integers, found records of several fields")
        raise _damaged(name, f"expected descr, fortran_order and shape, found {shown(text)}")
    sizes = [size.strip() for size in found["shape"].split(",") if size.strip()]
    if any(len(size) > 20 or not size.isdecimal() for size in sizes) or len(sizes) > 64:
        raise _damaged(name, f"the shape ({shown(found['shape'])}) is impossible")
    descr = _DESCR.fullmatch(found["descr"])
    if descr is None:
        raise _no_integers(found["descr"], name)
    order, kind, nbytes = descr.groups()
    dtype = f"{'u' if kind == 'u' else ''}int{8 * int(nbytes)}"
    fortran = found["fortran_order"] == "True"
    return ArrayHeader(dtype, tuple(map(int, sizes)), start, order == ">", fortran)


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
