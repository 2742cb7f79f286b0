"""Baselines: what is accepted stays accepted, and what is new or worse counts."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import reports
from command import PROJECT, tokaudit
from reports import ACTIVE, BROKEN, CLEAN

from tokaudit import baseline
from tokaudit.errors import Unreadable, UsageError
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report
from tokaudit.suppression import Policy, settle

TINYLM = PROJECT / "fixtures" / "tinylm"
SCHEMA = json.loads((PROJECT / "tokaudit" / "reporters" / "report.schema.json").read_text(encoding="utf-8"))


def with_eos(directory: Path, eos: int) -> None:
    """Stop at that id: another than 2 is an error (TA304) and a warning (TA308)."""
    file = directory / "generation_config.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "eos_token_id": eos}), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two models, of which one stops at another token."""
    for name in ("good", "bad"):
        shutil.copytree(TINYLM, tmp_path / "models" / name)
    with_eos(tmp_path / "models" / "bad", 3)
    return tmp_path


def write(cwd: Path, *models: str, file: str = "baseline.json") -> None:
    result = tokaudit("check", *(models or ("models",)), "--write-baseline", file, cwd=cwd)
    assert result.returncode == 0, result.stderr


# From one run to the next


def test_what_there_is_today_is_accepted_and_passes(project: Path) -> None:
    assert tokaudit("check", "models", cwd=project).returncode == 1
    first = tokaudit("check", "models", "--write-baseline", "baseline.json", cwd=project)
    second = tokaudit("check", "models", "--baseline", "baseline.json", cwd=project)
    for result in (first, second):
        assert result.returncode == 0
        assert "2 models: 2 pass (4 suppressed)" in result.stdout
    assert first.stdout == second.stdout


