"""SARIF 2.1.0, with what GitHub code scanning asks for beyond the standard.

One run for each model, so that each keeps its alerts when another is audited. GitHub refuses a file with
more than 20 runs or with two of one category: then all models share one run.

Texts are inert, like everywhere, and hold neither links nor placeholders in SARIF's own syntax.
Suppressed findings are left out: GitHub would show them. A file without lines is shown at its beginning,
and the tensor stands in the logical location.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from tokaudit import __version__
from tokaudit.errors import Unreadable
from tokaudit.findings import Claim, Finding, Location, fingerprint
from tokaudit.report import Report, Skipped
from tokaudit.reporters import View
from tokaudit.reporters._identity import UNREADABLE, of_findings, of_unreadable
from tokaudit.reporters._texts import LONGEST, plain_text
from tokaudit.reporters.json import Json, dump
from tokaudit.rule import Rule, all_rules

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

# Source: GitHub's documentation of its SARIF support.
MOST_RUNS = 20
MOST_RESULTS = 25_000  # of one run
MOST_LOCATIONS = 100  # of one result that are shown

# A rule with a score becomes a security alert; these are about files that do harm when a loader opens them.
SECURITY_SEVERITY = {"path-outside-directory": "7.5", "unsafe-weights": "8.8"}

_UNREADABLE_RULE: Json = {
    "id": UNREADABLE,
    "name": "Unreadable",
    "shortDescription": {"text": "A part of the model cannot be read."},
    "fullDescription": {"text": "What depends on that part was not checked, so there is no verdict."},
    "help": {"text": "Restore the file, download it again, or raise the limit that it exceeds."},
    "defaultConfiguration": {"level": "error"},
    "properties": {"tags": ["input"], "problem.severity": "error"},
}


def render(reports: Sequence[Report], view: View) -> str:
    return dump(
        {
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": _runs(reports, view),
        }
    )


def _runs(reports: Sequence[Report], view: View) -> Sequence[Json]:
    """The id up to its last slash is what GitHub calls the category."""
    names = (view.places.path(report.target, Location("")) for report in reports)
    ids = [f"tokaudit/{plain_text(name, view)}/" for name in names]
    if len(reports) > MOST_RUNS or len(set(ids)) < len(ids):
        return [_run(reports, "tokaudit/", view)]
    return [_run([report], id, view) for report, id in zip(reports, ids, strict=True)]


def _run(reports: Sequence[Report], id: str, view: View) -> Json:
    results = [result for report in reports for result in _results(report, view)]
    notifications = [message for report in reports for message in _notifications(report, view)]
    if len(results) > MOST_RESULTS:
        words = f"{len(results) - MOST_RESULTS} more results are not in this file"
        notifications.append({"level": "warning", "message": {"text": words}})
    return {
        "tool": {"driver": {"name": "tokaudit", "version": __version__, "rules": _rules(reports)}},
        "automationDetails": {"id": id},
        "invocations": [
            {
                "executionSuccessful": not any(report.unreadable for report in reports),
                "toolExecutionNotifications": notifications,
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": results[:MOST_RESULTS],
    }


def _rules(reports: Sequence[Report]) -> Sequence[Json]:
    """What ran, was skipped or found something; a rule without findings resolves its old alerts."""
    codes = {ref.code for report in reports for ref in report.checked}
    codes |= {skip.rule.code for report in reports for skip in report.skipped}
    codes |= {finding.rule for report in reports for finding in report.findings}
    rules = [_rule(rule) for rule in all_rules() if rule.code in codes]
    return [*rules, _UNREADABLE_RULE] if any(report.unreadable for report in reports) else rules


def _rule(rule: type[Rule]) -> Json:
    page = inspect.getdoc(rule) or rule.summary()
    properties: dict[str, object] = {"tags": [rule.area()], "problem.severity": _problem(rule)}
    if rule.slug in SECURITY_SEVERITY:
        properties["tags"] = [rule.area(), "security"]
        properties["security-severity"] = SECURITY_SEVERITY[rule.slug]
    return {
        "id": rule.code,
        "name": rule.__name__,
        "shortDescription": {"text": rule.summary()},
        "fullDescription": {"text": _what_it_finds(page)},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": rule.severity.word},
        "properties": properties,
    }


def _problem(rule: type[Rule]) -> str:
    """GitHub's words for the severity of what is no security alert."""
    return {"error": "error", "warning": "warning", "note": "recommendation"}[rule.severity.word]


