"""What differs in how text becomes tokens, the mapping aside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from tokaudit.contract import ListDigest, LockedToken
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.mapping import differing_ranges
from tokaudit.diffs.values import NONE, value_differences
from tokaudit.locks.normal import PARTS, STAGED
from tokaudit.text import listed, named, shown

AS_IT_STANDS = "tokenizer.json as it stands"


def pipeline_differences(left: Side, right: Side, changed: frozenset[str]) -> Iterator[Difference]:
    """How text becomes tokens. Added tokens whose texts are among ``changed`` are left to the mapping."""
    yield from _added_tokens(left, right, changed)
    if left.lock.parts is None or right.lock.parts is None:
        return
    yield from _merges(left, right)
    yield from _scores(left, right)
    for part in PARTS:
        one, other = left.lock.parts.get(part), right.lock.parts.get(part)
        if part in STAGED:
            yield from _stages(part, one, other)
        else:
            yield from value_differences(part, part, one, other)
    before, after = left.lock.rebuilt_by, right.lock.rebuilt_by
    if before is not None and after is not None and before != after:
        what = "what transformers takes the pipeline from"
        yield Difference("rebuilt_by", what, before or AS_IT_STANDS, after or AS_IT_STANDS)


def _added_tokens(left: Side, right: Side, changed: frozenset[str]) -> Iterator[Difference]:
    if left.lock.added_tokens is None or right.lock.added_tokens is None:
        return
    one = {token.content: token for token in left.lock.added_tokens}
    other = {token.content: token for token in right.lock.added_tokens}
    for content in dict.fromkeys((*one, *other)):
        before, after = one.get(content), other.get(content)
        if content in changed or (before and after and before.flags == after.flags):
            continue
        known = before or after
        assert known is not None
        what = f"added token {named(known.id, content)}"
        yield Difference("added_tokens", what, _flags(before), _flags(after), (content,))


def _flags(token: LockedToken | None) -> str:
    if token is None:
        return "not an added token"
    return ", ".join(sorted(token.flags)) or "no flags"


def _merges(left: Side, right: Side) -> Iterator[Difference]:
    one, other = left.lock.merges, right.lock.merges
    if one is None or other is None:
        if one != other:
            yield Difference("merges", "merges", _count(one), _count(other))
    elif one.digest != other.digest:
        yield Difference("merges", "merges", *_first_merge(left, right, one, other))


def _count(held: ListDigest | None) -> str:
    return NONE if held is None else str(held.count)


def _first_merge(left: Side, right: Side, one: ListDigest, other: ListDigest) -> tuple[str, str]:
    if left.merges is None or right.merges is None:
        return str(one.count), f"{other.count}, others among the ranks {_ranges(one, other)}"
    rank, before, after = next(
        (rank, before, after)
        for rank, (before, after) in enumerate(zip_longest(left.merges, right.merges))
        if before != after
    )
    words = [NONE if merge is None else " + ".join(map(shown, merge)) for merge in (before, after)]
    return f"{one.count}, at rank {rank} {words[0]}", f"{other.count}, at rank {rank} {words[1]}"


def _scores(left: Side, right: Side) -> Iterator[Difference]:
    one, other = left.lock.scores, right.lock.scores
    if one is None or other is None:
        if one != other:
            yield Difference("scores", "scores", _count(one), _count(other))
    elif one.digest != other.digest:
        words = f"{other.count}, others among the ids {_ranges(one, other)}"
        yield Difference("scores", "scores of the pieces", str(one.count), words)


def _ranges(one: ListDigest, other: ListDigest) -> str:
    return listed([f"{first} to {past - 1}" for first, past in differing_ranges(one, other)])


def _stages(part: str, left: object, right: object) -> Iterator[Difference]:
    """Where both sides have the same steps, the fields that differ; otherwise the steps."""
    kinds = _kinds(left), _kinds(right)
    if kinds[0] != kinds[1]:
        yield Difference(part, part, _steps(kinds[0]), _steps(kinds[1]))
    elif isinstance(left, list) and isinstance(right, list):
        for step, (kind, one, other) in enumerate(zip(kinds[0] or (), left, right, strict=True), 1):
            place = f"{part} {kind}" if len(left) == 1 else f"{part}, step {step}, {kind}"
            yield from value_differences(part, place, one, other)


def _kinds(stages: object) -> list[str] | None:
    """The types of the steps; None where there is no such part."""
    if not isinstance(stages, list):
        return None
    return [str(stage.get("type")) if isinstance(stage, dict) else "?" for stage in stages]


def _steps(kinds: list[str] | None) -> str:
    return NONE if kinds is None else ", ".join(kinds) or "no steps"
