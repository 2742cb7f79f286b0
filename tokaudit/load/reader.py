"""Reading the files of one source, and keeping what could not be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tokaudit.contract import Damage, DamagedFile, Document, DuplicateKey, Missing
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits, strict_json
from tokaudit.sources import Source
from tokaudit.tokenizing import TokenizerFailure

T = TypeVar("T")


class Reader:
    """Reads the files of one source and keeps what could not be read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = source.names()
        self.unreadable: list[Unreadable] = []
        self.duplicates: list[DuplicateKey] = []
        self.marked: list[str] = []
        self.outside = [_outside(error.file, error) for error in source.outside()]

    def attempt(self, name: str, read: Callable[[], T]) -> T | Missing:
        """What ``read`` gives; a failure is kept and becomes the reason why the fact is missing."""
        try:
            return read()
        except FactMissing as missing:
            return Missing(missing.reason)
        except Unreadable as error:
            if error.code == "path-escape":
                self.outside.append(_outside(name, error))
            else:
                self.unreadable.append(error)
            return Missing(f"{name} could not be read")

    def document(self, name: str, limit: int = limits.SIDE_FILE_BYTES) -> Document | Missing:
        """A JSON file whose top level is an object."""
        if name not in self.names:
            return Missing(f"there is no {name}")
        return self.attempt(name, lambda: self._document(name, limit))

    def _document(self, name: str, limit: int) -> Document:
        parsed = strict_json.read_object(self.source, name, limit, infinity=name == "config.json")
        self.duplicates += parsed.duplicates
        self.marked += [name] if parsed.marked else []
        return Document(Location(name), parsed.value)

    def data(self, name: str, limit: int = limits.SIDE_FILE_BYTES) -> bytes | Missing:
        def read() -> bytes:
            with self.source.open(name) as file:
                return file.read_all(limit)

        return self.attempt(name, read)


def _outside(name: str, error: Unreadable) -> DamagedFile:
    return DamagedFile(name, Damage.OUTSIDE, error.message, error.hint, code=error.code)


def answer(ask: Callable[[], T]) -> T | Missing:
    """What the question gives, or the reason why it has no answer."""
    try:
        return ask()
    except TokenizerFailure as failure:
        return Missing(f"the tokenizers library failed: {failure.message}")
    except FactMissing as missing:
        return Missing(missing.reason)
