"""The files that give ids to tokens, and where two of them part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tokaudit.contract import TokenTable, Vocabulary


@dataclass(frozen=True)
class TokenFile:
    """One file with all the tables it holds: tokenizer.json has a base vocabulary and added tokens."""

    name: str
    tables: tuple[TokenTable, ...]

    def ids(self, content: str) -> tuple[int, ...]:
        """Every id that the file gives to the text."""
        return tuple(table.ids[content] for table in self.tables if content in table.ids)

    def table(self, content: str) -> TokenTable:
        """The first table with the text; the file must have it."""
        return next(table for table in self.tables if content in table.ids)

    @cached_property
    def by_id(self) -> Mapping[int, str]:
        """Content of each id; an added token's where the base vocabulary has another."""
        found: dict[int, str] = {}
        for table in self.tables:
            found.update((id, content) for content, id in table.ids.items())
        return found


@dataclass(frozen=True, slots=True)
class Moved:
    """A text with other ids in two files."""

    content: str
    id: int
    other: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """An id with another text in each of two files, none of which the other file has anywhere."""

    id: int
    content: str
    other: str


def token_files(vocabulary: Vocabulary) -> tuple[TokenFile, ...]:
    """The files in order of precedence."""
    tables: dict[str, list[TokenTable]] = {}
    for table in (*vocabulary.tables, *vocabulary.companions):
        tables.setdefault(table.at.file, []).append(table)
    return tuple(TokenFile(name, tuple(found)) for name, found in tables.items())


def moved(first: TokenFile, table: TokenTable) -> Iterator[Moved]:
    """The texts to which the table gives an id that the first file does not give them."""
    if any(own.ids == table.ids for own in first.tables):
        return
    for content, id in table.ids.items():
        ids = first.ids(content)
        if ids and id not in ids:
            yield Moved(content, ids[0], id)


def unknown(first: TokenFile, table: TokenTable) -> dict[str, int]:
    """The table's tokens whose text the first file does not have."""
    if any(own.ids == table.ids for own in first.tables):
        return {}
    return {content: id for content, id in table.ids.items() if not first.ids(content)}


def renamed(first: TokenFile, unknown_tokens: Mapping[str, int]) -> Iterator[Renamed]:
    """Those of the unknown tokens whose id the first file gives to another text."""
    if unknown_tokens:
        for content, id in unknown_tokens.items():
            if id in first.by_id:
                yield Renamed(id, first.by_id[id], content)
