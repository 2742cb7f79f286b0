"""The command line, in real processes: every way out and its exit code, streams, terminals.

What `load` and `run` would do is played by the last part of the PATH: "clean", "error", "panic" ... (the
driver below), so that these tests are about the command line alone.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]

DRIVER = r'''
import os, sys, time, types
from pathlib import PurePath

import typer

import tokaudit.audit, tokaudit.rule
from tokaudit.cli import run as entry
from tokaudit.errors import Unreadable, UsageError
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.report import Report, RuleRef, Skipped, Summary

REF = RuleRef("TA101", "token-id-out-of-range", "rows")


class TokenIdOutOfRange(tokaudit.rule.Rule):
    """An id lies past the last row.

    ## What it finds
    Ids without a row, `like this`: ≥ 512.

    ## Why it matters
    It crashes.

    ## How to fix it
    Resize.
    """

    __module__ = "tokaudit.rules.rows.token_id_out_of_range"
    code = "TA101"
    severity = Severity.ERROR


class PanicException(BaseException):
    """What pyo3 raises: no Exception."""


def report(target, *severities, unreadable=()):
    claim = Claim(Location("config.json", "/vocab_size"), "512")
    findings = [
        Finding("TA101", REF.slug, severity, f"one {severity.word}", (claim,), "It crashes.", "Resize.")
        for severity in severities
    ]
    return Report(target, Summary(), tuple(findings), (), (REF,), (Skipped(REF, "only half"),), unreadable)


PARTS = (
    Unreadable("json-syntax", "config.json", "expected ','", hint="restore it"),
    Unreadable("file-too-large", "tokenizer.json", "300 MB"),
)
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def load(path, *, tokenizer=None, options=None):
    target = PurePath(path).name
    match target:
        case "clean": return report(target)
        case "note": return report(target, NOTE)
        case "warning": return report(target, WARNING, NOTE)
        case "error": return report(target, ERROR, NOTE)
        case "huge": return report(target, *[ERROR] * 20000)
        case "part": return report(target, ERROR, unreadable=PARTS[:1])
        case "parts": return report(target, ERROR, unreadable=PARTS)
        case "crash": raise ValueError("bad\nthing ::error::")
        case "panic": raise PanicException("called unwrap on a None value")
        case "exit": raise SystemExit(1)
        case "pipe": raise BrokenPipeError(32, "Broken pipe")
        case "memory": raise MemoryError
        case "library": raise ImportError("libtorch_cpu.so: failed to map segment from shared object")
        case "thread": raise RuntimeError("can't start new thread")
        case "page": raise OSError(12, "Cannot allocate memory")
        case "deep": return load(path)
        case "interrupt": raise KeyboardInterrupt
        case "abort": raise typer.Abort
        case "eof": raise EOFError
        case "slow": print("started", file=sys.stderr, flush=True); time.sleep(60)
        case "patient": time.sleep(1.4); return report(target)
        case "usage": raise UsageError("that cannot be", hint="do not")
        case "options": return report(f"{tokenizer} {options.read_weights} {options.tensor_parallel}")
    raise Unreadable("no-such-directory", "", f"there is no directory {path!r}", hint="check the path")


def run(contract, rules):
    return contract if isinstance(contract, Report) else None


class Opening:
    def __init__(self, path, tokenizer=None): self.path, self.tokenizer = path, tokenizer
    def contract(self, options=None): return load(self.path, tokenizer=self.tokenizer, options=options)
    def __enter__(self): return self
    def __exit__(self, *error): pass


for name in ("tokaudit.load", "tokaudit.load.contract"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["tokaudit.load"].Opening = Opening
tokaudit.audit.run = run
tokaudit.rule.all_rules = tokaudit.audit.all_rules = lambda: (TokenIdOutOfRange,)
entry()
'''

SCRUBBED = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM", "LANG", "TOKAUDIT_DEBUG", "PYTHONIOENCODING")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("driver") / "driver.py"
    file.write_text(DRIVER, encoding="utf-8")
    return file


def environment(**changes: str | None) -> dict[str, str]:
    base = {name: value for name, value in os.environ.items() if name not in SCRUBBED and name[:3] != "LC_"}
    base |= {
        "PYTHONPATH": str(PROJECT),
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "PYTHONWARNINGS": "error",
    }
    return {name: value for name, value in (base | changes).items() if value is not None}


class Tokaudit:
    """Runs the driver in a process of its own."""

    def __init__(self, driver: Path) -> None:
        self.command = [sys.executable, str(driver)]

    def __call__(self, *arguments: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            encoding="utf-8",
            env=environment(**changes),
            stdin=subprocess.DEVNULL,
            timeout=60,
        )

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a bash script in which ``tokaudit`` is the command."""
        prefix = f'set -o pipefail; tokaudit() {{ {self.command[0]!r} {self.command[1]!r} "$@"; }}; '
        return subprocess.run(
            ["bash", "-c", prefix + script],
            capture_output=True,
            encoding="utf-8",
            env=environment(),
            timeout=60,
        )


