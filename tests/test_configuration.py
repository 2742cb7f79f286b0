"""Settings: which file is read and which never is, what wins, what is refused; what is set aside."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import reports
from command import PROJECT, tokaudit

from tokaudit import configuration
from tokaudit.choices import Choices, from_environment, unknown_variables
from tokaudit.configuration import SettingsFile, find, read
from tokaudit.errors import Unreadable, UsageError
from tokaudit.findings import Severity
from tokaudit.report import Skipped, UnusedEntry
from tokaudit.suppression import Policy, Suppression, model_name, settle

TINYLM = PROJECT / "fixtures" / "tinylm"
SCHEMA = json.loads((PROJECT / "tokaudit" / "reporters" / "report.schema.json").read_text(encoding="utf-8"))
TODAY = date(2026, 6, 15)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git repository with a model in order and one that stops at another token (TA304 and TA308)."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    project = tmp_path / "project"
    shutil.copytree(TINYLM, project / "models" / "good")
    bad = shutil.copytree(TINYLM, project / "models" / "bad")
    file = bad / "generation_config.json"
    text = file.read_text(encoding="utf-8")
    assert '"eos_token_id": 2' in text
    file.write_text(text.replace('"eos_token_id": 2', '"eos_token_id": 3'), encoding="utf-8")
    return project


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def parsed(tmp_path: Path, text: str) -> SettingsFile:
    return read(str(written(tmp_path / "tokaudit.toml", text)))


def found(start: Path, *audited: Path) -> tuple[str | None, list[str]]:
    file, notes = find(start, [str(path) for path in audited])
    return file.name if file is not None else None, notes


# Which file


def test_the_nearest_file_upward_counts(tmp_path: Path) -> None:
    written(tmp_path / "tokaudit.toml", 'fail-on = "note"')
    below = (
        written(tmp_path / "a" / "pyproject.toml", '[tool.tokaudit]\nfail-on = "warning"').parent / "b" / "c"
    )
    below.mkdir(parents=True)
    file, notes = find(below, [])
    assert file is not None
    assert file.name == "../../pyproject.toml"
    assert file.choices.fail_on is Severity.WARNING
    assert notes == []


def test_a_project_file_that_says_nothing_is_passed_by(tmp_path: Path) -> None:
    written(tmp_path / "tokaudit.toml", "")
    for text in ("", "[tool.other]", '# tokaudit\n[tool]\nother = "tokaudit"', "no [ TOML at all"):
        written(tmp_path / "a" / "pyproject.toml", text)
        assert found(tmp_path / "a") == ("../tokaudit.toml", [])


def test_the_own_file_wins_over_the_project_file_beside_it_and_that_is_said(tmp_path: Path) -> None:
    written(tmp_path / "tokaudit.toml", "")
    written(tmp_path / "pyproject.toml", "[tool.tokaudit]")
    assert found(tmp_path) == (
        "tokaudit.toml",
        ["tokaudit.toml is read, and [tool.tokaudit] of the pyproject.toml beside it is not"],
    )
    written(tmp_path / "pyproject.toml", '[project]\ndependencies = ["tokaudit"]')
    assert found(tmp_path) == ("tokaudit.toml", [])


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_nothing_is_read_from_above_the_repository(tmp_path: Path, kind: str) -> None:
    """In a worktree and in a submodule .git is a file."""
    written(tmp_path / "tokaudit.toml", "")
    repository = tmp_path / "repository"
    (repository / "ci").mkdir(parents=True)
    assert found(repository / "ci") == ("../../tokaudit.toml", [])
    (repository / ".git").mkdir() if kind == "directory" else written(
        repository / ".git", "gitdir: elsewhere"
    )
    assert found(repository / "ci") == (None, [])
    written(repository / "tokaudit.toml", "")
    assert found(repository / "ci") == ("../tokaudit.toml", [])


def test_nothing_is_read_from_a_directory_that_everyone_can_write_to(tmp_path: Path) -> None:
    """A file in /tmp may be anybody's."""
    shared = written(tmp_path / "shared" / "tokaudit.toml", "").parent
    (shared / "work").mkdir()
    assert found(shared / "work")[0] == "../tokaudit.toml"
    shared.chmod(0o1777)
    name, notes = found(shared / "work")
    assert name is None
    assert notes == ["../tokaudit.toml is not read: everyone can write to its directory; --config reads it"]


