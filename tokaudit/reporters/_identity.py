"""By what a CI system recognises a finding in the next run, in which lines and numbers may be others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from tokaudit.findings import Location, fingerprint
from tokaudit.report import Report
from tokaudit.reporters import Places

UNREADABLE = "unreadable"  # stands where the rule of a finding would


def of_findings(report: Report, places: Places) -> Sequence[str]:
    """One for each finding, in order: the hash of its place and fingerprint, numbered where they recur."""
    return _numbered(
        (places.path(report.target, finding.claims[0].at), fingerprint(finding))
        for finding in report.findings
    )


def of_unreadable(report: Report, places: Places) -> Sequence[str]:
    """One for each unreadable part, in order."""
    parts = report.unreadable
    return _numbered((places.path(report.target, Location(part.file)), part.code) for part in parts)


def _numbered(parts: Iterable[tuple[str, str]]) -> Sequence[str]:
    """``HASH:1``, as CodeQL spells them; equal parts are told apart by their number."""
    seen: Counter[str] = Counter()
    identities = []
    for words in parts:
        digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        seen[digest] += 1
        identities.append(f"{digest}:{seen[digest]}")
    return identities
