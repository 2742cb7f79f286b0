"""How two token-to-id mappings differ, as far as both are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from tokaudit.contract import ListDigest
from tokaudit.diffs.difference import Side
from tokaudit.locks.digests import BLOCK, mapping_digest
from tokaudit.text import listed, named, shown

T = TypeVar("T")
FEW = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """A token that has another id on the right."""

    content: str
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """An id whose token only the left side has, and another one only the right side."""

    id: int
    left: str
    right: str


@dataclass(frozen=True)
class MappingDiff:
    """How the right side differs from the left one.

    ``added`` and ``removed`` are (id, text), by id; those of one id are ``replaced``, too.
    ``complete`` says that these are all changes; otherwise one side is a lock, which knows the texts of few
    tokens, and the mappings also differ somewhere within ``ranges`` (first id, past the last).
    """

    added: tuple[tuple[int, str], ...] = ()
    removed: tuple[tuple[int, str], ...] = ()
    moved: tuple[Moved, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    complete: bool = True
    ranges: tuple[tuple[int, int], ...] = ()

    @cached_property
    def contents(self) -> frozenset[str]:
        """The texts that are listed as changed."""
        texts = {content for _, content in (*self.added, *self.removed)}
        return frozenset(texts | {moved.content for moved in self.moved})

    def sentences(self) -> Iterator[str]:
        """What changed, in words: ``2 added: 320 "[PAD]", 321 "[SEP]"``."""
        places = {replaced.id for replaced in self.replaced}
        for word, tokens in (("added", self.added), ("removed", self.removed)):
            alone = [token for token in tokens if token[0] not in places]
            if alone:
                yield f"{len(alone)} {word}: {few(alone, lambda token: named(*token))}"
        if self.replaced:
            words = few(self.replaced, lambda pair: f"{named(pair.id, pair.left)} -> {shown(pair.right)}")
            yield f"{len(self.replaced)} replaced: {words}"
        if self.moved:
            words = few(self.moved, lambda moved: f"{shown(moved.content)} {moved.left} -> {moved.right}")
            yield f"{len(self.moved)} moved: {words}"
        if not self.complete:
            ranges = [f"{first} to {past - 1}" for first, past in self.ranges]
            more = "others" if self.contents else "tokens"
            yield f"{more}, whose texts a lock does not hold, among the ids {listed(ranges)}"


def few(items: Sequence[T], words: Callable[[T], str]) -> str:
    """The first few in words, and how many were left out; there may be a million."""
    return listed([words(item) for item in items[:FEW]], most=FEW, total=len(items))


def mapping_diff(left: Side, right: Side) -> MappingDiff | None:
    """What differs; None where nothing does, or where a side has no mapping."""
    one, other = left.lock.mapping, right.lock.mapping
    if one is None or other is None or one.digest == other.digest:
        return None
    if left.knows_all_ids and right.knows_all_ids:
        return _diff(left.ids, right.ids)
    if right.knows_all_ids:
        return _against(left, right)
    if left.knows_all_ids:
        return _mirrored(_against(right, left))
    return replace(_diff(left.ids, right.ids), complete=False, ranges=differing_ranges(one, other))


def _diff(left: Mapping[str, int], right: Mapping[str, int]) -> MappingDiff:
    added = sorted((id, content) for content, id in right.items() if content not in left)
    removed = sorted((id, content) for content, id in left.items() if content not in right)
    new = dict(added)
    moved = sorted(
        (id, right[content], content) for content, id in left.items() if right.get(content, id) != id
    )
    return MappingDiff(
        added=tuple(added),
        removed=tuple(removed),
        moved=tuple(Moved(content, before, after) for before, after, content in moved),
        replaced=tuple(Replaced(id, content, new[id]) for id, content in removed if id in new),
    )


def _against(lock: Side, model: Side) -> MappingDiff:
    """The changes from a lock to a model: what the tokens that the lock lists show.

    Undoing them must give the lock's digest; if it does not, there are more.
    """
    held, now = lock.lock.mapping, model.lock.mapping
    assert held is not None
    assert now is not None
    known = {content: id for content, id in model.ids.items() if content in lock.ids or id >= held.end}
    left_places = {id for content, id in lock.ids.items() if known.get(content) != id}
    known |= {content: id for content, id in model.ids.items() if id in left_places}
    found = _diff(lock.ids, known)
    before = {content: id for content, id in model.ids.items() if content not in found.contents}
    before |= {content: id for id, content in found.removed}
    before |= {moved.content: moved.left for moved in found.moved}
    if mapping_digest(before).digest == held.digest:
        return found
    return replace(found, complete=False, ranges=differing_ranges(held, now))


def _mirrored(diff: MappingDiff) -> MappingDiff:
    return replace(
        diff,
        added=diff.removed,
        removed=diff.added,
        moved=tuple(sorted(map(_back, diff.moved), key=lambda moved: (moved.left, moved.right))),
        replaced=tuple(Replaced(pair.id, pair.right, pair.left) for pair in diff.replaced),
    )


def _back(moved: Moved) -> Moved:
    return Moved(moved.content, moved.right, moved.left)


def differing_ranges(left: ListDigest, right: ListDigest) -> tuple[tuple[int, int], ...]:
    """The positions whose blocks differ, neighbours joined."""
    found: list[tuple[int, int]] = []
    end = max(left.end, right.end)
    for begin in sorted({*left.blocks, *right.blocks}):
        if left.blocks.get(begin) != right.blocks.get(begin):
            past = min(begin + BLOCK, end)
            if found and found[-1][1] == begin:
                found[-1] = (found[-1][0], past)
            else:
                found.append((begin, past))
    return tuple(found)
