"""Findings that are set aside: by entries of the settings, which need a reason, or by a baseline.

Only findings can be set aside. A part that cannot be read leaves no verdict, whatever the settings say.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tokaudit.findings import Finding, Severity, fingerprint
from tokaudit.report import Report, Suppressed, UnusedEntry

if TYPE_CHECKING:
    import datetime

    from tokaudit.baseline import Accepted, Baseline


@dataclass(frozen=True, slots=True)
class Suppression:
    """An entry ``[[suppress]]``: which findings it sets aside, and why.

    ``model`` is a pattern for the name of the model, None for every model, ``subject`` the subject of the
    finding, None for every subject. ``expires`` is the last day (UTC) on which the entry counts.
    """

    rule: str
    slug: str
    reason: str
    model: str | None = None
    subject: str | None = None
    expires: datetime.date | None = None

    def covers(self, model: str) -> bool:
        """Whether it is about the model of that name.

        ``*`` matches across slashes; a pattern without a slash may match the last part of the name alone.
        """
        if self.model is None or fnmatchcase(model, self.model):
            return True
        return "/" not in self.model and fnmatchcase(PurePath(model).name, self.model)

    def matches(self, finding: Finding) -> bool:
        return finding.rule == self.rule and self.subject in (None, finding.subject)

    def unused(self, by: str, expired: datetime.date | None = None) -> UnusedEntry:
        return UnusedEntry(by, self.rule, self.slug, self.subject or "", self.reason, expired)


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to be made of findings.

    ``file`` is where the entries and the severities (by the code of a rule) stand, ``folder`` its directory:
    the names of models are relative to it. Of the baseline's entries each sets one finding aside.
    """

    file: str = ""
    folder: Path = field(default_factory=Path)
    suppress: Sequence[Suppression] = ()
    severity: Mapping[str, Severity] = field(default_factory=dict)
    baseline: Baseline | None = None


def model_name(target: str, folder: Path) -> str:
    """How entries and baselines name a model: its POSIX path relative to the directory of their file.

    Links on the way to it are resolved, it may be one itself. A snapshot in the Hugging Face cache is
    ``models--ORG--NAME`` wherever the cache is and whatever the revision.
    """
    path = Path(os.path.abspath(target))
    for i, part in enumerate(path.parts):
        if part.startswith("models--"):
            below = path.parts[i + 1 :]
            return PurePath(part, *below[2 if below[:1] == ("snapshots",) else 0 :]).as_posix()
    real = os.path.join(os.path.realpath(path.parent), path.name)
    return PurePath(os.path.relpath(real, os.path.realpath(folder))).as_posix()


def settle(reports: Sequence[Report], policy: Policy, today: datetime.date) -> list[Report]:
    """The reports as the policy has them: severities, what is suppressed, which entries are of no use.

    An entry is of no use where its rule was decided for a model that it is about, every part could be read,
    and no finding of any of the reports matches it. Such entries stand in the reports on those models.
    """
    judgements = [_Judgement(report, policy, today) for report in reports]
    used = {entry for judgement in judgements for entry in judgement.used}
    return [judgement.report(used) for judgement in judgements]


class _Judgement:
    """One report: which of its findings stay."""

    def __init__(self, report: Report, policy: Policy, today: datetime.date) -> None:
        self.original = report
        self.policy = policy
        self.today = today
        model = model_name(report.target, policy.folder)
        self.entries = [i for i, entry in enumerate(policy.suppress) if entry.covers(model)]
        self.baseline = policy.baseline.of(report.target) if policy.baseline else Counter()
        self.used: set[int] = set()  # entries of the settings, by their number
        self.kept: list[Finding] = []
        self.suppressed: list[Suppressed] = []
        for finding in report.findings:
            by = self._set_aside(finding)
            finding = self._weighed(finding)
            if by is None:
                self.kept.append(finding)
            else:
                self.suppressed.append(Suppressed(finding, *by))

    def _set_aside(self, finding: Finding) -> tuple[str, str] | None:
        """The file that sets it aside and the reason; None where none does.

        All entries that match are used: one that is a part of another is not of no use.
        """
        matching = [i for i in self.entries if self._counts(i) and self.policy.suppress[i].matches(finding)]
        if matching:
            self.used.update(matching)
            return self.policy.file, self.policy.suppress[matching[0]].reason
        accepted = self._accepted(finding)
        if accepted is None or self.policy.baseline is None:
            return None
        self.baseline[accepted] -= 1
        return self.policy.baseline.name, "accepted by the baseline"

    def _accepted(self, finding: Finding) -> Accepted | None:
        """The entry of the baseline for it; a finding that has become worse since is a new one."""
        wanted = fingerprint(finding) if self.baseline else ""
        fitting = [
            entry
            for entry, left in self.baseline.items()
            if left and entry.fingerprint == wanted and entry.level >= finding.severity
        ]
        return min(fitting, key=lambda entry: entry.level, default=None)

    def _counts(self, entry: int) -> bool:
        expires = self.policy.suppress[entry].expires
        return expires is None or self.today <= expires

    def _weighed(self, finding: Finding) -> Finding:
        severity = self.policy.severity.get(finding.rule)
        return finding if severity is None else replace(finding, severity=severity)

    def report(self, used: set[int]) -> Report:
        self.kept.sort(key=lambda finding: (-finding.severity, finding.rule, finding.subject))
        return replace(
            self.original,
            findings=tuple(self.kept),
            suppressed=tuple(self.suppressed),
            unused=(*self._of_no_use(used), *self._no_longer_there()),
            settings=self.policy.file,
        )

    def _of_no_use(self, used: set[int]) -> Iterator[UnusedEntry]:
        for i in self.entries:
            entry = self.policy.suppress[i]
            if not self._counts(i):
                yield entry.unused(self.policy.file, entry.expires)
            elif i not in used and self._decided(entry.rule):
                yield entry.unused(self.policy.file)

    def _no_longer_there(self) -> Iterator[UnusedEntry]:
        for entry, left in self.baseline.items():
            if left and self.policy.baseline and self._decided(entry.rule):
                name = self.policy.baseline.name
                yield from [UnusedEntry(name, entry.rule, entry.slug, entry.subject, "")] * left

    def _decided(self, rule: str) -> bool:
        """Whether all findings of the rule are known."""
        report = self.original
        checked = any(ref.code == rule for ref in report.checked)
        skipped = any(skip.rule.code == rule for skip in report.skipped)
        return checked and not skipped and not report.unreadable
