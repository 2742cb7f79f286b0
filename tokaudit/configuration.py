"""The file that settings come from.

That is tokaudit.toml, or the table ``[tool.tokaudit]`` of a pyproject.toml: the nearest one, from the working
directory upward to the root of the git repository. One that lies in what is audited is not read, or whoever
wrote the model would choose what is found in it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokaudit.choices import LEVELS, READERS, Choices, choices, named, text, unknown, words
from tokaudit.errors import Unreadable, UsageError
from tokaudit.findings import Severity
from tokaudit.sources import open_named
from tokaudit.text import shown

if TYPE_CHECKING:
    import datetime

    from tokaudit.rule import Rule
    from tokaudit.suppression import Suppression

OWN_FILE = "tokaudit.toml"
PROJECT_FILE = "pyproject.toml"
LARGEST = 1 << 20  # bytes of such a file

_KEYS_OF_AN_ENTRY = ("rule", "reason", "model", "subject", "expires")

Table = Mapping[str, object]


class SettingsFile(NamedTuple):
    """What a file says: its name as it is shown, and its directory, to which paths in it are relative.

    ``severity`` has the level of rules by their codes, ``off`` the codes of those that are not to run,
    ``suppress`` the entries ``[[suppress]]``.
    """

    name: str
    folder: Path
    choices: Choices
    severity: Mapping[str, Severity]
    off: frozenset[str]
    suppress: tuple[Suppression, ...]


def find(start: Path, audited: Sequence[str]) -> tuple[SettingsFile | None, list[str]]:
    """The nearest file, upward from a directory, and what has to be said about others that are not read.

    ``audited`` are the directories of the audit. Raises UsageError where the file is not valid.
    """
    roots = [_root(path) for path in audited]
    notes: list[str] = []
    for folder in (start, *start.parents):
        for file in (folder / OWN_FILE, folder / PROJECT_FILE):
            if not os.path.isfile(file):
                continue
            name = os.path.relpath(file, start)
            why_not = _not_to_be_read(file, roots)
            if why_not:
                notes += [f"{name} is not read: {why_not}; --config reads it"] if _is_meant(file) else []
                continue
            table = _table(file, name)
            if table is not None:
                notes += _passed_over(file, name)
                return _parsed(table, file, name), notes
        if (folder / ".git").exists():
            break
    return None, notes


def read(path: str) -> SettingsFile:
    """The settings in a file that the user names. Raises UsageError."""
    file = Path(os.path.abspath(path))
    document = _document(file, path)
    table = _own_table(document, path) if file.name == PROJECT_FILE else document
    if table is None:
        raise UsageError(f"{path} has no table [tool.tokaudit]")
    return _parsed(table, file, path)


def _root(path: str) -> Path:
    """What counts as audited with a path: in the Hugging Face cache the whole repository of the model."""
    real = Path(os.path.realpath(path))
    return next((folder for folder in (real, *real.parents) if folder.name.startswith("models--")), real)


def _not_to_be_read(file: Path, roots: Sequence[Path]) -> str:
    """Why the file must not be taken for the user's own; "" where it may."""
    for path in (os.path.realpath(file), os.path.join(os.path.realpath(file.parent), file.name)):
        if any(Path(path).is_relative_to(root) for root in roots):
            return "it lies in what is audited"
    mode = file.parent.stat().st_mode
    if mode & stat.S_ISVTX and mode & stat.S_IWOTH:  # /tmp: anyone may have put it there
        return "everyone can write to its directory"
    return ""


def _is_meant(file: Path) -> bool:
    """Whether the user may expect that the file is read."""
    try:
        return file.name == OWN_FILE or _mentions_tokaudit(_bytes(file, file.name))
    except UsageError:
        return False


def _passed_over(file: Path, name: str) -> Iterator[str]:
    other = file.with_name(PROJECT_FILE)
    if file.name == OWN_FILE and os.path.isfile(other) and b"[tool.tokaudit" in _bytes(other, other.name):
        yield f"{name} is read, and [tool.tokaudit] of the {PROJECT_FILE} beside it is not"


def _table(file: Path, name: str) -> Table | None:
    """What the file says to tokaudit; None for a pyproject.toml that says nothing."""
    if file.name == OWN_FILE:
        return _document(file, name)
    if not _mentions_tokaudit(_bytes(file, name)):
        return None
    return _own_table(_document(file, name), name)


def _mentions_tokaudit(data: bytes) -> bool:
    """Most files of projects do not: looking takes less time than importing the parser."""
    return b"tokaudit" in data


