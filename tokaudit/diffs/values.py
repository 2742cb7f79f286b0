"""What differs between two values, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tokaudit.diffs.difference import Difference
from tokaudit.text import LONGEST_SHOWN, json_value, shown

NONE = "none"
DIGITS_SHOWN = 12  # of a digest
LEAD = 20  # characters that are shown before the first difference of two long texts
_ABSENT = object()  # in the place of a member that one side does not state


def value_differences(
    layer: str, place: str, left: object, right: object, path: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Each member of two JSON values that differs: ``pre_tokenizer Split pattern.Regex``."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            members = left.get(key, _ABSENT), right.get(key, _ABSENT)
            yield from value_differences(layer, place, *members, (*path, key))
    elif left != right:
        what = " ".join(filter(None, (place, ".".join(path))))
        yield Difference(layer, what, *_contrast(left, right), path=path)


def _contrast(left: object, right: object) -> tuple[str, str]:
    if isinstance(left, str) and isinstance(right, str):
        return around_difference(left, right)
    if isinstance(left, (list, dict)) and isinstance(right, (list, dict)):
        return around_difference(_json(left), _json(right))
    return _words(left), _words(right)


def _words(value: object) -> str:
    if value is _ABSENT:
        return "the default"
    if value is None:
        return NONE
    return shown(_json(value)) if isinstance(value, (list, dict)) else json_value(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def short(digest: str) -> str:
    """The beginning of a digest, for people: ``sha256:b79ae2ef918c…``."""
    return digest[: len("sha256:") + DIGITS_SHOWN] + "…"


def around_difference(left: str, right: str) -> tuple[str, str]:
    """Two texts in quotes, cut so that what differs is in sight."""
    if max(len(left), len(right)) <= LONGEST_SHOWN:
        return shown(left), shown(right)
    pairs = enumerate(zip(left, right, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
    start = max(0, first - LEAD)
    return shown(_window(left, start)), shown(_window(right, start))


def _window(text: str, start: int) -> str:
    """A part of the text that ``shown`` shows whole."""
    end = start + LONGEST_SHOWN - 2
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
