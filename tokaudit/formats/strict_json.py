"""JSON, read strictly: RFC 8259 and UTF-8 only, with limits, and with repeated keys noticed.

Python's own parser does the work. What it lets through is refused here: UTF-16 and UTF-32, NaN and
Infinity, numbers that overflow to infinity, lone surrogates, very long integers and very deep nesting.
A UTF-8 byte order mark is accepted and noticed: editors on Windows write it, and loaders refuse it (TA418).
The word Infinity may be allowed: before version 5 transformers wrote it into config.json, as the
``time_step_limit`` of Mamba 2, Nemotron-H and their like, and Python reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tokaudit.contract import DuplicateKey
from tokaudit.errors import Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits
from tokaudit.formats.sniff import HEAD_BYTES, sniff
from tokaudit.sources import Source
from tokaudit.text import json_value, pointed, shown

_BOM = b"\xef\xbb\xbf"

# What to do where nothing better is known.
_ANEW = "take the file from its source again"
_MEND = f"mend that place, or {_ANEW}"

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER = b"0" * (limits.JSON_INTEGER_DIGITS + 1)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONFLICT = re.compile(rb"^<<<<<<< ", re.MULTILINE)
_FIRST_LONG_INTEGER = 10**limits.JSON_INTEGER_DIGITS
Container = dict[str, object] | list[object]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The value of a document; of a key that is stated twice the last value counts, as loaders have it.

    ``duplicates`` lists the first repeated keys (at most ``limits.JSON_DUPLICATES_LISTED``), ``marked`` says
    that the file begins with a byte order mark.
    """

    value: object
    duplicates: tuple[DuplicateKey, ...]
    marked: bool


@dataclass(frozen=True, slots=True)
class ParsedObject(Parsed):
    value: dict[str, object]


def read_json(source: Source, name: str, limit: int) -> Parsed:
    """Read and parse one file of at most ``limit`` bytes. Raises Unreadable."""
    return parse(_read(source, name, limit), name)


def read_object(source: Source, name: str, limit: int, *, infinity: bool = False) -> ParsedObject:
    """Like ``read_json`` for a file whose top level must be an object."""
    return parse_object(_read(source, name, limit), name, infinity=infinity)


def parse_object(data: bytes, file: str, *, infinity: bool = False) -> ParsedObject:
    """Like ``parse``; raises Unreadable ("json-type") unless the top level is an object."""
    parsed = parse(data, file, infinity=infinity)
    if not isinstance(parsed.value, dict):
        message = f"expected an object, found {json_value(parsed.value)}"
        raise Unreadable("json-type", file, message, hint=_ANEW)
    return ParsedObject(parsed.value, parsed.duplicates, parsed.marked)


def parse(data: bytes, file: str, *, infinity: bool = False) -> Parsed:
    """Parse a whole document; ``file`` names it in errors and locations.

    With ``infinity`` the words Infinity and -Infinity are floats. Raises Unreadable: "json-syntax",
    "json-encoding", "json-depth", "json-nonfinite", "json-number", "json-surrogate", or "lfs-pointer" for a
    Git LFS pointer in the file's place.
    """
    return _Parser(file, infinity).parse(data)


