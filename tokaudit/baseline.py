"""A baseline: the findings of one day, accepted, so that only new ones count.

The file names each finding so that people can review it and recognises it by its fingerprint, which has no
numbers in it. Equal findings are equal entries, each of which accepts one. It is the same for the same
findings byte by byte: sorted, without a date, with models named relative to its own directory.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokaudit.errors import Unreadable, UsageError
from tokaudit.findings import Finding, Location, Severity, fingerprint
from tokaudit.formats import limits
from tokaudit.formats.strict_json import parse_object
from tokaudit.report import Report
from tokaudit.sources import open_named
from tokaudit.suppression import model_name
from tokaudit.text import json_value, pointed

VERSION = 1

_REMEDY = "make it again with --write-baseline"


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted finding, at the level that its rule gave it."""

    fingerprint: str
    rule: str
    slug: str
    level: Severity
    subject: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """``name`` is the file as the user named it, ``models`` how often each finding of a model is accepted."""

    name: str
    folder: Path
    models: Mapping[str, Counter[Accepted]]

    def of(self, target: str) -> Counter[Accepted]:
        """What is accepted of that model, to be used up."""
        return Counter(self.models.get(_writable(model_name(target, self.folder))))


def read(path: str) -> Baseline:
    """Raises UsageError where there is no such file, and Unreadable ("baseline-version", "baseline-malformed"
    and as JSON files do) where it is no baseline.
    """
    try:
        with open_named(path) as file:
            data = file.read_all(limits.LOCK_BYTES)
    except Unreadable as error:
        if error.code != "no-such-file":
            raise
        hint = "`--write-baseline FILE` makes one"
        raise UsageError(f"there is no baseline {path!r}", hint=hint) from None
    parsed = parse_object(data, path)
    version = parsed.value.get("baselineVersion")
    if type(version) is int and version > VERSION:
        message = f"baselineVersion is {version}: written by a newer tokaudit"
        raise Unreadable("baseline-version", path, message, hint=f"this one reads version {VERSION}")
    at = Location(path)
    if type(version) is not int or version != VERSION:
        raise _malformed(at.child("baselineVersion"), str(VERSION), version)
    models = parsed.value.get("models")
    if not isinstance(models, dict):
        raise _malformed(at.child("models"), "an object", models)
    return Baseline(
        name=path,
        folder=Path(os.path.realpath(path)).parent,
        models={name: _entries(entries, at.child("models", name)) for name, entries in models.items()},
    )


def _entries(value: object, at: Location) -> Counter[Accepted]:
    if not isinstance(value, list):
        raise _malformed(at, "a list", value)
    return Counter(_accepted(entry, at.child(i)) for i, entry in enumerate(value))


def _accepted(value: object, at: Location) -> Accepted:
    if not isinstance(value, dict):
        raise _malformed(at, "an object", value)

    def text(key: str, form: str = r"(?s).*") -> str:
        found = value.get(key)
        if not isinstance(found, str) or not re.fullmatch(form, found):
            raise _malformed(at.child(key), f"a {key}", found)
        return found

    levels = {severity.word: severity for severity in Severity}
    return Accepted(
        fingerprint=text("fingerprint", "[0-9a-f]{64}"),
        rule=text("rule", r"TA[0-9]{3}"),
        slug=text("slug", r"[a-z0-9-]+"),
        level=levels[text("level", "|".join(levels))],
        subject=text("subject"),
    )


def _malformed(at: Location, expected: str, found: object) -> Unreadable:
    message = f"{pointed(at.pointer)}: expected {expected}, found {json_value(found)}"
    return Unreadable("baseline-malformed", at.file, message, hint=_REMEDY)


def to_text(reports: Sequence[Report], file: Path) -> str:
    """The baseline that accepts every finding of these reports, for a file in that place."""
    from tokaudit.reporters.json import dump

    models: dict[str, Counter[Finding]] = {}
    for report in reports:
        name = _writable(model_name(report.target, file.parent))
        # The union: of two revisions of one model in a cache, each has its findings accepted.
        models[name] = models.get(name, Counter()) | Counter(report.findings)
    return dump(
        {
            "baselineVersion": VERSION,
            "models": {
                name: sorted(map(_entry, models[name].elements()), key=lambda entry: tuple(entry.values()))
                for name in sorted(models)
                if models[name]
            },
        }
    )


def _entry(finding: Finding) -> Mapping[str, str]:
    """Rule, file and subject come first, as they order the entries."""
    return {
        "rule": finding.rule,
        "slug": finding.slug,
        "file": _writable(finding.claims[0].at.file),
        "subject": _writable(finding.subject),
        "level": finding.severity.word,
        "message": _writable(finding.message),
        "fingerprint": fingerprint(finding),
    }


def _writable(text: str) -> str:
    """Bytes of a name that are no UTF-8 are half surrogates in Python and may not stand in JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