@pytest.fixture
def tokaudit(driver: Path) -> Tokaudit:
    return Tokaudit(driver)


def is_one_line(stderr: str, *, hint: bool = False) -> bool:
    """One line of tokaudit's own, and below it an indented hint if there is to be one."""
    first, *more = stderr.splitlines()
    below = len(more) == 1 and more[0].startswith("  hint: ") if hint else not more
    return first.startswith("tokaudit: error") and below and stderr.endswith("\n")


# Exit codes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["clean"], 0),
        (["note"], 0),
        (["warning"], 0),
        (["error"], 1),
        (["warning", "--strict"], 1),
        (["note", "--strict"], 0),
        (["warning", "--fail-on", "warning"], 1),
        (["note", "--fail-on", "note"], 1),
        (["clean", "--fail-on", "note"], 0),
        (["error", "--fail-on", "error"], 1),
        (["clean", "error"], 1),
        (["error", "clean"], 1),
        (["part"], 2),
        (["error", "absent", "clean"], 2),
        (["parts", "--quiet"], 2),
    ],
)
@pytest.mark.parametrize("format", ["terminal", "json"])
def test_the_exit_code_is_that_of_the_worst_verdict_in_every_format(
    tokaudit: Tokaudit, arguments: list[str], code: int, format: str
) -> None:
    result = tokaudit("check", *arguments, "--format", format)
    assert result.returncode == code
    assert (result.stderr == "") == (code < 2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "missing command"),
        (["chekc"], "no such command 'chekc'. Did you mean 'check'?"),
        (["check"], "missing argument 'PATH'"),
        (["check", "clean", "--nonsense"], "no such option: --nonsense"),
        (["check", "clean", "--tokenizer"], "option '--tokenizer' requires an argument"),
        (["check", "clean", "--fail-on", "info"], "--fail-on must be note, warning or error, not 'info'"),
        (["check", "clean", "--strict", "--fail-on", "note"], "--strict and --fail-on exclude each other"),
        (["check", "clean", "--quiet", "--verbose"], "--quiet and --verbose exclude each other"),
        (["check", "clean", "--tensor-parallel", "two"], "invalid value for '--tensor-parallel'"),
        (["check", "clean", "--tensor-parallel", "0"], "--tensor-parallel must be at least 1, not 0"),
        (["check", "clean", "--color", "pink"], "--color must be auto, always or never, not 'pink'"),
        (["check", "clean", "--format", "xml"], "there is no output format 'xml'"),
        (["check", "clean", "--select", "TA999"], "no rule is called 'TA999'"),
        (["check", "clean", "--ignore", "x\x1b[2J::y"], "no rule is called"),
        (["check", "usage"], "that cannot be"),
        (["explain"], "missing argument 'CODE|SLUG'"),
        (["explain", "TA999"], "no rule is called 'TA999'"),
        (["rules", "--format", "xml"], "--format must be terminal or json, not 'xml'"),
        (["schema", "nothing"], "there is no schema 'nothing'"),
    ],
)
def test_a_wrong_call_is_exit_2_with_one_line_and_a_hint(
    tokaudit: Tokaudit, arguments: list[str], complaint: str
) -> None:
    result = tokaudit(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert complaint in result.stderr
    assert is_one_line(result.stderr, hint="\n  hint: " in result.stderr)
    assert "\x1b" not in result.stderr
    assert "::" not in result.stderr


@pytest.mark.parametrize("way", ["memory", "library", "thread", "page"])
def test_a_lack_of_memory_is_said_and_no_bug(tokaudit: Tokaudit, way: str) -> None:
    result = tokaudit("check", way)
    assert (result.returncode, result.stdout) == (2, "")
    said = "tokaudit: error[no-memory]: the memory that this process may use does not suffice\n  hint: "
    assert result.stderr.startswith(said)
    assert is_one_line(result.stderr, hint=True)


def test_a_code_that_is_not_there_is_no_other_one(tokaudit: Tokaudit) -> None:
    """One that looks alike has nothing to do with it."""
    assert tokaudit("explain", "TA999").stderr.splitlines()[1] == "  hint: `tokaudit rules` lists them"


@pytest.mark.parametrize("way", ["crash", "panic", "exit", "pipe", "deep"])
def test_an_internal_error_is_exit_2_with_one_line(tokaudit: Tokaudit, way: str) -> None:
    result = tokaudit("check", way)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("tokaudit: error[internal]: internal error, ")
    assert is_one_line(result.stderr, hint=True)
    assert "::" not in result.stderr


def test_the_end_of_a_file_is_no_ctrl_c(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "eof")
    assert result.returncode == 2
    assert "internal error, EOFError" in result.stderr


def test_the_traceback_of_an_internal_error_is_there_on_demand(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "crash", TOKAUDIT_DEBUG="1")
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-2].startswith("tokaudit: error[internal]")


