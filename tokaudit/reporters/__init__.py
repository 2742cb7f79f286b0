"""Reporters: Report -> text, one file each.

A module of this folder whose name does not begin with an underscore is an output format of that name, and
its functions are a `Reporter`. Adding a format is adding a file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

from tokaudit.errors import UsageError
from tokaudit.findings import Location, Region, Severity

if TYPE_CHECKING:
    from tokaudit.report import Report

SHOWING_TOKENS = frozenset({"html"})  # formats that want every token in the report (``Options.tokens``)


class Places(Protocol):
    """Where the files of a report lie in the repository that its readers look at.

    A report names the files of a model from its directory on. Reporters whose readers see files beside
    findings ask here, and only for what they show.
    """

    def path(self, target: str, at: Location) -> str:
        """The POSIX path of a file of that target ("" for the directory itself), relative to the repository.

        It is never empty and never leads out.
        """

    def region(self, target: str, at: Location) -> Region:
        """The lines to show; the beginning of a file that has none."""


class AsNamed:
    """Takes targets for paths in the repository. Reads nothing, so every region is the beginning."""

    def path(self, target: str, at: Location) -> str:
        return inside(at.file if at.outside else f"{target}/{inside(at.file)}")

    def region(self, target: str, at: Location) -> Region:
        return Region()


def inside(path: str) -> str:
    """The path without what leads to a root or out of one: ``/a/../../b`` -> ``b``; nothing -> ``.``"""
    return posixpath.normpath("/" + path).lstrip("/") or "."


@dataclass(frozen=True, slots=True)
class View:
    """How reports are to be shown.

    ``fail_on`` is the threshold of the verdict. ``quiet`` asks for findings only, ``verbose`` for the skipped
    rules and the notes in full. ``width`` counts terminal cells; ``unicode`` is False where only ASCII
    can be shown. ``places`` knows where the files of the models lie.
    """

    fail_on: Severity = Severity.ERROR
    quiet: bool = False
    verbose: bool = False
    width: int = 80
    colour: bool = False
    unicode: bool = True
    places: Places = field(default_factory=AsNamed)


class Reporter(Protocol):
    def render(self, reports: Sequence[Report], view: View) -> str:
        """The text for standard output, ending in a newline (or empty).

        Texts in a report may come from the model directory: a reporter makes them inert.
        """


def names() -> tuple[str, ...]:
    """The output formats there are."""
    import pkgutil

    found = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")
    return tuple(found)


def reporter(name: str) -> Reporter:
    """The reporter of that format; raises UsageError where there is none."""
    import importlib

    known = names()
    if name not in known:
        raise UsageError(f"there is no output format {name!r}", hint=f"there is {', '.join(known)}")
    return cast(Reporter, importlib.import_module(f"{__name__}.{name}"))