def test_what_is_no_regular_file_is_no_settings_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "tokaudit.toml")
    (tmp_path / "pyproject.toml").mkdir()
    (tmp_path / ".git").mkdir()
    assert found(tmp_path) == (None, [])


@pytest.mark.parametrize("name", ["tokaudit.toml", "pyproject.toml"])
def test_a_file_in_the_audited_directory_is_never_read(tmp_path: Path, name: str) -> None:
    """Not even parsed: it is no TOML."""
    model = written(tmp_path / "model" / name, "[tool.tokaudit\nignore = everything").parent
    below = model / "below"
    below.mkdir()
    note = f"{name} is not read: it lies in what is audited; --config reads it"
    assert found(model, model) == (None, [note])
    assert found(below, model) == (None, [f"../{note}"])
    with pytest.raises(UsageError, match="is no TOML"):
        find(model, [str(tmp_path / "other")])


def test_a_project_file_in_the_audited_directory_that_says_nothing_is_no_news(tmp_path: Path) -> None:
    written(tmp_path / "pyproject.toml", "[project]")
    assert found(tmp_path, tmp_path) == (None, [])


def test_above_the_audited_directory_the_search_goes_on(tmp_path: Path) -> None:
    model = written(tmp_path / "model" / "tokaudit.toml", "").parent
    written(tmp_path / "tokaudit.toml", "")
    name, notes = found(model, model)
    assert name == "../tokaudit.toml"
    assert len(notes) == 1


def test_no_link_makes_a_file_of_the_model_a_settings_file(tmp_path: Path) -> None:
    stranger = written(tmp_path / "model" / "settings", "").parent
    work = tmp_path / "work"
    work.mkdir()
    (work / "tokaudit.toml").symlink_to(stranger / "settings")
    assert found(work, stranger)[0] is None
    (tmp_path / "link").symlink_to(stranger)
    written(stranger / "tokaudit.toml", "")
    assert found(tmp_path / "link", stranger)[0] is None
    assert found(stranger, tmp_path / "link")[0] is None