def test_a_crash_while_commands_are_imported_is_no_traceback_either(
    tokaudit: Tokaudit, tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('half installed')")
    result = subprocess.run(
        [sys.executable, "-c", "import sys; from tokaudit.cli import main; sys.exit(main(['check', 'x']))"],
        capture_output=True,
        encoding="utf-8",
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{PROJECT}"),
    )
    assert result.returncode == 2
    assert is_one_line(result.stderr, hint=True)


def test_one_unreadable_part_is_one_line_with_its_hint(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "part")
    assert result.returncode == 2
    assert "error TA101" in result.stdout
    assert "unreadable config.json json-syntax" in result.stdout
    assert result.stderr == "tokaudit: error[json-syntax]: config.json: expected ','\n  hint: restore it\n"


def test_several_unreadable_parts_are_one_line_too(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "parts")
    assert "unreadable tokenizer.json file-too-large" in result.stdout
    assert result.stderr.splitlines() == [
        "tokaudit: error[json-syntax]: config.json: expected ',' ... and 1 more, see the report",
        "  hint: restore it",
    ]


def test_of_several_targets_the_line_names_the_one_that_is_unreadable(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "clean", "part", "absent")
    assert result.stderr.startswith(
        "tokaudit: error[json-syntax]: part/config.json: expected ',' ... and 1 more, see the report\n"
    )
    assert "there is no directory 'absent'" in result.stdout


def test_a_target_that_is_not_there_leaves_standard_output_empty(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "absent")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "tokaudit: error[no-such-directory]: there is no directory 'absent'\n  hint: check the path\n"
    )


def test_the_json_of_a_target_that_is_not_there_says_so(tokaudit: Tokaudit) -> None:
    document = json.loads(tokaudit("check", "absent", "-f", "json").stdout)
    assert document["verdict"] == "no-verdict"
    assert document["errors"][0]["code"] == "no-such-directory"


