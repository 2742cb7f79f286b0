"""What the commands ask of the values of their options, beyond what Typer does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tokaudit.errors import FactMissing, TokauditError, UsageError


def one_of(option: str, value: str, known: Sequence[str]) -> None:
    """Raises UsageError for a value that is none of the known ones, of which there are at least two."""
    if value not in known:
        *others, last = known
        raise UsageError(f"{option} must be {', '.join(others)} or {last}, not {value!r}")


def exclude(one: str, has_one: bool, other: str, has_other: bool) -> None:
    """Raises UsageError where both of two options are given."""
    if has_one and has_other:
        raise UsageError(f"{one} and {other} exclude each other")


def positive(option: str, value: int | None) -> None:
    """Raises UsageError for a number below 1."""
    if value is not None and value < 1:
        raise UsageError(f"{option} must be at least 1, not {value}")


def number(option: str, text: str, *, least: int = 0) -> int:
    """A number of at most 17 digits. Raises UsageError for anything else, and for one below ``least``."""
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and int(text) >= least):
        raise UsageError(f"{option} must be a number from {least} on, not {text!r}")
    return int(text)


@contextmanager
def facts_of(path: str) -> Iterator[None]:
    """A fact of the model in ``path`` that is not there is an error, and not a rule that is skipped."""
    try:
        yield
    except FactMissing as missing:
        hint = f"`tokaudit check {path}` says what is there and what is not"
        raise TokauditError(f"{path}: {missing.reason}", hint=hint) from missing