def test_accepted_findings_are_suppressed_with_the_baseline_as_the_reason(project: Path) -> None:
    write(project)
    result = tokaudit("check", "models/bad", "--baseline", "baseline.json", "-f", "json", cwd=project)
    document = json.loads(result.stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["findings"] == []
    assert {(one["by"], one["reason"]) for one in document["suppressed"]} == {
        ("baseline.json", "accepted by the baseline")
    }


def test_a_new_finding_fails_and_is_the_only_one_shown(project: Path) -> None:
    write(project)
    with_eos(project / "models" / "good", 3)
    result = tokaudit("check", "models", "--baseline", "baseline.json", cwd=project)
    assert result.returncode == 1
    assert "models/good\n" in result.stdout
    assert "error TA304" in result.stdout
    assert "note TA108" not in result.stdout


def test_numbers_that_change_make_no_finding_new(project: Path) -> None:
    write(project)
    with_eos(project / "models" / "bad", 0)
    result = tokaudit("check", "models", "--baseline", "baseline.json", cwd=project)
    assert result.returncode == 0, result.stdout


def test_entries_whose_finding_is_gone_are_notes(project: Path) -> None:
    write(project)
    with_eos(project / "models" / "bad", 2)
    result = tokaudit(
        "check", "models", "--baseline", "baseline.json", "--strict", cwd=project, COLUMNS="200"
    )
    assert result.returncode == 0
    assert (
        'note: baseline.json: the entry for TA304 eos-disagree, "eos" matches no finding\n' in result.stdout
    )
    document = json.loads(
        tokaudit("check", "models", "--baseline", "baseline.json", "-f", "json", cwd=project).stdout
    )
    jsonschema.validate(document, SCHEMA)
    unused = {report["target"]: [one["rule"] for one in report["unused"]] for report in document["reports"]}
    assert unused == {"models/bad": ["TA304", "TA308"], "models/good": []}


def test_models_and_rules_that_are_not_audited_this_time_are_no_news(project: Path) -> None:
    write(project)
    for arguments in (["models/good"], ["models", "--select", "TA1"], ["models", "--no-weights"]):
        result = tokaudit("check", *arguments, "--baseline", "baseline.json", cwd=project)
        assert result.returncode == 0
        assert "matches no finding" not in result.stdout


def test_the_file_is_the_same_whatever_the_order_and_the_working_directory(project: Path) -> None:
    write(project)
    first = (project / "baseline.json").read_bytes()
    write(project, "models/good", "models/bad")
    assert (project / "baseline.json").read_bytes() == first
    write(project / "models", str(project / "models" / "good"), "bad", file="../baseline.json")
    assert (project / "baseline.json").read_bytes() == first
    write(project)
    assert (project / "baseline.json").read_bytes() == first
    assert first.isascii()
    assert first.endswith(b"}\n")


def test_a_project_that_is_moved_keeps_its_baseline(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write(project)
    moved = Path(shutil.copytree(project, tmp_path_factory.mktemp("elsewhere") / "project"))
    result = tokaudit("check", "bad", "--baseline", "../baseline.json", cwd=moved / "models")
    assert result.returncode == 0


def test_in_the_cache_a_new_revision_keeps_what_was_accepted(project: Path) -> None:
    snapshots = project / "hub" / "models--org--name" / "snapshots"
    shutil.copytree(project / "models" / "bad", snapshots / "0123abc")
    write(project, "hub")
    (snapshots / "0123abc").rename(snapshots / "4567def")
    assert tokaudit("check", "hub", "--baseline", "baseline.json", cwd=project).returncode == 0
    shutil.copytree(snapshots / "4567def", snapshots / "89abcde")
    assert tokaudit("check", "hub", "--baseline", "baseline.json", cwd=project).returncode == 0
    with_eos(snapshots / "89abcde", 2)
    assert "matches no finding" in tokaudit("check", "hub", "--baseline", "baseline.json", cwd=project).stdout


def test_a_baseline_of_the_settings_counts_and_can_be_written_the_first_time(project: Path) -> None:
    (project / "tokaudit.toml").write_text('baseline = "baseline.json"')
    result = tokaudit("check", "models", cwd=project)
    assert result.returncode == 2
    assert "there is no baseline" in result.stderr
    write(project)
    assert tokaudit("check", "bad", cwd=project / "models").returncode == 0


def test_the_level_that_is_accepted_is_the_rules_own(project: Path) -> None:
    """So that a level in the settings can change without making everything new."""
    (project / "tokaudit.toml").write_text('severity = {TA304 = "note"}')
    write(project)
    entries = json.loads((project / "baseline.json").read_text())["models"]["models/bad"]
    assert [entry["level"] for entry in entries if entry["rule"] == "TA304"] == ["error"]
    (project / "tokaudit.toml").write_text('severity = {TA304 = "error", TA108 = "error"}')
    assert tokaudit("check", "models", "--baseline", "baseline.json", cwd=project).returncode == 0


def test_what_an_entry_sets_aside_is_not_written(project: Path) -> None:
    (project / "tokaudit.toml").write_text('[[suppress]]\nrule = "TA304"\nreason = "known"')
    write(project)
    assert "TA304" not in (project / "baseline.json").read_text()


# What cannot be written or read


def test_nothing_is_written_where_a_model_cannot_be_read(project: Path) -> None:
    write(project)
    before = (project / "baseline.json").read_bytes()
    (project / "models" / "good" / "config.json").write_text("{")
    result = tokaudit("check", "models", "--write-baseline", "baseline.json", cwd=project)
    assert result.returncode == 2
    assert "baseline.json was not written: models/good could not be read" in result.stderr
    assert (project / "baseline.json").read_bytes() == before


def test_what_cannot_be_read_is_never_accepted(project: Path) -> None:
    write(project)
    (project / "models" / "bad" / "config.json").write_text("{")
    result = tokaudit("check", "models", "--baseline", "baseline.json", cwd=project)
    assert result.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--write-baseline", "models/bad/baseline.json"], "lies in 'models/bad', which is audited"),
        (["--write-baseline", "absent/baseline.json"], "--write-baseline: there is no directory"),
        (["--write-baseline", "models"], "--write-baseline: 'models' is no file"),
        (["--baseline", "absent.json"], "there is no baseline 'absent.json'"),
        (["--baseline", "models"], "expected a regular file, found a directory"),
        (
            ["--baseline", "a", "--write-baseline", "b"],
            "--baseline and --write-baseline exclude each other",
        ),
    ],
)
def test_a_file_that_cannot_be_is_exit_2_before_anything_is_audited(
    project: Path, arguments: list[str], complaint: str
) -> None:
    result = tokaudit("check", "models/bad", *arguments, cwd=project)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr


GOOD = {"rule": "TA304", "slug": "eos-disagree", "file": "x", "subject": "", "level": "error", "message": "x"}
GOOD["fingerprint"] = "0" * 64