@pytest.mark.parametrize("way", ["interrupt", "abort"])
def test_ctrl_c_is_exit_130_without_a_word(tokaudit: Tokaudit, way: str) -> None:
    result = tokaudit("check", way)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_running_audit(tokaudit: Tokaudit, number: int, code: int) -> None:
    process = subprocess.Popen(
        [*tokaudit.command, "check", "slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stderr
    assert process.stderr.readline() == b"started\n"
    process.send_signal(number)
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == code


# Standard output that does not take everything


@pytest.mark.parametrize(("target", "code"), [("huge", 1), ("clean", 0)])
def test_a_reader_that_has_gone_does_not_change_the_exit_code(
    tokaudit: Tokaudit, target: str, code: int
) -> None:
    result = tokaudit.shell(f"tokaudit check {target} | head -1; exit ${{PIPESTATUS[0]}}")
    assert result.returncode == code
    assert result.stdout == f"{target}\n"
    assert result.stderr == ""


def test_a_reader_that_never_was_does_not_change_the_exit_code(tokaudit: Tokaudit) -> None:
    for command, code in (("check error --format json", 1), ("check clean", 0), ("--help", 0)):
        result = tokaudit.shell(f"tokaudit {command} | true; exit ${{PIPESTATUS[0]}}")
        assert (result.returncode, result.stderr) == (code, "")


@pytest.mark.parametrize("command", ["check clean", "check error", "--help", "check parts", "rules"])
def test_a_full_disk_is_exit_2_with_one_line(tokaudit: Tokaudit, command: str) -> None:
    result = tokaudit.shell(f"tokaudit {command} > /dev/full")
    assert result.returncode == 2
    assert result.stderr == "tokaudit: error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["check clean --format json", "schema report"])
def test_a_disk_that_fills_up_within_the_report_is_exit_2(
    tokaudit: Tokaudit, tmp_path: Path, command: str, unbuffered: str
) -> None:
    """Unbuffered, Python takes a write of the first kilobyte for one of everything."""
    result = tokaudit.shell(
        f"ulimit -f 1; PYTHONUNBUFFERED={unbuffered} tokaudit {command} > {tmp_path}/report; echo $? >&2"
    )
    assert (tmp_path / "report").stat().st_size == 1024
    assert result.stderr == "tokaudit: error: standard output cannot be written: File too large\n2\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_report_is_whole_whether_python_buffers_or_not(tokaudit: Tokaudit, unbuffered: str) -> None:
    result = tokaudit.shell(f"PYTHONUNBUFFERED={unbuffered} tokaudit schema report | (sleep 1; cat)")
    json.loads(result.stdout)


@pytest.mark.parametrize("command", ["check clean", "check error", "--version"])
def test_a_closed_standard_output_is_exit_2_with_one_line(tokaudit: Tokaudit, command: str) -> None:
    result = tokaudit.shell(f"tokaudit {command} >&-")
    assert result.returncode == 2
    assert result.stderr == "tokaudit: error: standard output is closed, so the report cannot be printed\n"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("tokaudit check error 2>&-", 1),
        ("tokaudit check parts 2>&-", 2),
        ("tokaudit check parts 2>/dev/full", 2),
        ("tokaudit check crash 2>/dev/full", 2),
        ("tokaudit check clean >&- 2>&-", 2),
    ],
)
def test_standard_error_that_takes_nothing_does_not_change_the_exit_code(
    tokaudit: Tokaudit, script: str, code: int
) -> None:
    assert tokaudit.shell(script).returncode == code


def test_standard_output_carries_only_the_report(tokaudit: Tokaudit) -> None:
    result = tokaudit("check", "parts", "error", "--format", "json")
    assert len(json.loads(result.stdout)["reports"]) == 2


# Encodings, colours, widths


