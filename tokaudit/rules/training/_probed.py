"""What the probes of a live module saw, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.findings import Claim, Location, Severity

if TYPE_CHECKING:
    from tokaudit.contract.module import Deviation


def severity(deviation: Deviation) -> Severity:
    """What has a name may be meant; what has none probably is not."""
    return Severity.NOTE if deviation.explained else Severity.WARNING


def claims(deviation: Deviation, table: Location) -> Iterator[Claim]:
    yield Claim(deviation.at, deviation.words)
    if deviation.at != table:
        yield Claim(table, "the table")
