"""For the log of a GitHub Actions step: the report as people read it, then annotations.

GitHub shows ten annotations of each level in a step, so there are no more, and one for each rule of a model.
The readable part stands between stop-commands, so that the runner takes none of its lines for a command.
Syntax and escapes: actions/runner, ActionCommand.cs.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokaudit.findings import Location, Region, Severity
from tokaudit.report import Report
from tokaudit.reporters import View, terminal
from tokaudit.reporters._texts import plain_text

MOST_OF_A_LEVEL = 10
COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


@dataclass(frozen=True, slots=True)
class _Annotation:
    severity: Severity
    title: str
    lines: tuple[str, ...]
    path: str
    region: Region


def render(reports: Sequence[Report], view: View) -> str:
    counts: Counter[Severity] = Counter()
    commands = []
    for annotation in _annotations(reports, view):
        counts[annotation.severity] += 1
        if counts[annotation.severity] <= MOST_OF_A_LEVEL:
            commands.append(_command(annotation, view))
    return _uninterpreted(terminal.render(reports, view)) + "".join(commands)


def _uninterpreted(text: str) -> str:
    token = uuid.uuid4().hex
    return f"::stop-commands::{token}\n{text}::{token}::\n" if text else ""


def _annotations(reports: Sequence[Report], view: View) -> Iterator[_Annotation]:
    """What is unreadable first, then findings, the worst of all models first."""
    for report in reports:
        for part in report.unreadable:
            place = _place(report, Location(part.file), view)
            yield _Annotation(
                Severity.ERROR, part.code, (part.message, part.hint and f"Fix: {part.hint}"), *place
            )
    for severity in sorted(Severity, reverse=True):
        for report in reports:
            yield from _of_level(report, severity, view)


def _of_level(report: Report, severity: Severity, view: View) -> Iterator[_Annotation]:
    found = [finding for finding in report.findings if finding.severity is severity]
    for _, group in groupby(found, key=lambda finding: finding.rule):
        first, *others = group
        more = f"and {len(others)} more of {first.rule}, see the log" if others else ""
        lines = (first.message, first.why, f"Fix: {first.fix}", more)
        yield _Annotation(
            severity, f"{first.rule} {first.slug}", lines, *_place(report, first.claims[0].at, view)
        )


def _place(report: Report, at: Location, view: View) -> tuple[str, Region]:
    return view.places.path(report.target, at), view.places.region(report.target, at)


def _command(annotation: _Annotation, view: View) -> str:
    region = annotation.region
    properties = {
        "file": annotation.path,
        "line": str(region.line),
        "endLine": str(region.line),
        "col": str(region.column),
        "endColumn": str(region.end_column),
        "title": annotation.title,
    }
    named = ",".join(f"{name}={_property(plain_text(text, view))}" for name, text in properties.items())
    message = "\n".join(plain_text(line, view) for line in annotation.lines if line)
    return f"::{COMMANDS[annotation.severity]} {named}::{_data(message)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
