"""What can be chosen for an audit on the command line, in the environment or in a file: keys and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tokaudit.errors import UsageError
from tokaudit.findings import Severity
from tokaudit.text import closest

PREFIX = "TOKAUDIT_"
OTHER_VARIABLES = ("CONFIG", "DEBUG", "PATIENCE")  # no options of an audit
ONLY_OPTIONS = ("STRICT", "TOKENIZER", "LOCK", "BASE", "OPTIMIZER", "QUIET", "VERBOSE", "ISOLATED")
LEVELS: Mapping[object, Severity] = {severity.word: severity for severity in Severity}
COLOURS = ("auto", "always", "never")

_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


class Choices(NamedTuple):  # a dataclass would take longer to define than to use
    """What one place says, None where it says nothing. ``timeout`` is in seconds, for each of many models."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    fail_on: Severity | None = None
    format: str | None = None
    output: tuple[str, ...] | None = None
    tensor_parallel: int | None = None
    no_weights: bool | None = None
    deep: bool | None = None
    color: str | None = None
    baseline: str | None = None
    jobs: int | None = None
    timeout: int | None = None
    data: tuple[str, ...] | None = None
    dtype: str | None = None
    engine: str | None = None

    def over(self, other: Choices) -> Choices:
        """These, and the other's where these say nothing."""
        stated = {key: value for key, value in self._asdict().items() if value is not None}
        return other._replace(**stated)


def choices(values: Mapping[str, object], where: Callable[[str], str]) -> Choices:
    """Check values by their keys (``fail-on``). ``where`` names a key in errors.

    Raises UsageError for a value of the wrong type or out of range.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        with named(where(key)):
            found[key.replace("-", "_")] = READERS[key](value)
    return Choices(**found)


def from_environment(environ: Mapping[str, str]) -> Choices:
    """``TOKAUDIT_FAIL_ON=warning`` ...; lists are separated by commas, an empty variable says nothing."""
    stated = {key: environ[_variable(key)] for key in READERS if environ.get(_variable(key))}
    return choices({key: _typed(key, value) for key, value in stated.items()}, _variable)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A note for each variable that is nearly one of ours, or an option that has none: it says nothing.

    Whoever set it expects it to count. Other programs may have variables of that prefix, too.
    """
    known = [_variable(key).removeprefix(PREFIX) for key in READERS] + [*OTHER_VARIABLES]
    notes = []
    for name in sorted(environ):
        word = name.removeprefix(PREFIX)
        if word == name or word in known or not environ[name]:
            continue
        if word in ONLY_OPTIONS:
            notes.append(f"{name} says nothing: --{word.lower()} is an option only")
        elif guess := closest(word, known):
            notes.append(f"{name} says nothing: did you mean {PREFIX}{guess}?")
    return notes


def _variable(key: str) -> str:
    return PREFIX + key.replace("-", "_").upper()


def _typed(key: str, value: str) -> object:
    """The value that a text stands for; the text itself where it stands for none."""
    if key in ("select", "ignore", "output", "data"):
        return separated(value)
    if key in ("no-weights", "deep"):
        return _SWITCH.get(value.lower(), value)
    return int(value) if re.fullmatch("[0-9]{1,9}", value) else value


def separated(value: str) -> list[str]:
    """``"TA1, no-pad-token"`` -> the two names."""
    return [part.strip() for part in value.split(",") if part.strip()]


# What a value must be. Each raises UsageError, before whose message the name of the key is put.


def _level(value: object) -> Severity:
    if not isinstance(value, str) or value not in LEVELS:
        raise UsageError(f"must be note, warning or error, not {words(value)}")
    return LEVELS[value]


def _count(value: object) -> int:
    if type(value) is not int:
        raise UsageError(f"must be a whole number, not {words(value)}")
    if value < 1:
        raise UsageError(f"must be at least 1, not {value}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"must be true or false, not {words(value)}")
    return value


def _color(value: object) -> str:
    if value not in COLOURS:
        raise UsageError(f"must be auto, always or never, not {words(value)}")
    return str(value)


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"must be a text, not {words(value)}")
    return value


def _list(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(member, str) for member in value):
        raise UsageError(f"must be a list of texts, not {words(value)}")
    return tuple(value)


def _rules(value: object) -> tuple[str, ...]:
    from tokaudit.audit import select_rules

    if isinstance(value, list) and any(isinstance(member, dict) for member in value):
        raise UsageError("must be a list of rules", hint="entries with a reason are [[suppress]]")
    names = _list(value)
    select_rules(names)
    return names


def _format(value: object) -> str:
    from tokaudit.reporters import reporter

    name = text(value)
    reporter(name)
    return name


def _outputs(value: object) -> tuple[str, ...]:
    outputs = _list(value)
    for output in outputs:
        format, separator, file = output.partition("=")
        if not (separator and file):
            raise UsageError(f"must be FORMAT=FILE, not {output!r}", hint="sarif=tokaudit.sarif")
        _format(format)
    return outputs


def _dtype(value: object) -> str:
    from tokaudit.contract.data import DTYPES

    return _one_of(DTYPES, value)


def _engine(value: object) -> str:
    from tokaudit.contract.data import ENGINES

    return _one_of(ENGINES, value)


def _one_of(known: Sequence[str], value: object) -> str:
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"must be {', '.join(known[:-1])} or {known[-1]}, not {words(value)}")
    return value


READERS: Mapping[str, Callable[[object], object]] = {
    "select": _rules,
    "ignore": _rules,
    "fail-on": _level,
    "format": _format,
    "output": _outputs,
    "tensor-parallel": _count,
    "no-weights": _flag,
    "deep": _flag,
    "color": _color,
    "baseline": text,
    "jobs": _count,
    "timeout": _count,
    "data": _list,
    "dtype": _dtype,
    "engine": _engine,
}


def words(value: object) -> str:
    """A value in an error, as TOML has it."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)


def unknown(where: str, key: str, known: Iterable[str]) -> UsageError:
    """The error about a key that there is not."""
    names = tuple(known)
    guess = closest(key, names)
    hint = f"did you mean {guess}?" if guess else f"there is {', '.join(names)}"
    return UsageError(f"{where} is not known", hint=hint)


@contextmanager
def named(where: str) -> Iterator[None]:
    """Put where a value stands before the error about it."""
    try:
        yield
    except UsageError as error:
        separator = " " if error.message.startswith("must ") else ": "
        raise UsageError(f"{where}{separator}{error.message}", hint=error.hint) from None
