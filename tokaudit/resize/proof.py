"""The audit of the result, by the same rules and by what its own files say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tokaudit import audit
from tokaudit.contract import Contract, Missing, Vocabulary
from tokaudit.findings import Severity
from tokaudit.load import load
from tokaudit.report import Report
from tokaudit.resize.make import is_forced
from tokaudit.resize.prepare import Prepared
from tokaudit.resize.request import Refused, Request
from tokaudit.text import shown


def audit_result(building: Path, prepared: Prepared, request: Request) -> tuple[Contract, Report]:
    """The facts of the result and their audit.

    Raises Refused for an error, except one that the source has too and --force lets pass, and where the
    tokenizers library gives an old or a new token another id than it should have.
    """
    contract = replace(load(building), name=prepared.plan.source)
    report = audit.run(contract)
    if report.unreadable:
        raise Refused(f"the result cannot be read back: {report.unreadable[0].message}")
    known = {(finding.rule, finding.subject) for finding in prepared.report.findings}
    for finding in report.findings:
        forced = is_forced(finding, request) and (finding.rule, finding.subject) in known
        if finding.severity is Severity.ERROR and not forced:
            raise Refused(
                f"the result would fail its audit: {finding.slug}: {finding.message}", hint=finding.fix
            )
    _compare_ids(prepared.contract.vocabulary_or, contract.vocabulary_or, prepared)
    return contract, report


def _compare_ids(old: Vocabulary | Missing, new: Vocabulary | Missing, prepared: Prepared) -> None:
    """Every old token keeps its id, and every new one has the id whose row was written."""
    if isinstance(new, Missing):
        return
    wanted = {token.content: token.id for token in prepared.plan.added}
    if isinstance(old, Vocabulary):
        wanted.update(old.by_content)
    given = new.effective
    if not wanted.items() <= given.items():
        content, id = next((content, id) for content, id in wanted.items() if given.get(content) != id)
        other = f"id {given[content]}" if content in given else "no id"
        raise Refused(f"the tokenizers library would give {shown(content)} {other}, not {id}")
