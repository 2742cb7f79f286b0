"""What the probes of a live module saw, as findings."""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Deviation, DeviationKind
from tokaudit.findings import Claim, Location, Severity


def severity(deviation: Deviation) -> Severity:
    """What has a name may be meant; what has none probably is not."""
    return Severity.WARNING if deviation.kind is DeviationKind.UNEXPLAINED else Severity.NOTE


def claims(deviation: Deviation, table: Location) -> Iterator[Claim]:
    yield Claim(deviation.at, deviation.words)
    if deviation.at != table:
        yield Claim(table, "the table")