class _Parser:
    """Notes, while Python's parser runs, what has to be looked at again afterwards.

    A number that is refused (``nonfinite`` is the first one) is NaN until then.
    """

    def __init__(self, file: str, infinity: bool) -> None:
        self.file = file
        self.infinity = infinity
        self.at = Location(file)
        self.repeating: list[tuple[dict[str, object], list[str]]] = []
        self.nonfinite = ""

    def parse(self, data: bytes) -> Parsed:
        text = self._decode(data)
        try:
            value = json.loads(
                text, object_pairs_hook=self._object, parse_float=self._float, parse_constant=self._constant
            )
        except json.JSONDecodeError as error:
            raise self._syntax_error(data, error) from error
        except RecursionError as error:
            raise self._too_deep() from error
        except ValueError as error:  # Python refuses to convert integers of thousands of digits
            raise self._too_long(self.at) from error
        if _deeper_than(value, limits.JSON_DEPTH):
            raise self._too_deep()
        # Each of these is rare and cheap to rule out by the bytes; only then every value is looked at.
        if (
            self.nonfinite
            or (_SURROGATE_ESCAPE.search(data) and _has_lone_surrogate(value))
            or _LONG_INTEGER in data.translate(_DIGITS_TO_ZERO)
        ):
            self._refuse_odd_values(value)
        duplicates = tuple(islice(self._duplicates(value), limits.JSON_DUPLICATES_LISTED))
        return Parsed(value, duplicates, data.startswith(_BOM))

    def _decode(self, data: bytes) -> str:
        if not data or data.isspace():
            raise Unreadable("json-syntax", self.file, "expected JSON, found an empty file", hint=_ANEW)
        encoding = json.detect_encoding(data)
        if not encoding.startswith("utf-8"):
            raise self._encoding_error(encoding.upper())
        try:
            return data.removeprefix(_BOM).decode("utf-8")
        except UnicodeDecodeError as error:
            found = f"the byte 0x{data[error.start]:02x} at offset {error.start}"
            raise self._foreign(data) or self._encoding_error(found) from error

    def _object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) != len(pairs) and len(self.repeating) < limits.JSON_DUPLICATES_LISTED:
            counts = Counter(key for key, _ in pairs)
            self.repeating.append((made, [key for key, count in counts.items() if count > 1]))
        return made

    def _float(self, digits: str) -> float:
        value = float(digits)
        if not math.isinf(value):
            return value
        self.nonfinite = self.nonfinite or (digits if len(digits) <= 40 else f"{digits[:20]}\u2026")
        return math.nan

    def _constant(self, word: str) -> float:
        if self.infinity and word != "NaN":
            return float(word)
        self.nonfinite = self.nonfinite or word
        return math.nan

    def _refuse_odd_values(self, value: object) -> None:
        self._refuse_odd(self.at, value)
        for at, node in _containers(value, self.at):
            for key, member in _members(node):
                self._refuse_odd(at, key)
                self._refuse_odd(at, member, key)
        if self.nonfinite:  # it stood under a repeated key, and a later value took its place
            raise self._not_finite(self.at)

    def _refuse_odd(self, at: Location, value: object, *key: str | int) -> None:
        if isinstance(value, str):
            if not value.isascii() and _SURROGATE.search(value):
                raise Unreadable(
                    "json-surrogate",
                    self.file,
                    f"{pointed(at.child(*key).pointer)}: half of a surrogate pair in {shown(value)}",
                    hint=_MEND,
                )
        elif isinstance(value, float):
            if math.isnan(value):
                raise self._not_finite(at.child(*key))
        elif isinstance(value, int) and abs(value) >= _FIRST_LONG_INTEGER:
            raise self._too_long(at.child(*key))

    def _duplicates(self, value: object) -> Iterator[DuplicateKey]:
        if not self.repeating:
            return
        keys = {id(made): repeated for made, repeated in self.repeating}
        for at, node in _containers(value, self.at):
            for key in keys.get(id(node), ()):
                yield DuplicateKey(at.child(key), key)

    def _foreign(self, data: bytes) -> Unreadable | None:
        """The error for a file that is something else altogether."""
        found = sniff(data[:HEAD_BYTES])
        if found is None:
            return None
        code = "lfs-pointer" if found.lfs_pointer else "json-syntax"
        return Unreadable(code, self.file, f"expected JSON, found {found.words}", hint=found.hint)

    def _syntax_error(self, data: bytes, error: json.JSONDecodeError) -> Unreadable:
        foreign = self._foreign(data)
        if foreign is not None:
            return foreign
        words = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        message = f"line {error.lineno}, column {error.colno}: {words}"
        if _CONFLICT.search(data):
            return Unreadable(
                "json-syntax", self.file, f"{message} (a merge conflict)", hint="resolve the merge conflict"
            )
        return Unreadable("json-syntax", self.file, message, hint=_MEND)

    def _encoding_error(self, found: str) -> Unreadable:
        return Unreadable(
            "json-encoding", self.file, f"expected UTF-8, found {found}", hint="save the file as UTF-8"
        )

    def _too_deep(self) -> Unreadable:
        message = f"more than {limits.JSON_DEPTH} levels of nesting"
        return Unreadable("json-depth", self.file, message, hint=_ANEW)

    def _too_long(self, at: Location) -> Unreadable:
        return Unreadable(
            "json-number",
            self.file,
            f"{pointed(at.pointer)}: an integer of more than {limits.JSON_INTEGER_DIGITS} digits",
            hint=_MEND,
        )

    def _not_finite(self, at: Location) -> Unreadable:
        message = f"{pointed(at.pointer)}: {self.nonfinite} is not valid JSON"
        return Unreadable("json-nonfinite", self.file, message, hint=_MEND)


def _has_lone_surrogate(value: object) -> bool:
    """Whether a text holds half of a pair; a file in ASCII writes whole ones as escapes, too."""
    try:
        json.dumps(value, ensure_ascii=False, check_circular=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _deeper_than(value: object, limit: int) -> bool:
    """Whether arrays and objects nest deeper than the limit; level by level, so without recursion."""
    level: list[Container] = [value] if isinstance(value, (dict, list)) else []
    while level and limit:
        limit -= 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if type(child) is dict or type(child) is list  # isinstance takes three times as long
        ]
    return bool(level)


def _containers(value: object, at: Location) -> Iterator[tuple[Location, Container]]:
    """Every array and object with its location, in the order of the document."""
    stack = [(at, value)]
    while stack:
        here, node = stack.pop()
        if isinstance(node, (dict, list)):
            yield here, node
            inner = [(key, child) for key, child in _members(node) if isinstance(child, (dict, list))]
            stack += [(here.child(key), child) for key, child in reversed(inner)]


def _members(node: Container) -> Iterable[tuple[str | int, object]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _read(source: Source, name: str, limit: int) -> bytes:
    with source.open(name) as file:
        return file.read_all(limit)