def test_in_the_cache_the_whole_repository_of_the_model_counts_as_audited(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for folder in (snapshot, repository):
        written(folder / "tokaudit.toml", "")
        assert found(folder, snapshot)[0] is None
    written(tmp_path / "hub" / "tokaudit.toml", "")
    assert found(snapshot, snapshot)[0] == "../../../tokaudit.toml"


def test_the_audit_of_the_working_directory_says_which_file_it_did_not_read(project: Path) -> None:
    bad = project / "models" / "bad"
    written(bad / "tokaudit.toml", 'ignore = ["TA"]')
    result = tokaudit("check", ".", cwd=bad)
    assert result.returncode == 1
    assert result.stderr == (
        "tokaudit: note: tokaudit.toml is not read: it lies in what is audited; --config reads it\n"
    )
    assert "settings" not in result.stdout


@pytest.mark.parametrize("arguments", [["models/*"], ["models"], ["models/bad"], ["."]])
def test_what_was_found_below_a_directory_is_audited_as_much_as_what_was_named(
    project: Path, arguments: list[str]
) -> None:
    written(project / "models" / "bad" / "tokaudit.toml", 'ignore = ["TA"]')
    result = tokaudit("check", *arguments, cwd=project)
    assert result.returncode == 1


def test_the_directory_of_the_tokenizer_is_audited_too(project: Path) -> None:
    written(project / "models" / "bad" / "tokaudit.toml", 'ignore = ["TA"]')
    result = tokaudit("check", "../good", "--tokenizer", ".", cwd=project / "models" / "bad")
    assert "tokaudit.toml is not read" in result.stderr


def test_the_file_is_named_in_the_report(project: Path) -> None:
    written(project / "pyproject.toml", "[tool.tokaudit]")
    assert "  settings           pyproject.toml\n" in tokaudit("check", "models/good", cwd=project).stdout
    document = json.loads(tokaudit("check", "good", "-f", "json", cwd=project / "models").stdout)
    assert document["settings"] == "../pyproject.toml"
    document = json.loads(tokaudit("check", "models/good", "-f", "json", "--isolated", cwd=project).stdout)
    assert document["settings"] is None


def test_a_working_directory_that_was_removed_has_no_settings(project: Path, tmp_path: Path) -> None:
    script = f"""
import os, shutil, sys
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
from tokaudit.cli import main
sys.exit(main(["check", {str(project / "models" / "good")!r}, "-f", "json"]))
"""
    result = tokaudit(cwd=tmp_path, script=script)
    assert result.returncode == 0, result.stderr


# What wins


@pytest.mark.parametrize(
    ("option", "variable", "text", "expected"),
    [
        (["--fail-on", "note"], "warning", '"error"', ["note", "warning", "error"]),
        (["--tensor-parallel", "2"], "4", "8", [2, 4, 8]),
        (["--no-weights"], "no", "true", [True, False, True]),
        (["--weights"], "1", "true", [False, True, True]),
        (["--select", "TA1, TA2"], "TA3,TA4", '["TA7"]', [("TA1", "TA2"), ("TA3", "TA4"), ("TA7",)]),
        (["--ignore", "TA1", "--ignore", "TA2"], "ta108", '["TA7"]', [("TA1", "TA2"), ("ta108",), ("TA7",)]),
        (["--format", "json"], "sarif", '"junit"', ["json", "sarif", "junit"]),
        (["--color", "never"], "always", '"auto"', ["never", "always", "auto"]),
        (["--jobs", "1"], "2", "3", [1, 2, 3]),
        (["--timeout", "1"], "2", "3", [1, 2, 3]),
        (["--deep"], "off", "true", [True, False, True]),
        (["--no-deep"], "on", "true", [False, True, True]),
    ],
)
def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, option: list[str], variable: str, text: str, expected: list[object]
) -> None:
    """Seen by what the audit is asked for, which a script prints in its place."""
    key = {"weights": "no-weights", "no-deep": "deep"}.get(option[0][2:], option[0][2:])
    script = """
import sys
from tokaudit.cli import main
import tokaudit.cli.checking as checking
inner = checking.settings
def settings(*arguments, **keywords):
    choices, *_ = inner(*arguments, **keywords)
    print(repr(getattr(choices, KEY)), file=sys.stderr)
    sys.exit(3)
checking.settings = settings
main()
""".replace("KEY", repr(key.replace("-", "_")))
    name = f"TOKAUDIT_{key.replace('-', '_').upper()}"
    file = written(tmp_path / "tokaudit.toml", f"{key} = {text}")

    def asked(*arguments: str, **changes: str) -> object:
        result = tokaudit("check", "x", *arguments, cwd=tmp_path, script=script, **changes)
        said = re.sub(
            r"<Severity.(\w+): \d>", lambda level: repr(level[1].lower()), result.stderr.splitlines()[0]
        )
        return eval(said)

    assert [asked(*option, **{name: variable}), asked(**{name: variable}), asked()] == expected
    assert asked(**{name: ""}) == expected[2]
    file.unlink()
    assert asked() is None


@pytest.mark.parametrize(
    ("changes", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "TOKAUDIT_COLOR": "always"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"TOKAUDIT_COLOR": "never"}, False),
    ],
)
def test_no_color_goes_before_the_colours_of_a_file(
    project: Path, changes: dict[str, str], coloured: bool
) -> None:
    written(project / "tokaudit.toml", 'color = "always"')
    result = tokaudit("check", "models/good", cwd=project, **{"NO_COLOR": "", "FORCE_COLOR": "", **changes})
    assert ("\x1b[" in result.stdout) is coloured


