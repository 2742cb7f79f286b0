"""The settings of a call: its options over the environment over the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokaudit import configuration
from tokaudit.choices import PREFIX, Choices, choices, from_environment, unknown_variables
from tokaudit.configuration import SettingsFile


def settings(
    options: Mapping[str, object], *, config: str | None, isolated: bool, audited: Sequence[str]
) -> tuple[Choices, SettingsFile | None, list[str]]:
    """What counts in the end, the file of settings, and what has to be said about other files.

    The options that were given (those not None) go before the environment, and that before the file. Raises
    UsageError for a value that is not valid, wherever it stands.
    """
    given = choices(
        {key: value for key, value in options.items() if value is not None}, lambda key: f"--{key}"
    )
    if isolated:
        return given, None, []
    file, notes = _file(config or os.environ.get(f"{PREFIX}CONFIG"), audited)
    notes += unknown_variables(os.environ)
    given = given.over(from_environment(os.environ))
    if file is None:
        return given, None, notes
    stated = file.choices
    if os.environ.get("NO_COLOR") or os.environ.get("FORCE_COLOR"):
        stated = stated._replace(color=None)  # the environment speaks about colours, too
    return given.over(stated), file, notes


def _file(config: str | None, audited: Sequence[str]) -> tuple[SettingsFile | None, list[str]]:
    if config:
        return configuration.read(config), []
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return None, []
    return configuration.find(here, audited)