@pytest.mark.parametrize(
    ("document", "code", "message"),
    [
        ("", "json-syntax", "found an empty file"),
        ("[]", "json-type", "expected an object"),
        ("{}", "baseline-malformed", "/baselineVersion: expected 1, found null"),
        ('{"baselineVersion": true}', "baseline-malformed", "/baselineVersion: expected 1, found true"),
        ('{"baselineVersion": 2}', "baseline-version", "written by a newer tokaudit"),
        ('{"baselineVersion": 1}', "baseline-malformed", "/models: expected an object, found null"),
        (
            json.dumps({"baselineVersion": 1, "models": {"a/b": 1}}),
            "baseline-malformed",
            "/models/a~1b: expected a list",
        ),
        (
            json.dumps({"baselineVersion": 1, "models": {"a": [1]}}),
            "baseline-malformed",
            "/models/a/0: expected an object",
        ),
        *(
            (
                json.dumps({"baselineVersion": 1, "models": {"a": [{**GOOD, key: value}]}}),
                "baseline-malformed",
                f"/models/a/0/{key}: expected a {key}, found",
            )
            for key, value in (
                ("fingerprint", "0" * 63),
                ("rule", "TA1"),
                ("slug", 1),
                ("level", "off"),
                ("level", None),
                ("subject", ["x"]),
            )
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(
    tmp_path: Path, document: str, code: str, message: str
) -> None:
    file = tmp_path / "baseline.json"
    file.write_text(document)
    with pytest.raises(Unreadable) as caught:
        baseline.read(str(file))
    assert (caught.value.code, caught.value.file) == (code, str(file))
    assert message in caught.value.message


def test_a_missing_file_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        baseline.read(str(tmp_path / "absent.json"))
    assert "--write-baseline" in caught.value.hint


# Findings one by one


def accepted(report: Report, file: Path) -> Policy:
    """The policy of a baseline that was made from the report."""
    file.write_text(baseline.to_text([report], file), encoding="ascii")
    return Policy(baseline=baseline.read(str(file)))


def new_in(report: Report, policy: Policy) -> list[Finding]:
    return list(settle([report], policy, date(2026, 6, 15))[0].findings)


@pytest.fixture(autouse=True)
def _beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_of_equal_findings_as_many_are_accepted_as_there_were(tmp_path: Path) -> None:
    one = BROKEN.findings[0]
    other = dataclasses.replace(one, message="the same about another number")
    twice = dataclasses.replace(BROKEN, findings=(one, other))
    policy = accepted(twice, tmp_path / "baseline.json")
    assert new_in(twice, policy) == []
    assert new_in(dataclasses.replace(BROKEN, findings=(one, other, one)), policy) == [one]
    (settled,) = settle([dataclasses.replace(BROKEN, findings=(one,))], policy, date(2026, 6, 15))
    assert [entry.rule for entry in settled.unused] == [one.rule]


def test_a_finding_that_has_become_worse_is_new(tmp_path: Path) -> None:
    (worse,) = [finding for finding in BROKEN.findings if finding.severity is Severity.WARNING]
    milder = dataclasses.replace(worse, severity=Severity.NOTE)
    policy = accepted(dataclasses.replace(BROKEN, findings=(worse,)), tmp_path / "baseline.json")
    assert new_in(dataclasses.replace(BROKEN, findings=(milder,)), policy) == []
    policy = accepted(dataclasses.replace(BROKEN, findings=(milder,)), tmp_path / "baseline.json")
    assert new_in(dataclasses.replace(BROKEN, findings=(worse,)), policy) == [worse]


def test_a_finding_of_another_model_rule_file_or_subject_is_new(tmp_path: Path) -> None:
    policy = accepted(CLEAN, tmp_path / "baseline.json")
    (known,) = CLEAN.findings
    claim = dataclasses.replace(known.claims[0], at=dataclasses.replace(known.claims[0].at, file="other"))
    assert new_in(CLEAN, policy) == []
    assert new_in(dataclasses.replace(CLEAN, target="other"), policy) == [known]
    for change in ({"rule": "TA101"}, {"subject": "other"}, {"claims": (claim,)}):
        changed = dataclasses.replace(known, **change)  # type: ignore[arg-type]
        assert new_in(dataclasses.replace(CLEAN, findings=(changed,)), policy) == [changed]


def test_texts_of_a_hostile_model_are_inert_in_the_file_and_accepted(tmp_path: Path) -> None:
    """Names that are no UTF-8, too, which JSON cannot hold as they are."""
    target = os.fsdecode(b"mod\xffel\n::error::x")
    hostile = dataclasses.replace(BROKEN, target=target)
    policy = accepted(hostile, tmp_path / "baseline.json")
    text = (tmp_path / "baseline.json").read_text(encoding="ascii")
    assert reports.HOSTILE[:5] not in text
    assert not ACTIVE.search(text)
    assert "::" not in text
    assert "##[" not in text
    assert new_in(hostile, policy) == []
