"""The reporters, on reports made by hand: a clean one, a broken one with texts from a hostile model."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from pathlib import Path

import jsonschema
import pytest
from reports import (
    ABSENT,
    ACTIVE,
    BROKEN,
    CLEAN,
    DAMAGED,
    HOSTILE,
    REPORTS,
    TA101,
    TA304,
    TA701,
    finding,
    token,
    without_commands,
)
from rich.cells import cell_len

import tokaudit.reporters.json as json_reporter
from tokaudit.contract import Role
from tokaudit.errors import UsageError
from tokaudit.findings import Claim, Location, Severity, fingerprint
from tokaudit.report import Report, Skipped, Summary
from tokaudit.reporters import View, names, reporter, terminal
from tokaudit.reporters._page import wrap

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads(Path(json_reporter.__file__).with_name("report.schema.json").read_text(encoding="utf-8"))

GOLDENS = {
    "clean.txt": ("terminal", ["clean"], View()),
    "clean-40.txt": ("terminal", ["clean"], View(width=40)),
    "broken.txt": ("terminal", ["broken"], View()),
    "broken-verbose-120.txt": ("terminal", ["broken"], View(width=120, verbose=True)),
    "broken-quiet.txt": ("terminal", ["broken"], View(quiet=True)),
    "broken-ascii.txt": ("terminal", ["broken"], View(unicode=False)),
    "broken-colour.txt": ("terminal", ["broken"], View(colour=True)),
    "several.txt": ("terminal", ["clean", "absent", "damaged"], View()),
    "clean.json": ("json", ["clean"], View()),
    "broken.json": ("json", ["broken"], View()),
    "several.json": ("json", ["clean", "absent", "damaged"], View(fail_on=Severity.NOTE)),
}


@pytest.fixture(autouse=True)
def _same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reporter, "__version__", "1.2.3")


def rendered(name: str) -> str:
    format, targets, view = GOLDENS[name]
    return reporter(format).render([REPORTS[target] for target in targets], view)


@pytest.mark.parametrize("name", GOLDENS)
def test_the_rendered_report_is_the_golden_one(name: str) -> None:
    """``UPDATE_GOLDEN=1 pytest tests/test_reporters.py`` writes the files anew; read the difference."""
    text = rendered(name)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in GOLDENS if name.endswith(".json")])
def test_the_golden_json_is_valid_against_the_published_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads((GOLDEN / name).read_text(encoding="utf-8")), SCHEMA)


def members(schema: object) -> list[dict[str, object]]:
    """Every object schema within a schema."""
    found = [schema] if isinstance(schema, dict) and "properties" in schema else []
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    return [*found, *(deeper for value in inner for deeper in members(value))]


def test_the_schema_is_strict_and_requires_every_field_it_names() -> None:
    assert len(members(SCHEMA)) > 10
    for schema in members(SCHEMA):
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])  # type: ignore[call-overload]


def test_the_schema_refuses_a_field_that_it_does_not_name() -> None:
    document = json.loads(rendered("clean.json"))
    document["findings"][0]["extra"] = 1
    with pytest.raises(jsonschema.ValidationError, match="extra"):
        jsonschema.Draft202012Validator(SCHEMA["$defs"]["report"] | {"$defs": SCHEMA["$defs"]}).validate(
            document
        )


def test_json_keeps_the_texts_of_the_model_as_they_are() -> None:
    document = json.loads(rendered("broken.json"))
    assert document["findings"][2]["claims"][0]["says"] == HOSTILE
    assert document["facts"]["roles"][1] == {"role": "pad", "id": 514, "content": HOSTILE}


def test_several_json_reports_are_what_each_would_be_alone() -> None:
    view = View(fail_on=Severity.NOTE)
    alone = [
        json.loads(json_reporter.render([REPORTS[name]], view)) for name in ("clean", "absent", "damaged")
    ]
    together = json.loads(rendered("several.json"))
    assert together["reports"] == alone
    assert together["verdict"] == "no-verdict"
    assert [report["verdict"] for report in alone] == ["findings", "no-verdict", "no-verdict"]


@pytest.mark.parametrize(
    ("targets", "worst"),
    [(["clean", "clean"], "pass"), (["clean", "broken"], "findings"), (["broken", "absent"], "no-verdict")],
)
def test_the_envelope_has_the_worst_verdict(targets: list[str], worst: str) -> None:
    assert json.loads(json_reporter.render([REPORTS[name] for name in targets], View()))["verdict"] == worst


def test_a_fingerprint_depends_on_rule_file_and_subject_and_on_nothing_that_drifts() -> None:
    original = BROKEN.findings[0]
    same = dataclasses.replace(
        original,
        message="4 token ids have no row",
        claims=(Claim(Location("tokenizer.json", "/added_tokens/7"), "id 515"),),
        severity=Severity.NOTE,
    )
    elsewhere = dataclasses.replace(original, claims=original.claims[1:])
    assert fingerprint(same) == fingerprint(original)
    different = (
        elsewhere,
        dataclasses.replace(original, rule="TA102"),
        dataclasses.replace(original, subject="lm_head.weight"),
    )
    assert len({fingerprint(one) for one in (original, *different)}) == 4


EVERY_LOOK = [
    View(width=width, verbose=verbose, quiet=quiet, unicode=unicode)
    for width in (1, 20, 40, 80, 120)
    for verbose, quiet in ((False, False), (True, False), (False, True))
    for unicode in (True, False)
]


@pytest.mark.parametrize("format", names())
@pytest.mark.parametrize("view", EVERY_LOOK)
def test_no_text_of_a_model_can_act_on_a_terminal_or_a_ci_log(format: str, view: View) -> None:
    text = without_commands(reporter(format).render(list(REPORTS.values()), view))
    assert not ACTIVE.search(text)
    assert "##[" not in text
    assert "::" not in text
    text.encode("utf-8" if view.unicode else "ascii")


@pytest.mark.parametrize("view", [view for view in EVERY_LOOK if view.width >= 20])
def test_no_line_is_wider_than_the_terminal(view: View) -> None:
    for line in terminal.render(list(REPORTS.values()), view).splitlines():
        assert cell_len(line) <= view.width, line


def test_a_name_of_megabytes_neither_fills_the_screen_nor_takes_long() -> None:
    name = "A" * 5_000_000
    long = finding(TA101, Severity.ERROR, name, Claim(Location(name, f"/{name}"), name), why=name, fix=name)
    started = time.process_time()
    text = terminal.render([dataclasses.replace(CLEAN, findings=(long,))], View())
    assert time.process_time() - started < 2
    assert len(text) < 15_000
    assert "A…A" in text


def test_colours_change_nothing_but_the_colours() -> None:
    coloured = terminal.render(list(REPORTS.values()), View(colour=True))
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    stripped = "".join(line.rstrip() + "\n" for line in bare.splitlines())
    assert stripped == terminal.render(list(REPORTS.values()), View())


def test_a_quiet_report_holds_findings_only() -> None:
    assert terminal.render([dataclasses.replace(CLEAN, findings=())], View(quiet=True)) == ""
    text = terminal.render([BROKEN], View(quiet=True))
    assert text.startswith("error TA101 token-id-out-of-range\n")
    assert "checked" not in text


def test_a_quiet_report_on_several_targets_names_those_with_findings() -> None:
    silent = dataclasses.replace(CLEAN, target="silent", findings=())
    text = terminal.render([silent, BROKEN, CLEAN], View(quiet=True))
    assert [line for line in text.splitlines() if line in ("silent", "broken", "tinylm")] == [
        "broken",
        "tinylm",
    ]


def test_notes_are_one_line_each_unless_everything_is_asked_for() -> None:
    assert "Batches need one." not in terminal.render([CLEAN], View())
    assert "Batches need one." in terminal.render([CLEAN], View(verbose=True))


def test_skipped_rules_are_counted_and_on_demand_explained() -> None:
    assert "2 skipped" in terminal.render([CLEAN], View())
    assert "no file holds a chat template" not in terminal.render([CLEAN], View())
    assert "TA309 double-bos            no file holds a chat template" in terminal.render(
        [CLEAN], View(verbose=True)
    )


def test_a_finding_of_a_rule_decided_in_part_counts_in_its_area() -> None:
    report = dataclasses.replace(CLEAN, skipped=(*CLEAN.skipped, Skipped(TA304, "half of it")))
    assert re.search(r"✓ special +3 checked +2 skipped +1 note", terminal.render([report], View()))


def test_an_area_where_nothing_could_be_checked_does_not_look_passed() -> None:
    report = dataclasses.replace(
        CLEAN, checked=(TA101,), skipped=(Skipped(TA701, "there are no weights"),), findings=()
    )
    text = terminal.render([report], View())
    assert "  – storage: 1 rule skipped" in text


def test_a_token_with_several_roles_is_shown_once() -> None:
    shared = token(2, "</s>")
    roles = ((Role.BOS, shared), (Role.EOS, shared), (Role.PAD, token(0, "<pad>")))
    report = dataclasses.replace(CLEAN, summary=dataclasses.replace(CLEAN.summary, roles=roles))
    assert 'special tokens     bos/eos 2 "</s>", pad 0 "<pad>"\n' in terminal.render([report], View())


def test_facts_that_the_files_do_not_state_are_said_to_be_unknown() -> None:
    report = dataclasses.replace(CLEAN, summary=Summary())
    text = terminal.render([report], View())
    assert re.findall(r"^  (\w.+?)  +unknown$", text, re.MULTILINE) == [
        "architecture",
        "tokenizer",
        "input embeddings",
        "output embeddings",
        "special tokens",
    ]


@pytest.mark.parametrize(
    ("report", "fail_on", "said"),
    [
        (CLEAN, Severity.ERROR, "✓ pass: 1 note (8 checked, 2 skipped, 0 suppressed)"),
        (CLEAN, Severity.NOTE, "✗ fail: 1 note (8 checked, 2 skipped, 0 suppressed)"),
        (BROKEN, Severity.ERROR, "✗ fail: 3 errors, 1 warning, 1 note (8 checked, 3 skipped, 1 suppressed)"),
        (
            DAMAGED,
            Severity.ERROR,
            "? no verdict: 2 parts unreadable, 1 note (8 checked, 2 skipped, 0 suppressed)",
        ),
    ],
)
def test_the_last_line_is_the_verdict(report: Report, fail_on: Severity, said: str) -> None:
    assert terminal.render([report], View(fail_on=fail_on, width=100)).splitlines()[-1] == said


def test_a_target_of_which_nothing_could_be_read_gets_no_report_of_its_own() -> None:
    assert terminal.render([ABSENT], View()) == ""
    assert "there is no directory" in terminal.render([ABSENT, CLEAN], View())


def test_reporters_are_found_by_name() -> None:
    assert {"json", "terminal"} <= set(names())
    assert reporter("terminal") is terminal
    with pytest.raises(UsageError, match="no output format 'xml'"):
        reporter("xml")
    with pytest.raises(UsageError):
        reporter("_page")


@pytest.mark.parametrize(
    ("text", "first", "further", "pieces"),
    [
        ("", 10, 10, []),
        ("one two three", 7, 7, ["one two", "three"]),
        ("one two three", 3, 9, ["one", "two three"]),
        ("three", 2, 5, ["", "three"]),
        ("abcdefgh", 3, 3, ["abc", "def", "gh"]),
        ("a/bc/defgh", 6, 6, ["a/bc/", "defgh"]),
        ("語語語", 4, 4, ["語語", "語"]),
        ("語", 1, 1, ["語"]),
        ('ids 12 "a", 13 "b"', 12, 12, ['ids 12 "a",', '13 "b"']),
        ('bos/eos 2 "</s>", pad 0 "<pad>"', 21, 21, ['bos/eos 2 "</s>",', 'pad 0 "<pad>"']),
        ("at 8.3 %, 7 %", 7, 7, ["at", "8.3 %,", "7 %"]),
        ("a    b", 3, 3, ["a", "   ", "b"]),
    ],
)
def test_wrapping(text: str, first: int, further: int, pieces: list[str]) -> None:
    assert wrap(text, first, further) == pieces
