"""Contract + rules -> Report: what is found, what is skipped, and a rule that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from models import base, build

from tokaudit.audit import run, select_rules
from tokaudit.contract import Contract
from tokaudit.errors import FactMissing, UsageError
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.load import load
from tokaudit.report import Verdict
from tokaudit.rule import Rule


class FindsAndMisses(Rule):
    """Yields a finding, then asks for a fact that is not there."""

    code = "TA990"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        yield self.finding("found", [Claim(Location("a"), "b")], why="why", fix="fix")
        raise FactMissing("the rest is not stated")


class Fails(Rule):
    """Has a bug."""

    code = "TA991"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        raise ZeroDivisionError("division by zero")
        yield


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    return load(build(base("llama"), tmp_path / "model"))


def test_a_rule_that_is_decided_in_part_is_checked_and_skipped(contract: Contract) -> None:
    report = run(contract, [FindsAndMisses])
    assert [finding.message for finding in report.findings] == ["found"]
    assert [ref.code for ref in report.checked] == ["TA990"]
    assert [skip.reason for skip in report.skipped] == ["the rest is not stated"]


def test_a_rule_that_fails_leaves_no_verdict_and_the_findings_of_the_others(contract: Contract) -> None:
    report = run(contract, [Fails, FindsAndMisses])
    assert report.verdict() is Verdict.NO_VERDICT
    assert [part.code for part in report.unreadable] == ["internal"]
    assert "TA991 fails failed: ZeroDivisionError" in report.unreadable[0].message
    assert [finding.rule for finding in report.findings] == ["TA990"]
    assert [ref.code for ref in report.checked] == ["TA990"]


def test_the_failure_of_a_rule_can_be_debugged(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKAUDIT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(contract, [Fails])


def test_rules_are_selected_by_code_slug_and_hundred() -> None:
    assert {rule.code for rule in select_rules(["TA205", "eos-disagree"])} == {"TA205", "TA304"}
    hundred = {rule.code for rule in select_rules(["TA2"], ["TA205"])}
    assert "TA201" in hundred
    assert "TA205" not in hundred
    assert all(code.startswith("TA2") for code in hundred)


@pytest.mark.parametrize(("select", "ignore"), [(["TA2"], ["TA2"]), ([], ["TA"]), (["TA205"], ["TA2"])])
def test_a_selection_that_leaves_no_rule_is_no_pass(select: list[str], ignore: list[str]) -> None:
    with pytest.raises(UsageError, match="no rule is left"):
        select_rules(select, ignore)


def test_a_rule_that_does_not_exist_is_named_with_a_guess() -> None:
    with pytest.raises(UsageError, match="eos-disagre") as caught:
        select_rules(["eos-disagre"])
    assert "eos-disagree" in caught.value.hint