def test_strict_on_the_command_line_goes_before_a_level_elsewhere(project: Path) -> None:
    written(project / "tokaudit.toml", 'fail-on = "error"\nseverity = {TA108 = "warning"}')
    assert tokaudit("check", "models/good", cwd=project).returncode == 0
    assert tokaudit("check", "models/good", "--strict", cwd=project, TOKAUDIT_FAIL_ON="error").returncode == 1


def test_isolated_takes_neither_files_nor_the_environment(project: Path) -> None:
    written(project / "tokaudit.toml", 'ignore = ["TA3"]')
    assert tokaudit("check", "models/bad", cwd=project).returncode == 0
    assert tokaudit("check", "models/bad", "--isolated", cwd=project, TOKAUDIT_IGNORE="TA3").returncode == 1


@pytest.mark.parametrize("name", ["elsewhere.toml", "pyproject.toml"])
def test_a_file_may_be_named_wherever_it_is(project: Path, name: str) -> None:
    text = 'ignore = ["TA3"]'
    file = written(project / "ci" / name, f"[tool.tokaudit]\n{text}" if name == "pyproject.toml" else text)
    written(project / "tokaudit.toml", "unknown-key = 1")
    assert tokaudit("check", "models/bad", "--config", file, cwd=project).returncode == 0
    assert tokaudit("check", "models/bad", cwd=project, TOKAUDIT_CONFIG=str(file)).returncode == 0
    assert tokaudit("check", "models/bad", cwd=project).returncode == 2


def test_paths_in_a_file_are_relative_to_it(project: Path) -> None:
    written(project / "tokaudit.toml", 'output = ["json=report.json"]\nbaseline = "baseline.json"')
    written(project / "baseline.json", '{"baselineVersion": 1, "models": {}}')
    result = tokaudit("check", "good", cwd=project / "models")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads((project / "report.json").read_text(encoding="utf-8"))["target"] == "good"
    assert not (project / "models" / "report.json").exists()


# What is refused


