"""The header of a safetensors file, read without the library.

Format: 8 bytes of length (little endian, unsigned), that many bytes of JSON, then the tensors' bytes. The
checks are those of the `safetensors` library 0.8 (its README and src/tensor.rs): whatever passes here loads
there (but for ``-0``, which no writer writes). What it lets through and is refused here, all of which
tests/test_fuzz.py compares:

- a key that stands twice: the specification forbids it; the library keeps the last one, other readers the
  first.
- an entry as a list: the library takes ["F32", [4], [0, 16]] for the three fields in order; no writer does.
- an integer of more than 40 digits: the library skips it in fields that nobody reads; Python's parser takes
  quadratic time for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter

from tokaudit.contract import DTYPE_BITS, Damage, Shard, Tensor
from tokaudit.errors import Unreadable
from tokaudit.formats import limits, strict_json
from tokaudit.formats.sniff import AGAIN, HEAD_BYTES, Sniffed, sniff
from tokaudit.sources import OpenFile
from tokaudit.text import counted, json_value, shown

_LENGTH_BYTES = 8
_LARGEST_SIZE = 2**64 - 1  # the library counts in 64 bits and refuses what does not fit


class DamagedWeights(Unreadable):
    """A weights file that holds no usable tensors; ``damage`` says which rule reports it."""

    def __init__(self, code: str, file: str, damage: Damage, reason: str, *, hint: str = "") -> None:
        super().__init__(code, file, reason, hint=hint)
        self.damage = damage


def read_header(file: OpenFile) -> Shard:
    """The tensors of one file, in the order of their bytes. Reads the header only.

    Raises DamagedWeights, and Unreadable where the file cannot be read at all.
    """
    return _Reader(file).read()


class _Reader:
    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.data_start = 0

    def read(self) -> Shard:
        entries = self._entries()
        metadata = self._metadata(entries.pop("__metadata__", None))
        tensors: list[Tensor] = []
        while entries:  # emptied on the way: of a million entries, only one form is held at a time
            tensors.append(self._tensor(*entries.popitem()))
        tensors.reverse()
        tensors.sort(key=attrgetter("start", "stop"))
        self._check_spans(tensors)
        return Shard(self.file.name, self.file.size, {tensor.name: tensor for tensor in tensors}, metadata)

    def _entries(self) -> dict[str, object]:
        header = self._header()
        if not re.match(rb"[ \t\r\n]*\{", header):
            found = shown(header[:8].decode("latin-1")) if header else "nothing (its length is 0)"
            raise self._no_header(f"expected a JSON object as header, found {found}")
        try:
            parsed = strict_json.parse_object(header, self.file.name)
        except Unreadable as error:
            raise self._no_header(f"the header is not valid: {error.message}") from error
        if parsed.duplicates:
            twice = parsed.duplicates[0].at.pointer
            raise self._broken("weights-duplicate-key", f"the header states {shown(twice)} twice")
        return parsed.value

    def _header(self) -> bytes:
        size = self.file.size
        if size < _LENGTH_BYTES:
            raise self._broken(
                "weights-truncated", f"expected a header, found {counted(size, 'byte')} in all"
            )
        length = int.from_bytes(self.file.read(0, _LENGTH_BYTES), "little")
        self.data_start = _LENGTH_BYTES + length
        if length > limits.SAFETENSORS_HEADER_BYTES:
            most = limits.SAFETENSORS_HEADER_BYTES
            raise self._no_header(f"expected a header of at most {most} bytes, found the length {length}")
        if self.data_start > size:
            raise self._no_header(f"the header ends at byte {self.data_start}, the file at byte {size}")
        return self.file.read(_LENGTH_BYTES, length)

    def _metadata(self, stated: object) -> Mapping[str, str]:
        if stated is None:
            return {}
        if not isinstance(stated, dict) or not all(isinstance(value, str) for value in stated.values()):
            raise self._broken("weights-metadata", "expected texts only in the header's __metadata__")
        return stated

    def _tensor(self, name: str, entry: object) -> Tensor:
        if not isinstance(entry, dict):
            raise self._broken("weights-header", f"{shown(name)}: expected an object, found {_found(entry)}")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
            raise self._broken("weights-dtype", f"{shown(name)}: expected a dtype, found {_found(dtype)}")
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            raise self._broken("weights-shape", f"{shown(name)}: expected a shape, found {_found(shape)}")
        if (
            not isinstance(offsets, list)
            or len(offsets) != 2
            or not all(type(offset) is int for offset in offsets)
            or not 0 <= offsets[0] <= offsets[1] <= _LARGEST_SIZE
        ):
            raise self._broken(
                "weights-offsets",
                f"{shown(name)}: expected two data_offsets in order, found {_found(offsets)}",
            )
        start, stop = offsets
        elements = 1
        for size in shape:
            elements *= size
            if elements > _LARGEST_SIZE or size > _LARGEST_SIZE:
                raise self._broken("weights-shape", f"{shown(name)}: the shape {_found(shape)} is impossible")
        if elements * DTYPE_BITS[dtype] != (stop - start) * 8:
            raise self._broken(
                "weights-shape",
                f"{shown(name)}: {dtype} of shape {_found(shape)} does not take {stop - start} bytes",
            )
        return Tensor(
            name, dtype, tuple(shape), self.file.name, self.data_start + start, self.data_start + stop
        )

    def _check_spans(self, tensors: list[Tensor]) -> None:
        """Every byte after the header belongs to exactly one tensor."""
        end = self.data_start
        for tensor in tensors:
            if tensor.start > end:
                words = f"{tensor.start - end} bytes in front of {shown(tensor.name)} belong to no tensor"
                raise self._broken("weights-offsets", words)
            if tensor.start < end:
                words = f"{shown(tensor.name)} starts {end - tensor.start} bytes inside another tensor"
                raise self._broken("weights-offsets", words)
            end = tensor.stop
        size = self.file.size
        if size < end:
            raise self._broken("weights-truncated", f"the data ends at byte {size}, the header needs {end}")
        if size > end:
            raise self._broken("weights-trailing", f"{size - end} bytes after the last tensor belong to none")

    def _no_header(self, reason: str) -> DamagedWeights:
        """What the file is instead, if its first bytes tell; otherwise a broken safetensors file."""
        found = _sniff(self.file.read(0, min(HEAD_BYTES, self.file.size)))
        if found is None:
            return self._broken("weights-header", reason)
        code = "lfs-pointer" if found.lfs_pointer else "not-safetensors"
        reason = f"expected safetensors, found {found.words}"
        return DamagedWeights(code, self.file.name, Damage.NOT_WEIGHTS, reason, hint=found.hint)

    def _broken(self, code: str, reason: str) -> DamagedWeights:
        hint = "download or save the file again"
        return DamagedWeights(code, self.file.name, Damage.BROKEN, reason, hint=hint)


def _sniff(head: bytes) -> Sniffed | None:
    found = sniff(head)
    if found is not None:
        return found
    if re.fullmatch(rb"[\t\r\n -~]+", head):
        if head.lstrip()[:1] in (b"{", b"["):
            return Sniffed("JSON text, as a server's error message is", AGAIN)
        return Sniffed(f"the text {shown(head.decode('ascii').strip())}", AGAIN)
    return None


def _found(value: object) -> str:
    """The value for a message; of a list its first members."""
    if value is None:
        return "nothing"
    if not isinstance(value, list):
        return json_value(value)
    first = ", ".join(json_value(member) for member in value[:6])
    return f"[{first}, \u2026]" if len(value) > 6 else f"[{first}]"
