"""The settings of a call: its options over the environment over the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokaudit import configuration
from tokaudit.choices import PREFIX, Choices, choices, from_environment
from tokaudit.configuration import Found, SettingsFile
from tokaudit.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """``choices`` are what counts in the end, ``notes`` what has to be said about files."""

    choices: Choices
    file: SettingsFile | None = None
    notes: tuple[str, ...] = ()


def settings(
    options: Mapping[str, object], *, config: str | None, isolated: bool, audited: Sequence[str]
) -> Settings:
    """Put the options that were given (None: not given) over what the environment and the file say.

    Raises UsageError for a value that is not valid, wherever it stands.
    """
    if isolated and config is not None:
        raise UsageError("--isolated and --config exclude each other")
    given = choices(
        {key: value for key, value in options.items() if value is not None}, lambda key: f"--{key}"
    )
    if isolated:
        return Settings(given)
    found = _file(config or os.environ.get(f"{PREFIX}CONFIG"), audited)
    given = given.over(from_environment(os.environ))
    if found.file is not None:
        given = given.over(found.file.choices)
    return Settings(given, found.file, found.notes)


def _file(config: str | None, audited: Sequence[str]) -> Found:
    if config:
        return Found(configuration.read(config))
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return Found()
    return configuration.find(here, audited)