ENTRY_TEXT = '[[suppress]]\nrule = "TA108"\nreason = "x"'


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ('fail_on = "note"', "fail_on is not known", "did you mean fail-on?"),
        ("ingore = []", "ingore is not known", "did you mean ignore?"),
        ("zzz = 1", "zzz is not known", "there is select, ignore, fail-on,"),
        ("paths = []", "paths is not known", ""),
        ('fail-on = "fatal"', "fail-on must be note, warning or error, not 'fatal'", ""),
        ("fail-on = 1", "fail-on must be note, warning or error, not 1", ""),
        ('select = "TA1"', "select must be a list of texts, not 'TA1'", ""),
        ("select = [1]", "select must be a list of texts, not a list", ""),
        ('select = ["TA999"]', "select: no rule is called 'TA999'", "`tokaudit rules` lists them"),
        ("ignore = true", "ignore must be a list of texts, not true", ""),
        (
            '[[ignore]]\nrule = "TA108"',
            "ignore must be a list of rules",
            "entries with a reason are [[suppress]]",
        ),
        ('tensor-parallel = "8"', "tensor-parallel must be a whole number, not '8'", ""),
        ("tensor-parallel = true", "tensor-parallel must be a whole number, not true", ""),
        ("tensor-parallel = 0", "tensor-parallel must be at least 1, not 0", ""),
        ("jobs = 1.5", "jobs must be a whole number, not 1.5", ""),
        ('no-weights = "yes"', "no-weights must be true or false, not 'yes'", ""),
        ("no-weights = 1", "no-weights must be true or false, not 1", ""),
        ('color = "red"', "color must be auto, always or never, not 'red'", ""),
        ('format = "xml"', "format: there is no output format 'xml'", "there is github"),
        ("format = {a = 1}", "format must be a text, not a table", ""),
        ('output = ["report.json"]', "output must be FORMAT=FILE, not 'report.json'", "sarif=tokaudit.sarif"),
        ('output = ["xml=report"]', "output: there is no output format 'xml'", ""),
        ('output = "json=a"', "output must be a list of texts, not 'json=a'", ""),
        ('baseline = ""', "baseline must be a text, not ''", ""),
        ('severity = "error"', "severity must be a table of rules and levels, not 'error'", ""),
        (
            'severity = {TA108 = "fatal"}',
            "severity: TA108 must be note, warning, error or off, not 'fatal'",
            "",
        ),
        ("severity = {TA108 = false}", "severity: TA108 must be note, warning, error or off, not false", ""),
        ("severity = {TA108 = []}", "severity: TA108 must be note, warning, error or off, not a list", ""),
        (
            'severity = {padding-row = "off"}',
            "severity: no rule is called 'padding-row'",
            "did you mean padding-rows?",
        ),
        ('severity = {TA1 = "off"}', 'severity: "TA1" is not one rule, but', ""),
        ('severity = {TA108 = "off", padding-rows = "note"}', "severity: TA108 stands there twice", ""),
        ("suppress = 1", "suppress must be a list of tables, not 1", "begin each entry with [[suppress]]"),
        ('suppress = ["TA108"]', "suppress must be a list of tables, not a list", ""),
        ('[[suppress]]\nrule = "TA108"', "suppress: entry 1: the reason is missing", ""),
        (
            '[[suppress]]\nrule = "TA108"\nreason = " "',
            "suppress: entry 1: reason must be a text, not ' '",
            "",
        ),
        ('[[suppress]]\nreason = "x"', "suppress: entry 1: the rule is missing", ""),
        ('[[suppress]]\nrule = "TA1"\nreason = "x"', 'suppress: entry 1: "TA1" is not one rule', ""),
        (
            '[[suppress]]\nrule = "json-syntax"\nreason = "x"',
            "suppress: entry 1: no rule is called 'json-syntax'",
            "",
        ),
        (
            ENTRY_TEXT + '\n[[suppress]]\nmodle = "a"',
            "suppress: entry 2: modle is not known",
            "did you mean model?",
        ),
        (
            ENTRY_TEXT + '\nfail-on = "note"',
            "suppress: entry 1: fail-on is no key of an entry",
            "put fail-on above the first entry",
        ),
        (
            ENTRY_TEXT + "\nsubject = 7",
            "suppress: entry 1: subject must be a text",
            "",
        ),
        (
            ENTRY_TEXT + '\nexpires = "2027-01-31"',
            "suppress: entry 1: expires must be a date, not '2027-01-31'",
            "without quotes and without a time: expires = 2027-01-31",
        ),
        (
            ENTRY_TEXT + "\nexpires = 2027-01-31T00:00:00",
            "suppress: entry 1: expires must be a date, not 2027-01-31 00:00:00",
            "",
        ),
        ("a = [", "is no TOML: ", ""),
        ("a = 1\na = 2", "is no TOML: ", ""),
        (f"a = {'[' * 100_000}", "is no TOML: ", ""),
    ],
)
def test_a_mistake_in_a_file_is_refused_and_said_where_it_is(
    tmp_path: Path, text: str, complaint: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(tmp_path, text)
    assert caught.value.message.startswith(str(tmp_path / "tokaudit.toml"))
    assert complaint in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in caught.value.hint
    project_file = written(tmp_path / "pyproject.toml", "[tool.tokaudit]\nfail-om = 1")
    with pytest.raises(UsageError, match=r"pyproject\.toml: tool\.tokaudit\.fail-om is not known"):
        read(str(project_file))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff\xfe", "is no TOML"),
        (b"#" * (configuration.LARGEST + 1), "cannot be read: expected at most"),
    ],
)
def test_what_is_no_text_or_too_large_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    file = tmp_path / "tokaudit.toml"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=complaint):
        find(tmp_path, [])


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("absent.toml", "absent.toml cannot be read: there is no such file"),
        ("", "that is no name of a file"),
        (".", "expected a regular file, found a directory"),
        ("pyproject.toml", "pyproject.toml has no table [tool.tokaudit]"),
    ],
)
def test_a_file_that_was_named_must_be_one(tmp_path: Path, name: str, complaint: str) -> None:
    written(tmp_path / "pyproject.toml", "[project]")
    with pytest.raises(UsageError) as caught:
        read(str(tmp_path / name) if name else "\0")
    assert complaint in caught.value.message


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"TOKAUDIT_FAIL_ON": "fatal"}, "TOKAUDIT_FAIL_ON must be note, warning or error, not 'fatal'"),
        ({"TOKAUDIT_JOBS": "many"}, "TOKAUDIT_JOBS must be a whole number, not 'many'"),
        ({"TOKAUDIT_JOBS": "0"}, "TOKAUDIT_JOBS must be at least 1, not 0"),
        ({"TOKAUDIT_NO_WEIGHTS": "maybe"}, "TOKAUDIT_NO_WEIGHTS must be true or false, not 'maybe'"),
        ({"TOKAUDIT_SELECT": "TA1,TA999"}, "TOKAUDIT_SELECT: no rule is called 'TA999'"),
        ({"TOKAUDIT_OUTPUT": "report"}, "TOKAUDIT_OUTPUT must be FORMAT=FILE, not 'report'"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    variables: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        from_environment(variables)
    assert caught.value.message == complaint


def test_variables_of_others_say_nothing() -> None:
    assert from_environment({"TOKAUDIT_DEBUG": "1", "TOKAUDIT": "x", "FAIL_ON": "note"}) == Choices()


def test_a_wrong_file_is_exit_2_with_one_line_and_its_hint(project: Path) -> None:
    written(project / "tokaudit.toml", '"fail\\u001b[2J::on" = 1')
    result = tokaudit("check", "models/good", cwd=project)
    assert (result.returncode, result.stdout) == (2, "")
    first, hint = result.stderr.splitlines()
    assert first == "tokaudit: error: tokaudit.toml: fail\\x1b[2J:\\u003aon is not known"
    assert hint.startswith("  hint: ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--isolated", "--config", "x"], "--isolated and --config exclude each other"),
        (["--config", "absent.toml"], "absent.toml cannot be read"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--timeout", "-1"], "--timeout must be at least 1, not -1"),
    ],
)
def test_a_wrong_call_is_exit_2(project: Path, arguments: list[str], complaint: str) -> None:
    result = tokaudit("check", "models/good", *arguments, cwd=project)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr


