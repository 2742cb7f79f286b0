"""`tokaudit check`: which findings are set aside, and the baseline that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokaudit.cli.outputs import file_outside
from tokaudit.errors import TokauditError

if TYPE_CHECKING:
    from tokaudit.baseline import Baseline
    from tokaudit.configuration import SettingsFile
    from tokaudit.report import Report


class SettingAside:
    """By a file of settings, by a baseline, or by one that is written first.

    Raises UsageError and Unreadable where the baseline cannot be read, and UsageError where the new one
    may not be written.
    """

    def __init__(
        self, file: SettingsFile | None, baseline: str | None, write: str | None, audited: Sequence[str]
    ) -> None:
        self.file = file
        instead = "a baseline is read again: give a file"
        self.write = None if write is None else file_outside(write, audited, "--write-baseline", instead)
        self.baseline = None if baseline is None or write is not None else _read(baseline)

    def settled(self, reports: Sequence[Report]) -> tuple[list[Report], list[TokauditError]]:
        """The reports as the settings and the baseline have them, and what went wrong."""
        if self.file is None and self.baseline is None and self.write is None:
            return list(reports), []

        from datetime import datetime, timezone

        from tokaudit.suppression import Policy, settle

        today = datetime.now(timezone.utc).date()
        policy = Policy(baseline=self.baseline)
        if self.file is not None:
            file = self.file
            policy = Policy(file.name, file.folder, file.suppress, file.severity, self.baseline)
        if self.write is None:
            return settle(reports, policy, today), []
        try:
            _write(self.write, settle(reports, replace(policy, severity={}), today))
        except TokauditError as error:
            return settle(reports, policy, today), [error]
        return settle(reports, replace(policy, baseline=_read(str(self.write))), today), []


def _read(baseline: str) -> Baseline:
    from tokaudit.baseline import read

    return read(baseline)


def _write(file: Path, reports: Sequence[Report]) -> None:
    """Every model must have been read: what a baseline lacks is new the next time."""
    from tokaudit.atomic import new_file
    from tokaudit.baseline import to_text

    unread = [report.target for report in reports if report.unreadable]
    if unread:
        words = f"{unread[0]} could not be read"
        raise TokauditError(f"{file} was not written: {words}", hint="a baseline accepts findings only")
    with new_file(file) as building:
        building.write_text(to_text(reports, file), encoding="ascii", newline="\n")
