"""The library call: `tokaudit.check`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tokaudit
import tokaudit.audit
from tokaudit.contract import Options
from tokaudit.report import Report, Summary

EMPTY = Report("model", Summary(), (), (), (), (), ())


class Loader(ModuleType):
    """Stands in for tokaudit.load and keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__("tokaudit.load")
        self.calls: list[tuple[object, object, Options]] = []

    def load(self, path: object, *, tokenizer: object, options: Options) -> str:
        self.calls.append((path, tokenizer, options))
        return "the contract"


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    loader = Loader()
    monkeypatch.setitem(sys.modules, "tokaudit.load", loader)
    return loader


def test_check_loads_the_directory_and_runs_the_selected_rules(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(contract: object, rules: tuple[type, ...]) -> Report:
        names = ",".join(rule.__name__ for rule in rules)
        return dataclasses.replace(EMPTY, target=f"{contract}: {names}")

    monkeypatch.setattr(tokaudit.audit, "run", run)
    report = tokaudit.check(Path("model"), select=iter(["TA108", "TA112"]), ignore=["padding-rows"])
    assert report.target == "the contract: RowsNotDivisible"
    assert loader.calls == [(Path("model"), None, Options())]


def test_one_rule_may_be_named_without_a_list(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokaudit.audit, "run", lambda contract, rules: [rule.code for rule in rules])
    assert "TA205" not in tokaudit.check("model", select="TA2", ignore="TA205")
    assert "TA201" in tokaudit.check("model", select="TA2", ignore="TA205")


def test_check_hands_every_option_on(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokaudit.audit, "run", lambda contract, rules: EMPTY)
    tokaudit.check("model", tokenizer="other", read_weights=False, tensor_parallel=8, deep=True)
    assert loader.calls == [("model", "other", Options(tensor_parallel=8, read_weights=False, deep=True))]


def test_check_reads_nothing_when_a_rule_does_not_exist(loader: Loader) -> None:
    with pytest.raises(tokaudit.UsageError, match="no rule is called 'TA999'") as caught:
        tokaudit.check("model", select=["TA999"])
    assert isinstance(caught.value, tokaudit.TokauditError)
    assert not loader.calls