# Severities


def test_a_severity_is_that_of_every_finding_of_the_rule_and_decides_the_verdict(project: Path) -> None:
    written(project / "tokaudit.toml", 'severity = {eos-disagree = "note", TA308 = "error"}')
    document = json.loads(tokaudit("check", "models/bad", "-f", "json", cwd=project).stdout)
    assert [(finding["rule"], finding["level"]) for finding in document["findings"]] == [
        ("TA308", "error"),
        ("TA108", "note"),
        ("TA304", "note"),
    ]
    assert document["verdict"] == "findings"


def test_a_rule_that_is_off_is_left_out(project: Path) -> None:
    written(project / "tokaudit.toml", 'severity = {TA304 = "off"}')
    document = json.loads(tokaudit("check", "models/bad", "-f", "json", cwd=project).stdout)
    assert document["verdict"] == "pass"
    assert "TA304" not in {rule["rule"] for rule in document["checked"]}
    assert document["summary"]["suppressed"] == 0


# Findings that are set aside


ENTRY = Suppression("TA305", "special-id-disagree", "known")


def judged(report: reports.Report, *entries: Suppression, today: date = TODAY) -> reports.Report:
    policy = Policy(file="tokaudit.toml", folder=Path.cwd(), suppress=entries)
    return settle([report], policy, today)[0]


def with_changes(entry: Suppression, **changes: object) -> Suppression:
    import dataclasses

    return dataclasses.replace(entry, **changes)  # type: ignore[arg-type]


BROKEN = reports.BROKEN


