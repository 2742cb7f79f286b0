"""The cases from public bug reports and from odd but released models, each decided as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES, build_case
from test_rules import everything_said

import tokaudit
from tokaudit.diffs.run import Answer
from tokaudit.findings import Severity
from tokaudit.report import Report, Verdict
from tokaudit.reporters import View
from tokaudit.reporters._diff import as_text
from tokaudit.reporters._diff_json import as_json
from tokaudit.rule import find_rule


def _load(path: Path) -> Any:
    case = json.loads(path.read_text("utf-8"))
    assert all(find_rule(slug) for slug in case["expect"].get("rules") or ())
    return pytest.param(case, id=case["id"])


CASES = [_load(path) for path in sorted((FIXTURES / "cases").glob("*.json"))]


def _path(word: str, paths: dict[str, Path]) -> Path:
    """``{model}/optimizer.pt`` -> the file in the directory of that name."""
    name, *rest = word.split("/")
    return paths[name.strip("{}")].joinpath(*rest)


def run(case: dict[str, Any], out: Path) -> Report:
    """The case's command line, as the library call."""
    paths = build_case(case, out)
    words = iter(case["run"][1:])
    options: dict[str, Any] = {}
    target = None
    for word in words:
        if word == "--tensor-parallel":
            options["tensor_parallel"] = int(next(words))
        elif word == "--deep":
            options["deep"] = True
        elif word in ("--base", "--data", "--optimizer"):
            options[word.removeprefix("--")] = _path(next(words), paths)
        elif word.startswith("{"):
            target = _path(word, paths)
        else:
            raise ValueError(f"the case asks for {word}")
    assert target is not None
    return tokaudit.check(target, **options)


def _run(case: Any, command: str) -> bool:
    return bool(case.values[0]["run"][0] == command)


@pytest.mark.parametrize("case", [case for case in CASES if _run(case, "check")])
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    report = run(case, tmp_path)
    expect = case["expect"]
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.slug, set()).add(finding.severity.word)
    for slug, severity in expect.get("rules", {}).items():
        rule = find_rule(slug)
        assert rule is not None, slug
        assert severity in found.get(slug, set()), f"{slug}: expected {severity}, found {found}"
    allowed = {*expect.get("rules", {}), *(expect.get("may") or ())}
    loud = {f.slug for f in report.findings if f.severity >= Severity.WARNING}
    assert loud <= allowed, [f.message for f in report.findings if f.slug in loud - allowed]
    assert not set(expect.get("absent") or ()) & set(found)
    verdicts = {0: Verdict.PASS, 1: Verdict.FINDINGS, 2: Verdict.NO_VERDICT}
    assert report.verdict() is verdicts[expect["exit"]]
    for words in expect.get("mentions") or ():
        assert words in everything_said(report)


# What a diff holds for the breach of each rule on the lock.
GROUPS = {
    "mapping-drift": "mapping",
    "pipeline-drift": "pipeline",
    "template-drift": "templates",
    "special-ids-drift": "special",
    "table-drift": "tables",
}


@pytest.mark.parametrize("case", [case for case in CASES if _run(case, "diff")])
def test_diff_case(case: dict[str, Any], tmp_path: Path) -> None:
    paths = build_case(case, tmp_path)
    _, left, right, *options = case["run"]
    use = options[options.index("--for") + 1] if "--for" in options else "drop-in"
    sides = [paths[name.strip("{}")] for name in (left, right)]
    diff = tokaudit.diff(*sides, use=use, deep="--deep" in options)
    expect = case["expect"]
    answers = {0: Answer.SAME, 1: Answer.DIFFERS, 2: Answer.NO_VERDICT}
    assert diff.answer is answers[expect["exit"]], diff.reasons
    for slug in expect.get("absent") or ():
        assert not getattr(diff.comparison, GROUPS[slug])
    said = [
        as_text(diff, View(width=100)),
        json.dumps(json.loads(as_json(diff, View())), ensure_ascii=False),
    ]
    for words in expect.get("mentions") or ():
        assert all(words in text for text in said), words


def test_every_case_is_listed() -> None:
    assert len(CASES) == 196
