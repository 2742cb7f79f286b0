"""GitLab's Code Quality report: a JSON list, an entry for each finding and each unreadable part.

GitLab merges entries of one fingerprint, so those of two findings never agree. Suppressed findings are left
out: GitLab would show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.findings import Location, Severity
from tokaudit.report import Report
from tokaudit.reporters import View
from tokaudit.reporters._identity import UNREADABLE, of_findings, of_unreadable
from tokaudit.reporters._texts import plain_text
from tokaudit.reporters.json import Json, dump

SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(reports: Sequence[Report], view: View) -> str:
    return dump([entry for report in reports for entry in _entries(report, view)])


def _entries(report: Report, view: View) -> Iterator[Json]:
    for part, identity in zip(report.unreadable, of_unreadable(report, view.places), strict=True):
        yield {
            "description": _text(f"{part.code}: {part.message}", part.hint, view),
            "check_name": UNREADABLE,
            "fingerprint": identity,
            "severity": "blocker",
            "location": _place(report.target, Location(part.file), view),
        }
    for finding, identity in zip(report.findings, of_findings(report, view.places), strict=True):
        yield {
            "description": _text(f"{finding.rule}: {finding.message}", finding.fix, view),
            "check_name": finding.slug,
            "fingerprint": identity,
            "severity": SEVERITIES[finding.severity],
            "location": _place(report.target, finding.claims[0].at, view),
        }


def _text(message: str, fix: str, view: View) -> str:
    return plain_text(message, view) + (f". Fix: {plain_text(fix, view)}" if fix else "")


def _place(target: str, at: Location, view: View) -> Json:
    path = plain_text(view.places.path(target, at), view)
    return {"path": path, "lines": {"begin": view.places.region(target, at).line}}
