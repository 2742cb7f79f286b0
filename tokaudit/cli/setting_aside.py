"""`tokaudit check`: which findings are set aside, and the baseline that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokaudit.errors import TokauditError

if TYPE_CHECKING:
    from tokaudit.configuration import SettingsFile
    from tokaudit.report import Report


def settled(
    reports: Sequence[Report], file: SettingsFile | None, baseline: str | None, write: Path | None
) -> tuple[list[Report], list[TokauditError]]:
    """The reports as the settings and the baseline have them, and what went wrong.

    With ``write``, the baseline of these findings is written there first, and counts. It needs every model
    to be read: what is missing from it would be new the next time.
    """
    if file is None and baseline is None and write is None:
        return list(reports), []

    from datetime import datetime, timezone

    from tokaudit.suppression import Policy, settle

    policy = Policy()
    if file is not None:
        policy = Policy(file.name, file.folder, file.suppress, file.severity)
    today = datetime.now(timezone.utc).date()
    failures: list[TokauditError] = []
    if write is not None:
        try:
            _write(write, settle(reports, replace(policy, severity={}), today))
            baseline = str(write)
        except TokauditError as error:
            failures.append(error)
    if baseline is not None:
        from tokaudit.baseline import read

        policy = replace(policy, baseline=read(baseline))
    return settle(reports, policy, today), failures


def _write(file: Path, reports: Sequence[Report]) -> None:
    from tokaudit.atomic import new_file
    from tokaudit.baseline import to_text

    unread = [report.target for report in reports if report.unreadable]
    if unread:
        words = f"{len(unread)} of {len(reports)} models could not be read"
        raise TokauditError(
            f"the baseline {file} was not written: {words}", hint=f"the first one is {unread[0]}"
        )
    with new_file(file) as building:
        building.write_text(to_text(reports, file), encoding="ascii", newline="\n")