@pytest.mark.parametrize(
    "changes",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_marks_are_ascii_where_nothing_else_can_be_shown(
    tokaudit: Tokaudit, changes: dict[str, str | None]
) -> None:
    result = tokaudit("check", "error", **changes)
    assert result.returncode == 1
    assert result.stdout.isascii()
    assert "\nx fail: 1 error, 1 note" in result.stdout


@pytest.mark.parametrize("changes", [{}, {"LC_ALL": None}, {"LC_ALL": None, "LANG": "C.UTF-8"}])
def test_marks_are_unicode_where_they_can_be(tokaudit: Tokaudit, changes: dict[str, str | None]) -> None:
    assert "\n✗ fail: 1 error, 1 note" in tokaudit("check", "error", **changes).stdout


@pytest.mark.parametrize(
    ("arguments", "changes", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": ""}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ([], {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, True),
    ],
)
def test_colour_in_a_pipe_is_what_was_asked_for(
    tokaudit: Tokaudit, arguments: list[str], changes: dict[str, str | None], coloured: bool
) -> None:
    assert ("\x1b[" in tokaudit("check", "error", *arguments, **changes).stdout) is coloured


def test_json_is_never_coloured(tokaudit: Tokaudit) -> None:
    assert "\x1b" not in tokaudit("check", "error", "-f", "json", "--color", "always").stdout


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_lines_keep_within_the_columns(tokaudit: Tokaudit, columns: int) -> None:
    result = tokaudit("check", "parts", "error", "absent", "--verbose", COLUMNS=str(columns))
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "fix" in result.stdout


def on_a_terminal(command: Sequence[str], **changes: str | None) -> tuple[str, str, int]:
    """What a command shows on two terminals, one for each stream, and its exit code."""
    out, out_end = pty.openpty()
    err, err_end = pty.openpty()
    process = subprocess.Popen(
        command, stdout=out_end, stderr=err_end, stdin=out_end, env=environment(**changes)
    )
    os.close(out_end)
    os.close(err_end)
    shown = {out: b"", err: b""}
    for end, data in _read(list(shown)):
        shown[end] += data
    code = process.wait(timeout=20)
    texts = [data.decode().replace("\r\n", "\n") for data in shown.values()]
    return texts[0], texts[1], code


def _read(ends: list[int]) -> Iterator[tuple[int, bytes]]:
    until = time.monotonic() + 30
    while ends and time.monotonic() < until:
        for end in select.select(ends, [], [], 1)[0]:
            try:
                data = os.read(end, 65536)
            except OSError:  # Linux says EIO when the other end is closed
                data = b""
            if not data:
                ends.remove(end)
                os.close(end)
            yield end, data


def test_a_terminal_gets_colours(tokaudit: Tokaudit) -> None:
    out, err, code = on_a_terminal([*tokaudit.command, "check", "error"])
    assert "\x1b[1;31m" in out
    assert (err, code) == ("", 1)


@pytest.mark.parametrize("changes", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_terminal_without_colours_gets_none(tokaudit: Tokaudit, changes: dict[str, str | None]) -> None:
    assert "\x1b" not in on_a_terminal([*tokaudit.command, "check", "error"], **changes)[0]


def test_what_takes_long_shows_progress_on_a_terminal_and_takes_it_away(tokaudit: Tokaudit) -> None:
    out, err, code = on_a_terminal([*tokaudit.command, "check", "models/patient"])
    assert code == 0
    assert "auditing models/patient 1 s" in err
    assert err.endswith("\r\x1b[K")
    assert "auditing" not in out


def test_there_is_no_progress_in_a_pipe_or_on_a_dumb_terminal(tokaudit: Tokaudit) -> None:
    assert tokaudit("check", "patient").stderr == ""
    assert on_a_terminal([*tokaudit.command, "check", "patient"], TERM="dumb")[1] == ""


# Commands


def test_options_reach_the_loader(tokaudit: Tokaudit) -> None:
    arguments = [
        "check",
        "options",
        "--tokenizer",
        "other",
        "--no-weights",
        "--tensor-parallel",
        "8",
        "-f",
        "json",
    ]
    assert json.loads(tokaudit(*arguments).stdout)["target"] == "other False 8"
    assert json.loads(tokaudit("check", "options", "-f", "json").stdout)["target"] == "None True None"


def test_selections_are_repeatable_and_separated_by_commas(tokaudit: Tokaudit) -> None:
    accepted = ["--select", "TA1,token-id-out-of-range", "--select", "ta101"]
    assert tokaudit("check", "clean", *accepted).returncode == 0
    assert "no rule is left to check" in tokaudit("check", "clean", *accepted, "--ignore", "TA1").stderr
    assert "no rule is called 'TA7'" in tokaudit("check", "clean", "--select", "TA1, TA7").stderr


@pytest.mark.parametrize("name", ["TA101", "ta101", "token-id-out-of-range"])
def test_explain_prints_the_page_of_a_rule_as_it_is_written_in_a_pipe(tokaudit: Tokaudit, name: str) -> None:
    page = tokaudit("explain", name).stdout
    assert page.startswith("# TA101 token-id-out-of-range\n\nerror, ")
    assert "## What it finds\nIds without a row, `like this`: ≥ 512.\n" in page


def test_explain_prints_what_the_encoding_lacks_as_escapes(tokaudit: Tokaudit) -> None:
    result = tokaudit("explain", "TA101", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert "\\u2265 512" in result.stdout


def test_explain_renders_the_page_on_a_terminal(tokaudit: Tokaudit) -> None:
    out, _, code = on_a_terminal([*tokaudit.command, "explain", "TA101"])
    assert code == 0
    assert "\x1b[" in out
    assert "What it finds" in out
    assert "#" not in out
    assert "`" not in out


@pytest.mark.parametrize(
    ("typed", "meant"), [("token-id-out-of-rage", "token-id-out-of-range"), ("TA-101", "TA101")]
)
def test_explain_guesses_what_was_meant(tokaudit: Tokaudit, typed: str, meant: str) -> None:
    result = tokaudit("explain", typed)
    assert result.returncode == 2
    assert f"did you mean {meant}?" in result.stderr


def test_rules_lists_every_rule(tokaudit: Tokaudit) -> None:
    result = tokaudit("rules")
    assert result.returncode == 0
    assert "TA101 token-id-out-of-range  error" in result.stdout


def test_rules_as_json(tokaudit: Tokaudit) -> None:
    listed = json.loads(tokaudit("rules", "--format", "json").stdout)["rules"]
    assert [(rule["rule"], rule["slug"], rule["level"]) for rule in listed] == [
        ("TA101", "token-id-out-of-range", "error")
    ]
    assert listed[0]["summary"] == "An id lies past the last row."


def test_schema_prints_the_file_in_the_package(tokaudit: Tokaudit) -> None:
    file = PROJECT / "tokaudit" / "reporters" / "report.schema.json"
    assert tokaudit("schema", "report").stdout == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [[], ["check"], ["explain"], ["rules"], ["schema"]])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_shows_examples(tokaudit: Tokaudit, command: list[str], option: str) -> None:
    result = tokaudit(*command, option)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: {' '.join(['tokaudit', *command])} [OPTIONS]")
    assert "Example" in result.stdout


def test_help_shows_the_summary_of_each_command_whole(tokaudit: Tokaudit) -> None:
    commands = tokaudit("--help", COLUMNS="80").stdout.partition("\nCommands:\n")[2].splitlines()
    assert len(commands) > 8
    assert [line for line in commands if not re.fullmatch(r"  [a-z]+ +[A-Z].*[a-z]", line.rstrip("."))] == []
    assert [line for line in commands if line.endswith("...")] == []


COMMANDS = ["check", "cost", "data", "diff", "explain", "hash", "lock", "resize", "rows", "rules", "schema"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal_of_80_columns(tokaudit: Tokaudit, command: str) -> None:
    lines = tokaudit(*command.split(), "--help", COLUMNS="80").stdout.splitlines()
    assert len(lines) > 8
    assert [line for line in lines if len(line) > 80] == []


def test_an_option_without_its_value_leads_to_the_help_of_its_command(tokaudit: Tokaudit) -> None:
    assert "hint: `tokaudit check --help` shows" in tokaudit("check", "clean", "--tokenizer").stderr


def test_the_version_is_that_of_the_package(tokaudit: Tokaudit) -> None:
    stated = (PROJECT / "pyproject.toml").read_text(encoding="utf-8").split('\nversion = "')[1].split('"')[0]
    assert tokaudit("--version").stdout == f"tokaudit {stated}\n"


def test_the_module_runs_as_the_command_does() -> None:
    command = [sys.executable, "-m", "tokaudit", "--version"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment())
    assert result.stdout.startswith("tokaudit ")
    assert result.returncode == 0


def test_the_module_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    """What `python -m` itself imports before (importlib) is beyond our reach: the console script is not."""
    for name in ("json", "typer", "rich", "dataclasses", "re", "signal", "typing", "tokenizers", "jinja2"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit('ran code of a stranger')\n")
    command = [sys.executable, "-m", "tokaudit", "rules", "--format", "json"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment(), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_rules(tokaudit: Tokaudit, shell: str) -> None:
    def completed(line: str) -> str:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TYPER_COMPLETE_ARGS": line}
        fish = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        return tokaudit(_TOKAUDIT_COMPLETE=f"complete_{shell}", **words, **fish).stdout

    assert "explain" in completed("tokaudit expl")
    assert "token-id-out-of-range" in completed("tokaudit explain tok")


def test_no_home_directory_is_needed(tokaudit: Tokaudit) -> None:
    assert tokaudit("check", "error", HOME=None, XDG_CACHE_HOME=None).returncode == 1


def test_a_path_that_is_not_utf8_is_shown_escaped(tokaudit: Tokaudit) -> None:
    result = subprocess.run(
        [*map(os.fsencode, tokaudit.command), b"check", b"a\xffb"], capture_output=True, env=environment()
    )
    assert result.returncode == 2
    assert b"a\\\\udcffb" in result.stderr or b"a\\udcffb" in result.stderr
