"""Reading a lock: strictly, as it may come from anywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from tokaudit.contract import FLAGS, ListDigest, Lock, LockedRole, LockedTable, LockedToken, Probe
from tokaudit.errors import Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits
from tokaudit.formats.strict_json import parse_object
from tokaudit.locks.digests import BLOCK_DIGITS, LARGEST_ID, canonical_digest
from tokaudit.locks.normal import PARTS
from tokaudit.locks.write import LAYERS, LISTS, VERSION
from tokaudit.sources import LocalDirectory
from tokaudit.text import json_kind, json_value, pointed

T = TypeVar("T")
Layers = Mapping[str, object]
Place = tuple[str | int, ...]  # the keys that lead to a value

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BLOCK_DIGEST = re.compile(rf"[0-9a-f]{{{BLOCK_DIGITS}}}")
_POSITION = re.compile("[0-9]{1,10}")
REMEDY = "make the lock again with `tokaudit lock`"


def read(path: str | os.PathLike[str]) -> Lock:
    """Read a lock's file.

    Raises Unreadable: "lock-version", "lock-malformed", "lock-edited", and as a model's JSON files do.
    """
    name = os.fspath(path)
    folder, file = os.path.split(os.path.realpath(name))
    try:
        with LocalDirectory.at(folder).open(file) as opened:
            return parse(opened.read_all(limits.LOCK_BYTES), name)
    except Unreadable as error:
        known = "" if error.code.startswith("json-") else error.hint  # what is no JSON is no lock
        hint = known or "give a file that `tokaudit lock` wrote"
        raise Unreadable(error.code, name, error.message, hint=hint) from None


def parse(data: bytes, name: str) -> Lock:
    """The lock that the bytes of a file hold; ``name`` stands in errors. Raises as ``read`` does."""
    document = parse_object(data, name)
    reader = _Reader(name)
    for duplicate in document.duplicates:
        raise reader.malformed((), "each key once", f"two values at {pointed(duplicate.at.pointer)}")
    version = document.value.get("lockVersion")
    if type(version) is not int or version != VERSION:
        raise reader.version(version)
    top = reader.members(document.value, (), ("lockVersion", "layers", "digests"))
    layers = reader.fields(top.get("layers"), ("layers",))
    digests = reader.fields(top.get("digests"), ("digests",))
    reader.verify(layers, digests)
    return reader.lock(reader.members(layers, ("layers",), LAYERS), digests)


class _Reader:
    """Turns JSON values into the layers, and notes the keys that it does not know."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ignored: list[str] = []

    def lock(self, layers: Layers, digests: Layers) -> Lock:
        def layer(name: str, read: Callable[[object, Place], T]) -> T | None:
            return read(layers[name], ("layers", name)) if name in layers else None

        def listed(name: str) -> ListDigest | None:
            return layer(name, lambda value, at: self.list_digest(value, at, digests[name]))

        return Lock(
            name=self.name,
            mapping=listed("mapping"),
            added_tokens=layer("added_tokens", lambda value, at: self.each(value, at, self.token)),
            merges=listed("merges"),
            scores=listed("scores"),
            parts={part: layers[part] for part in PARTS if part in layers} or None,
            rebuilt_by=layer("rebuilt_by", self.text),
            templates=layer("templates", lambda value, at: self.values(value, at, self.digest)),
            roles=layer("roles", lambda value, at: self.values(value, at, self.role)),
            ids=layer("ids", lambda value, at: self.values(value, at, self.ids)),
            generation_ids=layer("generation_ids", lambda value, at: self.values(value, at, self.ids)),
            expected_rows=layer("expected_rows", self.number),
            tables=layer("tables", lambda value, at: self.each(value, at, self.table)),
            tied=layer("tied", self.boolean),
            contents=layer("contents", lambda value, at: self.values(value, at, self.digest)),
            probes=layer("probes", lambda value, at: self.each(value, at, self.probe)),
            ignored=tuple(self.ignored),
        )

    def verify(self, layers: Layers, digests: Layers) -> None:
        """Whether each layer still has the digest that was written with it."""
        for name in layers:
            stated = self.digest(digests.get(name), ("digests", name))
            if name not in LISTS and name in LAYERS and self.canonical(layers[name], name) != stated:
                raise Unreadable(
                    "lock-edited",
                    self.name,
                    f"the layer {name} was edited: its digest is not the one that was written with it",
                    hint=f"{REMEDY}, never by hand",
                )

    def canonical(self, value: object, name: str) -> str:
        try:
            return canonical_digest(value)
        except ValueError as error:
            raise self.malformed(("layers", name), "canonical JSON", str(error)) from None

    def version(self, found: object) -> Unreadable:
        if type(found) is int and found > VERSION:
            return Unreadable(
                "lock-version",
                self.name,
                f"lockVersion is {found}: written by a newer tokaudit",
                hint=f"this one reads version {VERSION}; update tokaudit, or make the lock again",
            )
        return self.malformed(("lockVersion",), str(VERSION), json_value(found))

    def malformed(self, at: Place, expected: str, found: str) -> Unreadable:
        message = f"{_pointer(at)}: expected {expected}, found {found}"
        return Unreadable("lock-malformed", self.name, message, hint=REMEDY)

    def members(self, value: Layers, at: Place, known: tuple[str, ...]) -> Layers:
        """The members that this version knows."""
        self.ignored += [_pointer((*at, key)) for key in value if key not in known]
        return {key: member for key, member in value.items() if key in known}

    def fields(self, value: object, at: Place) -> Layers:
        if not isinstance(value, dict):
            raise self.malformed(at, "an object", json_kind(value))
        return value

    def items(self, value: object, at: Place) -> list[object]:
        if not isinstance(value, list):
            raise self.malformed(at, "a list", json_kind(value))
        return value

    def text(self, value: object, at: Place) -> str:
        if not isinstance(value, str):
            raise self.malformed(at, "a text", json_kind(value))
        return value

    def boolean(self, value: object, at: Place) -> bool:
        if not isinstance(value, bool):
            raise self.malformed(at, "true or false", json_kind(value))
        return value

    def number(self, value: object, at: Place) -> int:
        """A whole number, and not negative."""
        if type(value) is not int or value < 0:
            raise self.malformed(at, "a whole number", json_value(value))
        return value

    def id(self, value: object, at: Place) -> int:
        """An integer in the place of a token id, which in a broken model may be -1, too."""
        if type(value) is not int or abs(value) > LARGEST_ID:
            raise self.malformed(at, "a token id", json_value(value))
        return value

    def digest(self, value: object, at: Place, form: re.Pattern[str] = _DIGEST) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise self.malformed(at, "a digest", json_value(value))
        return value

    def each(self, value: object, at: Place, read: Callable[[object, Place], T]) -> tuple[T, ...]:
        return tuple(read(member, (*at, i)) for i, member in enumerate(self.items(value, at)))

    def values(self, value: object, at: Place, read: Callable[[object, Place], T]) -> dict[str, T]:
        return {key: read(member, (*at, key)) for key, member in self.fields(value, at).items()}

    def ids(self, value: object, at: Place) -> tuple[int, ...]:
        return self.each(value, at, self.id)

    def list_digest(self, value: object, at: Place, digest: object) -> ListDigest:
        held = self.members(self.fields(value, at), at, ("blocks", "count", "end"))
        blocks = self.fields(held.get("blocks"), (*at, "blocks"))
        for begin in blocks:
            if not _POSITION.fullmatch(begin):
                raise self.malformed((*at, "blocks"), "the beginnings of blocks", json_value(begin))
        return ListDigest(
            digest=str(digest),
            count=self.number(held.get("count"), (*at, "count")),
            end=self.number(held.get("end"), (*at, "end")),
            blocks={
                int(begin): self.digest(block, (*at, "blocks", begin), _BLOCK_DIGEST)
                for begin, block in blocks.items()
            },
        )

    def token(self, value: object, at: Place) -> LockedToken:
        held = self.members(self.fields(value, at), at, ("content", "id", *FLAGS))
        flags = {flag: self.boolean(held[flag], (*at, flag)) for flag in FLAGS if flag in held}
        return LockedToken(
            self.id(held.get("id"), (*at, "id")),
            self.text(held.get("content"), (*at, "content")),
            **flags,
        )

    def role(self, value: object, at: Place) -> LockedRole:
        held = self.members(self.fields(value, at), at, ("content", "id"))
        id = held.get("id")
        return LockedRole(
            self.text(held.get("content"), (*at, "content")),
            None if id is None else self.id(id, (*at, "id")),
        )

    def table(self, value: object, at: Place) -> LockedTable:
        held = self.members(self.fields(value, at), at, ("kind", "name", "rows", "hidden", "dtype"))

        def axis(name: str) -> int | None:
            return None if held.get(name) is None else self.number(held[name], (*at, name))

        kind, name, dtype = (self.text(held.get(key), (*at, key)) for key in ("kind", "name", "dtype"))
        return LockedTable(kind, name, axis("rows"), axis("hidden"), dtype)

    def probe(self, value: object, at: Place) -> Probe:
        held = self.members(self.fields(value, at), at, ("text", "ids"))
        ids = held.get("ids")
        return Probe(
            self.text(held.get("text"), (*at, "text")),
            None if ids is None else self.ids(ids, (*at, "ids")),
        )


def _pointer(place: Place) -> str:
    return pointed(Location("").child(*place).pointer)