def _own_table(document: Table, name: str) -> Table | None:
    tool = document.get("tool", {})
    table = tool.get("tokaudit") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{name}: tool.tokaudit must be a table, not {words(table)}")
    return table


def _bytes(file: Path, name: str) -> bytes:
    try:
        with open_named(os.fspath(file)) as opened:
            return opened.read_all(LARGEST)
    except Unreadable as error:
        raise UsageError(f"{name} cannot be read: {error.message}") from None


def _document(file: Path, name: str) -> Table:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: Table = tomllib.loads(_bytes(file, name).decode("utf-8"))
    except RecursionError:
        raise UsageError(f"{name} is no TOML: it is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{name} is no TOML: {error}") from None
    return document


def _parsed(table: Table, file: Path, name: str) -> SettingsFile:
    prefix = f"{name}: tool.tokaudit." if file.name == PROJECT_FILE else f"{name}: "
    for key in table:
        if key not in (*READERS, "severity", "suppress"):
            raise unknown(prefix + key, key, (*READERS, "severity", "suppress"))
    stated = choices({key: table[key] for key in READERS if key in table}, lambda key: prefix + key)
    with named(f"{prefix}severity"):
        severity = _severities(table.get("severity", {}))
    with named(f"{prefix}suppress"):
        suppress = _suppressions(table.get("suppress", []))
    return SettingsFile(
        name=name,
        folder=file.parent,
        choices=_placed(stated, file.parent),
        severity={code: level for code, level in severity.items() if level is not None},
        off=frozenset(code for code, level in severity.items() if level is None),
        suppress=suppress,
    )


def _placed(stated: Choices, folder: Path) -> Choices:
    """The files that a file of settings names lie relative to it."""
    output = stated.output
    if output is not None:
        pairs = [value.partition("=") for value in output]
        output = tuple(f"{format}={os.path.join(folder, name)}" for format, _, name in pairs)
    baseline = None if stated.baseline is None else os.path.join(folder, stated.baseline)
    data = None if stated.data is None else tuple(os.path.join(folder, path) for path in stated.data)
    return stated._replace(output=output, baseline=baseline, data=data)


def _severities(value: object) -> Mapping[str, Severity | None]:
    """By the code of the rule; None for "off"."""
    if not isinstance(value, dict):
        raise UsageError(f"must be a table of rules and levels, not {words(value)}")
    found: dict[str, Severity | None] = {}
    for name, level in value.items():
        code = _rule(name).code
        if code in found:
            raise UsageError(f"{code} stands there twice")
        if not isinstance(level, str) or level not in (*LEVELS, "off"):
            raise UsageError(f"{name} must be note, warning, error or off, not {words(level)}")
        found[code] = LEVELS.get(level)
    return found


def _suppressions(value: object) -> tuple[Suppression, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        hint = "begin each entry with [[suppress]] (in pyproject.toml [[tool.tokaudit.suppress]])"
        raise UsageError(f"must be a list of tables, not {words(value)}", hint=hint)
    found: list[Suppression] = []
    for number, entry in enumerate(value, 1):
        with named(f"entry {number}"):
            found.append(_suppression(entry))
    return tuple(found)


def _suppression(entry: Table) -> Suppression:
    from tokaudit.suppression import Suppression

    for key in entry:
        if key not in _KEYS_OF_AN_ENTRY and key in READERS:
            raise UsageError(f"{key} is no key of an entry", hint=f"put {key} above the first entry")
        if key not in _KEYS_OF_AN_ENTRY:
            raise unknown(key, key, _KEYS_OF_AN_ENTRY)
    for key in ("rule", "reason"):
        if key not in entry:
            raise UsageError(f"the {key} is missing")
    return Suppression(
        rule=(rule := _rule(_text(entry, "rule"))).code,
        slug=rule.slug,
        reason=_text(entry, "reason"),
        model=_text(entry, "model") if "model" in entry else None,
        subject=_text(entry, "subject") if "subject" in entry else None,
        expires=_date(entry["expires"]) if "expires" in entry else None,
    )


def _text(entry: Table, key: str) -> str:
    with named(key):
        return text(entry[key])


def _date(value: object) -> datetime.date:
    import datetime

    if type(value) is not datetime.date:
        hint = "without quotes and without a time: expires = 2027-01-31"
        raise UsageError(f"expires must be a date, not {words(value)}", hint=hint)
    return value


def _rule(name: str) -> type[Rule]:
    """The rule of that code or slug."""
    from tokaudit.audit import select_rules

    rules = select_rules((name,))
    if len(rules) != 1:
        raise UsageError(f"{shown(name)} is not one rule, but {len(rules)}")
    return rules[0]
