"""Every rule: breached by its breach fixtures, silent on look-alikes, and no other rule fires."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES, base, build, changed, save_optimizer

import tokaudit
from tokaudit.findings import Finding
from tokaudit.report import Report
from tokaudit.rule import all_rules
from tokaudit.text import inert

GOLDEN = Path(__file__).parent / "golden" / "findings"
RULES = {rule.code: rule for rule in all_rules()}
CASES = [
    pytest.param(code, case, id=f"{code}-{index}-{case['finds'] or 'clean'}")
    for code in sorted(RULES)
    if (FIXTURES / "rules" / f"{code}.json").exists()
    for index, case in enumerate(json.loads((FIXTURES / "rules" / f"{code}.json").read_text("utf-8")))
]


def audit(
    directory: Path, args: list[str], locked: Path | None = None, adapter: Path | None = None
) -> Report:
    """`tokaudit check` with the options of a fixture, as the library call.

    ``locked`` is a directory whose lock is given as --lock. An ``adapter`` is audited with the directory as
    its --base.
    """
    options: dict[str, Any] = {}
    if adapter is not None:
        options["base"], directory = directory, adapter
    arguments = iter(args)
    for name in arguments:
        if name == "--no-weights":
            options["read_weights"] = False
        elif name == "--deep":
            options["deep"] = True
        elif name == "--optimizer":
            options["optimizer"] = directory / next(arguments)
        elif name == "--tensor-parallel":
            options["tensor_parallel"] = int(next(arguments))
        elif name == "--data":
            options["data"] = directory / next(arguments)
        elif name == "--dtype":
            options["dtype"] = next(arguments)
        else:
            raise ValueError(f"a fixture asks for {name}")
    if locked is not None:
        options["lock"] = directory.with_name("tokaudit.lock")
        options["lock"].write_text(tokaudit.lock_text(tokaudit.lock(locked, deep="--deep" in args)))
    return tokaudit.check(directory, **options)


def everything_said(report: Report) -> str:
    """All text of the findings."""
    return "\n".join(
        " ".join([finding.message, finding.why, finding.fix, *(f"{c.at} {c.says}" for c in finding.claims)])
        for finding in report.findings
    )


def written_out(finding: Finding, folder: Path) -> str:
    """All that a finding says, a line each."""
    lines = [f"{finding.severity.word} {finding.rule} {finding.slug} {finding.subject}".rstrip()]
    lines += [finding.message, *(f"  at {claim.at}: {claim.says}" for claim in finding.claims)]
    lines += [f"  why {finding.why}", f"  fix {finding.fix}"]
    return "".join(inert(line.replace(f"{folder}/", "")) + "\n" for line in lines)


def golden_sections(path: Path) -> dict[str, str]:
    """What is expected of each case of a rule, by what the case is about."""
    if not path.exists():
        return {}
    parts = re.split(r"^## (.*)\n\n", path.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {about: text.rstrip("\n") + "\n" for about, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize(("code", "case"), CASES)
def test_rule_fixture(code: str, case: dict[str, Any], tmp_path: Path) -> None:
    description = changed(base(case["base"]), case.get("change", {}), tuple(case.get("remove", ())))
    locked = None
    if "lock" in case:
        locked = build(changed(base(case["base"]), case["lock"]), tmp_path / "locked")
    model = build(description, tmp_path / "model")
    if "optimizer" in case:
        save_optimizer(case["optimizer"], model / "optimizer.pt")
    adapter = None
    if "adapter" in case:
        adapter = build(changed(base("adapter"), case["adapter"]), tmp_path / "adapter")
    report = audit(model, case.get("args", []), locked, adapter)
    found = {finding.slug: finding.severity.word for finding in report.findings}
    own = RULES[code].slug
    assert found.pop(own, None) == case["finds"], found
    assert set(found) <= set(case.get("also", [])), f"other rules fired: {found}"
    assert code in {ref.code for ref in report.checked}, "the rule was skipped"
    for words in case.get("says", []):
        assert words in everything_said(report)
    said = "\n".join(written_out(finding, tmp_path) for finding in report.findings if finding.rule == code)
    golden = GOLDEN / f"{code}.txt"
    sections = golden_sections(golden)
    if os.environ.get("UPDATE_GOLDEN") and case["finds"]:
        sections[case["about"]] = said
        golden.write_text("\n".join(f"## {about}\n\n{text}" for about, text in sections.items()), "utf-8")
    assert said == sections.get(case["about"], "")


@pytest.mark.parametrize("code", sorted(code for code, rule in RULES.items() if not rule.live))
def test_every_rule_about_files_has_a_breach_and_a_clean_fixture(code: str) -> None:
    cases = json.loads((FIXTURES / "rules" / f"{code}.json").read_text("utf-8"))
    assert any(case["finds"] for case in cases)
    assert any(case["finds"] is None for case in cases)


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_bases_are_clean(name: str, tmp_path: Path) -> None:
    report = tokaudit.check(build(base(name), tmp_path / "model"))
    assert [(finding.rule, finding.message) for finding in report.findings] == []
    assert report.unreadable == ()