@pytest.mark.parametrize(
    ("entry", "sets_aside"),
    [
        (ENTRY, True),
        (with_changes(ENTRY, subject="pad"), True),
        (with_changes(ENTRY, subject="pa*"), False),
        (with_changes(ENTRY, subject="eos"), False),
        (with_changes(ENTRY, rule="TA304"), False),
        (with_changes(ENTRY, model="broken"), True),
        (with_changes(ENTRY, model="bro*"), True),
        (with_changes(ENTRY, model="Bro*"), False),
        (with_changes(ENTRY, model="other"), False),
        (with_changes(ENTRY, expires=TODAY), True),
        (with_changes(ENTRY, expires=date(2026, 6, 14)), False),
    ],
)
def test_an_entry_sets_aside_what_it_names_and_nothing_else(entry: Suppression, sets_aside: bool) -> None:
    settled = judged(BROKEN, entry)
    kept = tuple(finding for finding in BROKEN.findings if finding.rule != "TA305")
    assert settled.findings == (kept if sets_aside else BROKEN.findings)
    assert [(one.finding.rule, one.by, one.reason) for one in settled.suppressed] == (
        [("TA305", "tokaudit.toml", "known")] if sets_aside else []
    )


def test_what_is_set_aside_counts_no_more_for_the_verdict(project: Path) -> None:
    text = """
[[suppress]]
rule = "eos-disagree"
model = "models/b*"
subject = "eos"
reason = "the server stops it by text"
"""
    written(project / "tokaudit.toml", text)
    result = tokaudit("check", "models/bad", cwd=project)
    assert result.returncode == 0
    assert result.stdout.rstrip().endswith("1 suppressed)")
    assert "the server stops it by text" not in result.stdout
    verbose = tokaudit("check", "models/bad", "--verbose", cwd=project, COLUMNS="200").stdout
    suppressed = " ".join(verbose.split("\nsuppressed\n")[1].split())
    assert "(tokaudit.toml: the server stops it by text)" in suppressed
    document = json.loads(tokaudit("check", "models/bad", "-f", "json", cwd=project).stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["summary"]["suppressed"] == 1
    assert document["suppressed"][0]["rule"] == "TA304"
    assert document["suppressed"][0]["by"] == "tokaudit.toml"
    assert document["suppressed"][0]["reason"] == "the server stops it by text"
    log = json.loads(tokaudit("check", "models/bad", "-f", "sarif", cwd=project).stdout)
    assert "TA304" not in {result["ruleId"] for result in log["runs"][0]["results"]}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TOKAUDIT_FAIL_ONN", "did you mean TOKAUDIT_FAIL_ON?"),
        ("TOKAUDIT_STRICT", "--strict is an option only"),
    ],
)
def test_a_variable_that_is_no_setting_is_noted(project: Path, name: str, says: str) -> None:
    result = tokaudit("check", "models/good", cwd=project, **{name: "1"})
    assert result.returncode == 0
    assert result.stderr == f"tokaudit: note: {name} says nothing: {says}\n"
    assert tokaudit("check", "models/good", "--isolated", cwd=project, **{name: "1"}).stderr == ""


def test_a_variable_of_another_program_is_passed_over() -> None:
    others = {
        "TOKAUDIT_PATIENCE": "4",
        "TOKAUDIT_DEBUG": "1",
        "TOKAUDIT_CANARY": "file",
        "TOKAUDIT_STRICT": "",
    }
    assert unknown_variables(others) == []


def test_what_cannot_be_read_is_never_set_aside(project: Path) -> None:
    written(project / "tokaudit.toml", 'select = ["TA108"]')
    (project / "models" / "good" / "config.json").write_text("{")
    result = tokaudit("check", "models/good", cwd=project)
    assert result.returncode == 2
    assert result.stderr.startswith("tokaudit: error[json-syntax]: config.json: ")


def test_an_entry_that_matches_no_finding_is_reported() -> None:
    unused = with_changes(ENTRY, subject="eos")
    assert judged(BROKEN, ENTRY, unused).unused == (
        UnusedEntry("tokaudit.toml", "TA305", "special-id-disagree", "eos", "known"),
    )


def test_of_two_entries_for_one_finding_both_are_used() -> None:
    assert judged(BROKEN, ENTRY, with_changes(ENTRY, subject="pad")).unused == ()


def test_an_expired_entry_is_reported_whether_or_not_its_finding_is_there() -> None:
    expired = with_changes(ENTRY, expires=date(2026, 1, 31))
    for report in (BROKEN, reports.CLEAN):
        assert judged(report, expired).unused == (
            UnusedEntry("tokaudit.toml", "TA305", "special-id-disagree", "", "known", date(2026, 1, 31)),
        )