def _what_it_finds(page: str) -> str:
    """The first paragraph of that section, on one line; the whole page where there is no such section."""
    section = page.partition("## What it finds")[2] or page
    return " ".join(section.strip().split("\n\n")[0].split())


def _results(report: Report, view: View) -> Iterator[Json]:
    for part, identity in zip(report.unreadable, of_unreadable(report, view.places), strict=True):
        yield {
            "ruleId": UNREADABLE,
            "level": "error",
            "message": _message(_said(part), part.hint and f"Fix: {part.hint}", view=view),
            "locations": [_location(report.target, Location(part.file), view)],
            "partialFingerprints": {"primaryLocationLineHash": identity},
        }
    for finding, identity in zip(report.findings, of_findings(report, view.places), strict=True):
        yield _result(report.target, finding, identity, view)


def _result(target: str, finding: Finding, identity: str, view: View) -> Json:
    first, *others = finding.claims
    related: list[Json] = []
    for claim in others[: MOST_LOCATIONS - 1]:
        place = _claim(target, claim, view)
        if place not in related:  # SARIF forbids repeats: two claims can be the same but for their rows
            related.append(place)
    return {
        "ruleId": finding.rule,
        "level": finding.severity.word,
        "message": _message(finding.message, finding.why, f"Fix: {finding.fix}", view=view),
        "locations": [_claim(target, first, view)],
        "relatedLocations": related,
        "partialFingerprints": {"primaryLocationLineHash": identity, "tokaudit/v1": fingerprint(finding)},
    }


def _said(part: Unreadable) -> str:
    return f"{part.code}: {part.file}: {part.message}" if part.file else f"{part.code}: {part.message}"


def _claim(target: str, claim: Claim, view: View) -> Json:
    return {**_location(target, claim.at, view), "message": _message(claim.says, view=view)}


def _location(target: str, at: Location, view: View) -> Json:
    region = view.places.region(target, at)
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(view.places.path(target, at))},
            "region": {
                "startLine": region.line,
                "startColumn": region.column,
                "endLine": region.line,
                "endColumn": region.end_column,
            },
        }
    }
    if at.tensor or at.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": plain_text(str(at), view)}]
    return location


def _uri(path: str) -> str:
    """A relative reference of RFC 3986. A byte of a name that is no UTF-8 is that byte; so is a surrogate."""
    path = path[:LONGEST]
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "surrogatepass")
    return quote(raw, safe="/")


def _message(*paragraphs: str, view: View) -> Mapping[str, str]:
    """A plain text message: no link, which would need a ``](``, and no placeholder: braces are doubled."""
    text = "\n".join(plain_text(words, view) for words in paragraphs if words)
    text = text.replace("](", "]\\u0028").replace("{", "{{").replace("}", "}}")
    return {"text": text or "(no message)"}


def _notifications(report: Report, view: View) -> Iterable[Json]:
    """What could not be read, and what was skipped and why."""
    for part in report.unreadable:
        yield {
            "level": "error",
            "message": _message(_said(part), view=view),
            "locations": [_location(report.target, Location(part.file), view)],
        }
    for skip in report.skipped:
        yield {
            "level": "note",
            "message": _message(_skipped(skip), view=view),
            "associatedRule": {"id": skip.rule.code},
        }


def _skipped(skip: Skipped) -> str:
    return f"{skip.rule.code} {skip.rule.slug} was skipped: {skip.reason}"
