"""Change single values of a JSON file and leave every other character as it stands.

A file that someone else formatted keeps its formatting, key order and number spellings; a new member takes
the indentation of its neighbours. The text must be valid JSON (the strict reader has seen it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # the stubs do not know it

Path = tuple[str | int, ...]

_BLANK = re.compile("\ufeff?[ \t\n\r]*")  # the strict reader lets a file begin with a byte order mark
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object or list: where its text begins (key included) and where its value lies."""

    key: str | int
    begin: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Container:
    """An object or list in the text: ``start`` is its opening bracket, ``stop`` is past the closing one."""

    start: int
    stop: int
    members: tuple[Member, ...]


def replace_value(text: str, path: Path, value: object) -> str:
    """Put ``value`` in the place of the value at ``path``. Raises KeyError where there is none."""
    start, stop = _span(text, path)
    column = _indent_before(text, start)
    return text[:start] + _spelled(text, value, column, text[start:stop]) + text[stop:]


def set_member(text: str, path: Path, key: str, value: object) -> str:
    """Set a member of the object at ``path``; a new one goes to the end."""
    return set_members(text, path, [(key, value)])


def set_members(text: str, path: Path, values: Sequence[tuple[str, object]]) -> str:
    """Set several members of the object at ``path`` at once; new ones go to the end, in order."""
    container = scan(text, _span(text, path)[0])
    known = {member.key for member in container.members}
    fresh = [(json.dumps(key, ensure_ascii=_ascii(text)), value) for key, value in values if key not in known]
    text = _append(text, container, fresh)
    for key, value in values:
        if key in known:
            text = replace_value(text, (*path, key), value)
    return text


def append_items(text: str, path: Path, values: Sequence[object]) -> str:
    """Append values to the list at ``path``."""
    return _append(text, scan(text, _span(text, path)[0]), [("", value) for value in values])


def _span(text: str, path: Path) -> tuple[int, int]:
    """Start and end of the value at ``path``."""
    start = skip_blank(text, 0)
    stop = _decode(text, start)[1]
    for depth, step in enumerate(path):
        members = scan(text, start, wanted=step).members
        found = [member for member in members if member.key == step]
        if not found:
            raise KeyError("/".join(map(str, path[: depth + 1])))
        start, stop = found[-1].start, found[-1].stop  # of a repeated key, loaders use the last
    return start, stop


def scan(text: str, start: int, wanted: str | int | None = None) -> Container:
    """The members of the object or list that opens at ``start``; values are stepped over at C speed.

    With ``wanted`` a list is only walked as far as that index. Raises ValueError, IndexError or
    RecursionError where the text is no JSON.
    """
    is_object = text[start] == "{"
    members: list[Member] = []
    at = skip_blank(text, start + 1)
    while text[at] not in "}]":
        begin = at
        key: str | int = len(members)
        if is_object:
            key, at = scanstring(text, at + 1, True)
            at = skip_blank(text, skip_blank(text, at) + 1)
        stop = _decode(text, at)[1]
        members.append(Member(key, begin, at, stop))
        if not is_object and key == wanted:
            return Container(start, stop, tuple(members))
        at = skip_blank(text, stop)
        if text[at] == ",":
            at = skip_blank(text, at + 1)
    return Container(start, at + 1, tuple(members))


def _append(text: str, container: Container, items: Sequence[tuple[str, object]]) -> str:
    if not items:
        return text
    if container.members:
        last = container.members[-1]
        gap = text[_previous(text, last.begin) : last.begin]
        position, sample, lead = last.stop, text[last.start : last.stop], ","
        colon = _colon(text, last) if isinstance(last.key, str) else ": "
        column = gap.rpartition("\n")[2] if "\n" in gap else ""
        if len(container.members) == 1 and not column:
            gap = "" if _tight(text) else " "
    else:
        outer = _indent_before(text, container.start)
        step = _step(text)
        column = outer + step if step else ""
        gap = f"\n{column}" if step else ""
        position, sample, lead, colon = container.start + 1, "", "", ": "
    written = ""
    for label, value in items:
        spelled = _spelled(text, value, column, sample)
        written += lead + gap + (label + colon if label else "") + spelled
        lead = ","
    if not container.members and _step(text):
        written += f"\n{_indent_before(text, container.start)}"
        return text[:position] + written + text[container.stop - 1 :]
    return text[:position] + written + text[position:]


def _spelled(text: str, value: object, column: str, sample: str) -> str:
    """The value as JSON, in the manner of a neighbour: on one line, or indented like the file."""
    ascii_only = _ascii(text)
    step = _step(text)
    nested = isinstance(value, (dict, list)) and bool(value)
    if not nested or not step or (sample[:1] in ("{", "[") and "\n" not in sample):
        separators = (",", ":") if _tight(text) else (", ", ": ")
        return json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    lines = json.dumps(value, ensure_ascii=ascii_only, indent=step).split("\n")
    return "\n".join([lines[0], *(column + line for line in lines[1:])])


def _colon(text: str, member: Member) -> str:
    _, end = scanstring(text, member.begin + 1, True)
    return text[end : member.start]


def _previous(text: str, at: int) -> int:
    """Just behind the last character before ``at`` that is not blank."""
    while at and text[at - 1] in " \t\n\r":
        at -= 1
    return at


def skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _indent_before(text: str, at: int) -> str:
    """The white space at the start of the line that holds ``at``."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    """One level of the file's indentation; "" for a file on one line."""
    match = re.search(r"[{\[]\s*?\n([ \t]+)\S", text[:4096])
    return match[1] if match else ""


def _tight(text: str) -> bool:
    """Whether the file is written without blanks after colons."""
    return '":' in text and '": ' not in text


def _ascii(text: str) -> bool:
    """Whether the file escapes everything outside ASCII."""
    return text.isascii() and "\\u" in text
