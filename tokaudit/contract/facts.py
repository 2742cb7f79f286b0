"""A fact is a value and where it stands; a missing one knows why it is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    value: T
    at: Location

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands in the place of a fact that the files do not state."""

    reason: str


def present(value: T | Missing) -> T:
    """The value; raises FactMissing with the reason where there is none."""
    if isinstance(value, Missing):
        raise FactMissing(value.reason)
    return value


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object that was read strictly, and where it stands. ``section`` walks into it."""

    at: Location
    data: Mapping[str, object]

    def has(self, *path: str | int) -> bool:
        """Whether the path leads to a value that is not null."""
        return self._find(path) is not None

    def value(self, *path: str | int) -> Fact[object]:
        found = self._find(path)
        if found is None:
            raise FactMissing(f"{self.at.child(*path)} is not stated")
        return Fact(found, self.at.child(*path))

    def integer(self, *path: str | int) -> Fact[int]:
        fact = self.value(*path)
        if type(fact.value) is not int:
            raise FactMissing(f"{fact.at} is not an integer")
        return Fact(fact.value, fact.at)

    def string(self, *path: str | int) -> Fact[str]:
        fact = self.value(*path)
        if not isinstance(fact.value, str):
            raise FactMissing(f"{fact.at} is not a string")
        return Fact(fact.value, fact.at)

    def boolean(self, *path: str | int) -> Fact[bool]:
        fact = self.value(*path)
        if not isinstance(fact.value, bool):
            raise FactMissing(f"{fact.at} is neither true nor false")
        return Fact(fact.value, fact.at)

    def section(self, *path: str | int) -> Document:
        fact = self.value(*path)
        if not isinstance(fact.value, dict):
            raise FactMissing(f"{fact.at} is not an object")
        return Document(fact.at, fact.value)

    def sections(self) -> Iterator[tuple[str, Document]]:
        """The members that are objects themselves, by key."""
        for key, value in self.data.items():
            if isinstance(value, dict):
                yield key, Document(self.at.child(key), value)

    def _find(self, path: tuple[str | int, ...]) -> object:
        here: object = self.data
        for step in path:
            if isinstance(here, dict):
                here = here.get(step)
            elif isinstance(here, list) and isinstance(step, int) and 0 <= step < len(here):
                here = here[step]
            else:
                return None
        return here