def test_an_entry_is_not_judged_by_what_does_not_decide_it() -> None:
    import dataclasses

    unread = dataclasses.replace(reports.CLEAN, unreadable=(Unreadable("json-syntax", "config.json", "x"),))
    partly = dataclasses.replace(reports.CLEAN, skipped=(Skipped(reports.TA305, "half of it"),))
    other_model = with_changes(ENTRY, model="another")
    skipped = Suppression("TA105", "output-rows-mismatch", "known")
    assert judged(reports.CLEAN, ENTRY).unused != ()
    assert judged(unread, ENTRY).unused == ()
    assert judged(partly, ENTRY).unused == ()
    assert judged(reports.CLEAN, other_model, skipped).unused == ()


def test_an_entry_that_one_of_several_models_needs_is_used() -> None:
    policy = Policy(file="tokaudit.toml", folder=Path.cwd(), suppress=(ENTRY,))
    clean, broken = settle([reports.CLEAN, BROKEN], policy, TODAY)
    assert clean.unused == broken.unused == ()
    assert settle([reports.CLEAN], policy, TODAY)[0].unused != ()


def test_entries_of_no_use_are_notes_that_fail_nothing(project: Path) -> None:
    text = """
[[suppress]]
rule = "TA101"
reason = "none"
[[suppress]]
rule = "TA108"
reason = "for speed"
expires = 2020-01-31
"""
    written(project / "tokaudit.toml", text)
    result = tokaudit("check", "models/good", "--strict", cwd=project, COLUMNS="200")
    assert result.returncode == 0
    assert (
        "note: tokaudit.toml: the entry for TA101 token-id-out-of-range (none) matches no finding\n"
        in result.stdout
    )
    assert "(for speed) expired with 2020-01-31: it sets\n" in result.stdout
    assert "note TA108 padding-rows" in result.stdout
    document = json.loads(tokaudit("check", "models/good", "-f", "json", cwd=project).stdout)
    jsonschema.validate(document, SCHEMA)
    assert [(entry["rule"], entry["expired"]) for entry in document["unused"]] == [
        ("TA101", None),
        ("TA108", "2020-01-31"),
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("models/a", "models/a"),
        ("./models/../models/a/", "models/a"),
        (".", "."),
        ("..", ".."),
        ("current", "current"),
        ("through/a", "models/a"),
        ("hub/models--org--name/snapshots/0123abc", "models--org--name"),
        ("/cache/hub/models--org--name/snapshots/0123abc/sub", "models--org--name/sub"),
        ("/cache/hub/models--org--name", "models--org--name"),
    ],
)
def test_a_model_is_named_by_its_path_from_the_settings_or_by_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, name: str
) -> None:
    """A link in the place of a model is a name of its own; one on the way is not."""
    (tmp_path / "models" / "a").mkdir(parents=True)
    (tmp_path / "current").symlink_to("models/a")
    (tmp_path / "through").symlink_to("models")
    monkeypatch.chdir(tmp_path)
    assert model_name(target, tmp_path) == name


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("models/*", "models/a", True),
        ("models/*", "models/a/b", True),
        ("*/b", "models/a/b", True),
        ("b", "models/a/b", True),
        ("b*", "models/a/bcd", True),
        ("a", "models/a/b", False),
        ("models--org--*", "models--org--name", True),
        ("[ab]", "models/a", True),
    ],
)
def test_a_pattern_for_models(pattern: str, name: str, covered: bool) -> None:
    assert with_changes(ENTRY, model=pattern).covers(name) is covered


# The page


def test_every_example_of_the_page_is_valid(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        name = "pyproject.toml" if "[tool.tokaudit" in example else "tokaudit.toml"
        read(str(written(tmp_path / name, example)))


def test_the_page_has_every_key() -> None:
    page = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
    from tokaudit.choices import READERS

    for key in (*READERS, "severity", "suppress"):
        assert re.search(rf"^\| `{key}` \|", page, re.MULTILINE), key
