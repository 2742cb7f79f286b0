"""What differs in the chat templates and in the special ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from tokaudit.contract import LockedRole
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.values import NONE, around_difference, short
from tokaudit.locks.make import normal_template
from tokaudit.text import listed, named, shown

END = "the template ends"


def template_differences(left: Side, right: Side) -> Iterator[Difference]:
    if left.lock.templates is None or right.lock.templates is None:
        return
    for name in sorted({*left.lock.templates, *right.lock.templates}):
        one, other = left.lock.templates.get(name), right.lock.templates.get(name)
        if one == other:
            continue
        what = f"{shown(name)} chat template" if name != "default" else "chat template"
        if one is None or other is None:
            words = [NONE if digest is None else short(digest) for digest in (one, other)]
            yield Difference("templates", what, words[0], words[1], (name,))
            continue
        texts = left.template(name), right.template(name)
        if texts[0] is None or texts[1] is None:
            yield Difference("templates", what, short(one), short(other), (name,))
        else:
            yield _first_line(name, what, texts[0], texts[1])


def special_differences(left: Side, right: Side) -> Iterator[Difference]:
    """Roles, and the ids that config.json and generation name."""
    one, other = left.lock.roles, right.lock.roles
    if one is not None and other is not None:
        for role in sorted({*one, *other}):
            if one.get(role) != other.get(role):
                yield Difference(
                    "roles", f"{role} token", _role(one.get(role)), _role(other.get(role)), (role,)
                )
    fields = left.lock.ids, right.lock.ids
    yield from _ids("ids", "config.json {}", left, right, *fields)
    fields = left.lock.generation_ids, right.lock.generation_ids
    yield from _ids("generation_ids", "{} of generation", left, right, *fields)


def _first_line(name: str, what: str, left: str, right: str) -> Difference:
    lines = zip_longest(normal_template(left).split("\n"), normal_template(right).split("\n"))
    pairs = ((number, one, other) for number, (one, other) in enumerate(lines, 1) if one != other)
    number, one, other = next(pairs)
    before, after = around_difference(one or "", other or "")
    return Difference(
        "templates",
        f"{what}, line {number}",
        END if one is None else before,
        END if other is None else after,
        (name,),
    )


def _role(held: LockedRole | None) -> str:
    if held is None:
        return NONE
    return f"{shown(held.content)} (no id)" if held.id is None else named(held.id, held.content)


def _ids(
    layer: str,
    what: str,
    left: Side,
    right: Side,
    one: Mapping[str, tuple[int, ...]] | None,
    other: Mapping[str, tuple[int, ...]] | None,
) -> Iterator[Difference]:
    if one is None or other is None:
        return
    for field in sorted({*one, *other}):
        if one.get(field) != other.get(field):
            words = _listed(left, one.get(field)), _listed(right, other.get(field))
            yield Difference(layer, what.format(field), *words, path=(field,))


def _listed(side: Side, ids: Iterable[int] | None) -> str:
    return NONE if ids is None else listed([side.named(id) for id in ids])
