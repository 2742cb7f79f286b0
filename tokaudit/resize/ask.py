"""What a caller may ask for in words: initialisers by name, roles, files of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokaudit.contract import FLAGS, Role
from tokaudit.errors import Unreadable, UsageError
from tokaudit.formats import limits, strict_json
from tokaudit.resize.request import METHODS, NewToken
from tokaudit.sources import open_named
from tokaudit.text import closest, json_kind, shown

_TAKES_ARGUMENT = {"copy": "TOKEN", "description": "TEXT"}
_FIELDS = ("content", *FLAGS, "init", "from")


def method(text: str) -> str:
    """Check the name of an initialiser: "mean", "copy=TOKEN" ... Raises UsageError."""
    name, equals, argument = text.partition("=")
    if name not in METHODS:
        guess = closest(name, METHODS)
        hint = f"did you mean {guess}?" if guess else f"there is {', '.join(METHODS)}"
        raise UsageError(f"there is no initialiser {name!r}", hint=hint)
    wanted = _TAKES_ARGUMENT.get(name)
    if wanted and not argument:
        raise UsageError(f"the initialiser {name} needs to know of what", hint=f"--init {name}={wanted}")
    if equals and not wanted:
        raise UsageError(f"the initialiser {name} takes no argument, found {argument!r}")
    return text


def roles(texts: Sequence[str]) -> Mapping[Role, str]:
    """``["pad=<pad>"]`` -> the role and its text. Raises UsageError."""
    found: dict[Role, str] = {}
    for text in texts:
        name, equals, content = text.partition("=")
        role = next((role for role in Role if role.value == name), None)
        known = ", ".join(role.value for role in Role)
        if not equals or not content:
            raise UsageError(f"--set-role must be ROLE=TEXT, not {text!r}", hint=f"a role is one of {known}")
        if role is None:
            raise UsageError(f"--set-role: there is no role {name!r}", hint=f"there is {known}")
        if role in found:
            raise UsageError(f"--set-role names {name} twice")
        found[role] = content
    return found


def token_file(path: Path) -> tuple[NewToken, ...]:
    """New tokens from a file: .json (a list), .jsonl (one a line), or plain text with one token a line.

    A JSON entry is a text, or an object with content, special, lstrip, rstrip, normalized, single_word, init
    and from (what "copy" copies, what "description" describes). Raises Unreadable and UsageError.
    """
    with open_named(str(path)) as file:
        data = file.read_all(limits.SIDE_FILE_BYTES)
    if path.suffix == ".json":
        entries = strict_json.parse(data, str(path)).value
        if not isinstance(entries, list):
            raise UsageError(f"{path}: expected a list of tokens, found {json_kind(entries)}")
        return tuple(_token(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, 1))
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise Unreadable("json-encoding", str(path), f"not UTF-8 at byte {error.start}") from None
    return tuple(_from_lines(lines, path))


def _from_lines(lines: Sequence[str], path: Path) -> Iterator[NewToken]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r")
        if path.suffix != ".jsonl":
            if text:
                yield NewToken(text)
        elif text.strip():
            yield _token(strict_json.parse(text.encode(), str(path)).value, f"{path}, line {number}")


def _token(entry: object, where: str) -> NewToken:
    if isinstance(entry, str):
        return NewToken(entry)
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
        raise UsageError(f"{where}: expected a text, or an object with a content")
    for key, value in entry.items():
        if key not in _FIELDS:
            guess = closest(key, _FIELDS)
            hint = f"did you mean {guess}?" if guess else f"there is {', '.join(_FIELDS)}"
            raise UsageError(f"{where}: unknown field {shown(key)}", hint=hint)
        if key in FLAGS and not isinstance(value, bool):
            raise UsageError(f"{where}: {key} must be true or false")
        if key in ("init", "from") and not isinstance(value, str):
            raise UsageError(f"{where}: {key} must be a text")
    flags = {key: entry[key] for key in FLAGS if key in entry}
    return NewToken(entry["content"], init=_init(entry, where), **flags)


def _init(entry: Mapping[str, object], where: str) -> str:
    stated, origin = entry.get("init"), entry.get("from")
    if origin is None:
        return method(str(stated)) if stated else ""
    if stated not in _TAKES_ARGUMENT:
        raise UsageError(f"{where}: `from` goes with an init of copy or description")
    return method(f"{stated}={origin}")
