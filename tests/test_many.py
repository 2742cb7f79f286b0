"""Many models at once: which they are, each in a process of its own, one table of verdicts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from command import PROJECT, RUN, environment, tokaudit
from reports import ACTIVE

from tokaudit.errors import UsageError
from tokaudit.parallel import Lost, each
from tokaudit.registry import targets

TINYLM = PROJECT / "fixtures" / "tinylm"
SCHEMA = json.loads((PROJECT / "tokaudit" / "reporters" / "report.schema.json").read_text(encoding="utf-8"))

# Plays models whose audit does what the last part of their name says.
DRIVER = r'''
import os, signal, sys, time
import tokaudit.load as load

class PanicException(BaseException):
    """What pyo3 raises: no Exception."""

inner = load.Opening.contract
def contract(self, options=None):
    match os.path.basename(self.model.name):
        case "hang": time.sleep(600)
        case "deaf":
            for name in ("INT", "TERM", "HUP"): signal.signal(signal.Signals["SIG" + name], signal.SIG_IGN)
            time.sleep(600)
        case "killed": os.kill(os.getpid(), signal.SIGKILL)
        case "aborted": os.abort()
        case "left": os._exit(0)
        case "exited": sys.exit(1)
        case "panic": raise PanicException("called unwrap on a None value")
        case "crash": raise ValueError("bad\n::error::thing")
        case "recursion": return contract(self)
    return inner(self, options)
load.Opening.contract = contract
from tokaudit.cli import run
run()
'''


@pytest.fixture
def registry(tmp_path: Path) -> Callable[..., Path]:
    def make(*names: str) -> Path:
        for name in names:
            shutil.copytree(TINYLM, tmp_path / "registry" / name)
        return tmp_path / "registry"

    return make


def stops_elsewhere(directory: Path) -> None:
    file = directory / "generation_config.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"eos_token_id": 2', '"eos_token_id": 3'))


# Which models


def touch(root: Path, *files: str) -> None:
    for name in files:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")


def found(root: Path, *arguments: str) -> tuple[list[str], list[str]]:
    """The paths relative to the root, and the notes."""
    result = targets([os.path.join(root, argument) for argument in arguments])
    notes = [note.replace(f"{root}/", "") for note in result.notes]
    return [os.path.relpath(path, root) for path in result.paths], notes


@pytest.mark.parametrize(
    "sign",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "vocab.json",
        "vocab.txt",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    ],
)
def test_a_directory_that_holds_a_model_is_that_model(tmp_path: Path, sign: str) -> None:
    touch(tmp_path, f"model/{sign}", "model/checkpoint-500/config.json")
    assert found(tmp_path, "model") == (["model"], [])


def test_a_directory_that_holds_none_stands_for_all_models_below_it(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "registry/README.md",
        "registry/org/b/config.json",
        "registry/org/a/tokenizer.json",
        "registry/org/a/checkpoint/config.json",
        "registry/single/model.safetensors",
        "registry/notes/text.md",
        "registry/.git/config.json",
        "registry/.cache/x/config.json",
    )
    assert found(tmp_path, "registry") == (
        ["registry/org/a", "registry/org/b", "registry/single"],
        ["registry is no model itself: 3 models below it"],
    )


def test_of_the_cache_every_snapshot_is_found(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "home/hub/models--org--name/snapshots/1/config.json",
        "home/hub/models--org--name/snapshots/2/config.json",
        "home/hub/models--org--name/refs/main",
        "home/hub/models--org--name/blobs/config.json",
        "home/hub/datasets--org--data/snapshots/1/vocab.json",
        "home/hub/spaces--org--app/snapshots/1/config.json",
        "home/hub/.locks/models--org--name/config.json",
    )
    snapshots = [f"home/hub/models--org--name/snapshots/{revision}" for revision in (1, 2)]
    for argument in (
        "home",
        "home/hub",
        "home/hub/models--org--name",
        "home/hub/models--org--name/snapshots",
    ):
        assert found(tmp_path, argument)[0] == snapshots


def test_the_parts_of_a_pipeline_are_no_models(tmp_path: Path) -> None:
    touch(tmp_path, "registry/sd/model_index.json", "registry/sd/unet/config.json", "registry/a/config.json")
    assert found(tmp_path, "registry") == (
        ["registry/a"],
        ["registry is no model itself: 1 model below it; 1 pipeline of diffusers left out"],
    )
    assert found(tmp_path, "registry/sd") == (["registry/sd"], [])


def test_links_to_directories_are_counted_and_not_followed(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/config.json", "registry/a/config.json")
    (tmp_path / "registry" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "registry" / "loop").symlink_to(tmp_path / "registry")
    assert found(tmp_path, "registry") == (
        ["registry/a"],
        ["registry is no model itself: 1 model below it; 2 links to directories not followed"],
    )
    assert found(tmp_path, "registry/b") == (["registry/b"], [])


def test_what_cannot_be_looked_into_is_audited_and_not_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, "registry/a/config.json", "registry/b/config.json")
    real = os.scandir

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        if os.path.basename(path) == "b":
            raise PermissionError
        return real(path)  # type: ignore[return-value]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert found(tmp_path, "registry")[0] == ["registry/a", "registry/b"]


def test_models_lie_at_most_five_levels_deep(tmp_path: Path) -> None:
    touch(tmp_path, "registry/1/2/3/4/5/config.json", "registry/1/2/3/4/x/6/config.json")
    assert found(tmp_path, "registry")[0] == ["registry/1/2/3/4/5"]


def test_looking_for_models_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *(f"registry/{number}/x" for number in range(20)))
    monkeypatch.setattr("tokaudit.registry.MOST_ENTRIES", 30)
    with pytest.raises(UsageError, match="more than 30 files were looked at for models"):
        targets([str(tmp_path / "registry")])


@pytest.mark.parametrize("argument", ["absent", "file", "empty", "gguf"])
def test_what_holds_no_model_is_left_for_its_audit_to_say(tmp_path: Path, argument: str) -> None:
    touch(tmp_path, "file", "gguf/model.gguf")
    (tmp_path / "empty").mkdir()
    assert found(tmp_path, argument) == ([argument], [])


def test_a_pattern_stands_for_the_directories_that_it_matches(tmp_path: Path) -> None:
    touch(
        tmp_path, "models/b/config.json", "models/a/config.json", "models/README.md", "models/c/x/config.json"
    )
    assert found(tmp_path, "models/*") == (
        ["models/a", "models/b", "models/c/x"],
        ["models/c is no model itself: 1 model below it"],
    )
    assert found(tmp_path, "models/[ab]")[0] == ["models/a", "models/b"]
    assert found(tmp_path, "**/x")[0] == ["models/c/x"]
    assert found(tmp_path, "models/z*")[0] == ["models/z*"]


def test_a_directory_whose_name_is_a_pattern_is_that_directory(tmp_path: Path) -> None:
    touch(tmp_path, "[ab]/config.json", "a/config.json", "*/config.json")
    assert found(tmp_path, "[ab]")[0] == ["[ab]"]
    assert found(tmp_path, "*")[0] == ["*"]


def test_what_was_found_is_audited_once_and_what_was_named_as_often_as_it_was(tmp_path: Path) -> None:
    touch(tmp_path, "models/a/config.json", "models/b/config.json")
    assert found(tmp_path, "models/a", "models", "models/*")[0] == ["models/a", "models/b"]
    assert found(tmp_path, "models/a", "models/a")[0] == ["models/a", "models/a"]


# One run


def test_models_that_do_not_pass_are_shown_in_full_and_all_in_a_table(registry: Callable[..., Path]) -> None:
    folder = registry("a", "b", "c", "d")
    stops_elsewhere(folder / "b")
    (folder / "d" / "config.json").write_text("{")
    result = tokaudit("check", "registry", cwd=folder.parent)
    assert result.returncode == 2
    heads = [line for line in result.stdout.splitlines() if line.startswith("registry/")]
    assert heads == ["registry/b", "registry/d"]
    table = result.stdout[result.stdout.index("✓ pass ") :].splitlines()
    assert table == [
        "✓ pass        registry/a  1 note",
        "✗ fail        registry/b  1 error, 1 warning, 1 note",
        "✓ pass        registry/c  1 note",
        "? no verdict  registry/d  1 part unreadable, 1 note",
        "",
        "? no verdict: 4 models: 2 pass, 1 fail, 1 no verdict (0 suppressed)",
    ]
    assert result.stderr.splitlines()[0] == "tokaudit: note: registry is no model itself: 4 models below it"
    assert result.stderr.splitlines()[1].startswith("tokaudit: error[json-syntax]: registry/d/config.json: ")


def test_every_report_is_there_on_demand_and_quiet_shows_findings_only(registry: Callable[..., Path]) -> None:
    folder = registry("a", "b")
    stops_elsewhere(folder / "b")
    verbose = tokaudit("check", "a", "b", "-v", cwd=folder).stdout
    assert [line for line in verbose.splitlines() if line in "ab" and line] == ["a", "b"]
    quiet = tokaudit("check", ".", "-q", cwd=folder)
    assert quiet.stderr == ""
    assert "✓" not in quiet.stdout
    assert "error TA304" in quiet.stdout


@pytest.mark.parametrize(("names", "code"), [("ab", 0), ("abx", 1), ("abxu", 2), ("xa", 1), ("ua", 2)])
def test_the_worst_exit_code_wins(registry: Callable[..., Path], names: str, code: int) -> None:
    folder = registry(*names)
    if "x" in names:
        stops_elsewhere(folder / "x")
    if "u" in names:
        (folder / "u" / "config.json").write_text("{")
    for format in ("terminal", "json", "sarif", "junit"):
        assert tokaudit("check", *names, "-f", format, cwd=folder).returncode == code


def test_reports_are_in_order_and_the_same_however_many_run_at_once(registry: Callable[..., Path]) -> None:
    names = ["c", "a", "e", "b", "d"]
    folder = registry(*names)
    stops_elsewhere(folder / "a")
    runs = [tokaudit("check", *names, "-f", "json", "--jobs", jobs, cwd=folder).stdout for jobs in "135"]
    assert len(set(runs)) == 1
    document = json.loads(runs[0])
    jsonschema.validate(document, SCHEMA)
    assert [report["target"] for report in document["reports"]] == names
    alone = tokaudit("check", "a", "-f", "json", cwd=folder)
    assert document["reports"][1] == json.loads(alone.stdout)


def test_every_format_has_every_model(registry: Callable[..., Path]) -> None:
    folder = registry("a", "b", "c")
    stops_elsewhere(folder / "b")
    result = tokaudit("check", ".", "-o", "sarif=../x.sarif", "-o", "junit=../x.xml", cwd=folder)
    assert result.returncode == 1
    log = json.loads((folder.parent / "x.sarif").read_text(encoding="utf-8"))
    assert [run["automationDetails"]["id"] for run in log["runs"]] == [f"tokaudit/{name}/" for name in "abc"]
    root = ElementTree.parse(folder.parent / "x.xml").getroot()
    assert [suite.attrib["failures"] for suite in root] == ["0", "1", "0"]


EVIL = [
    "plain",
    "sp ace",
    "line\nbreak\n::error::forged",
    "\x1b[31mred\x1b]0;x\x07",
    "[bold]rich[/nope] :smile:",
    "bidi\u202egnp\u2066",
    "-v",
    "--help",
    "a|b`<script>",
    "wide語" * 20,
    "*",
    "[ab]",
    "$(touch ran)",
    "'quote\"",
]


def test_hostile_names_of_directories_act_nowhere(registry: Callable[..., Path], tmp_path: Path) -> None:
    folder = registry(*EVIL)
    os.rename(os.fsencode(folder / "plain"), os.fsencode(folder) + b"/no-utf8-\xff\xfe")
    for name in ("sp ace", "*"):
        stops_elsewhere(folder / name)
    formats = ("json", "sarif", "junit", "github", "gitlab", "markdown")
    outputs = [part for format in formats for part in ("-o", f"{format}={tmp_path / format}.out")]
    result = tokaudit("check", "registry", *outputs, "--verbose", cwd=tmp_path)
    assert result.returncode == 1
    assert f"{len(EVIL)} models: {len(EVIL) - 2} pass, 2 fail" in result.stdout
    assert not ACTIVE.search(result.stdout + result.stderr)
    assert not re.search(r"^\s*(::|##\[)", result.stdout + result.stderr, re.MULTILINE)
    assert len(json.loads((tmp_path / "json.out").read_text(encoding="utf-8"))["reports"]) == len(EVIL)
    assert not (tmp_path / "ran").exists()


# What goes wrong with one


FATES = {
    "killed": "its process was killed, perhaps by the system for lack of memory",
    "aborted": "its process was ended by SIGABRT",
    "left": "its process ended without a result",
    "hang": "it took longer than 3 s",
    "deaf": "it took longer than 3 s",
    "panic": "internal error, PanicException: called unwrap on a None value",
    "crash": "internal error, ValueError: bad\n::error::thing",
    "exited": "internal error, SystemExit: 1",
    "recursion": "internal error, RecursionError: ",
}


def test_a_model_whose_audit_ends_badly_has_no_verdict_and_the_others_have_theirs(
    registry: Callable[..., Path],
) -> None:
    folder = registry("a", *FATES, "z")
    started = time.monotonic()
    names = ["a", *FATES, "z"]
    result = tokaudit(
        "check", *names, "-f", "json", "--timeout", "3", "--jobs", "4", cwd=folder, script=DRIVER
    )
    assert result.returncode == 2
    assert time.monotonic() - started < 60
    reports = {report["target"]: report for report in json.loads(result.stdout)["reports"]}
    assert list(reports) == names
    for name, words in FATES.items():
        assert reports[name]["verdict"] == "no-verdict"
        assert [error["message"].startswith(words) for error in reports[name]["errors"]] == [True], name
    assert reports["a"]["verdict"] == reports["z"]["verdict"] == "pass"
    first, *_ = result.stderr.splitlines()
    assert first.startswith("tokaudit: error[no-result]: killed: its process was killed")
    assert first.endswith(f"... and {len(FATES) - 1} more, see the report")


def test_the_table_has_a_line_for_a_model_that_was_lost(registry: Callable[..., Path]) -> None:
    folder = registry("a", "killed")
    result = tokaudit("check", ".", cwd=folder, script=DRIVER)
    assert "? no verdict  ./killed  1 part unreadable, no findings" in result.stdout
    assert "  fix  audit it alone: tokaudit check ./killed" in result.stdout


def test_the_traceback_of_an_internal_error_is_there_on_demand(registry: Callable[..., Path]) -> None:
    folder = registry("a", "crash")
    assert "Traceback" not in tokaudit("check", ".", cwd=folder, script=DRIVER).stderr
    assert "Traceback" in tokaudit("check", ".", cwd=folder, script=DRIVER, TOKAUDIT_DEBUG="1").stderr


def test_a_path_that_is_none_is_no_verdict_beside_others(registry: Callable[..., Path]) -> None:
    folder = registry("a")
    result = tokaudit("check", "a", "hf://org/name", "absent", "-f", "json", cwd=folder)
    assert result.returncode == 2
    codes = [[error["code"] for error in report["errors"]] for report in json.loads(result.stdout)["reports"]]
    assert codes == [[], ["usage"], ["no-such-path"]]


# Signals


def descendants(pid: int) -> set[int]:
    """Every process below that one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    below: set[int] = set()
    while True:
        more = {child for child, parent in parents.items() if parent in below | {pid}} - below
        if not more:
            return below
        below |= more


def alive(pids: set[int]) -> set[int]:
    """Those that run; a zombie that nobody has reaped yet does not."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            running.add(pid)
    return running


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc, to see processes")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_a_signal_ends_all_processes(registry: Callable[..., Path], number: int, code: int) -> None:
    """Those that hang or hear no signal, too, and the isolated processes of their tokenizers."""
    folder = registry("hang", "deaf")
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "check", "hang", "deaf", "--jobs", "2"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    below: set[int] = set()
    deadline = time.monotonic() + 30
    while len(below) < 4 and time.monotonic() < deadline:  # two audits, two tokenizers
        time.sleep(0.05)
        below = descendants(process.pid)
    assert len(below) == 4
    time.sleep(0.3)
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert process.communicate(timeout=20) == (b"", b"")
    deadline = time.monotonic() + 10
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(below) == set()


# The processes


def test_a_process_loads_nothing_that_its_parent_could_have(registry: Callable[..., Path]) -> None:
    """Each module would be loaded once for each model."""
    folder = registry("a", "b")
    script = """
import sys
from tokaudit.cli.auditing import Audit
inner = Audit._alone
def alone(self, path):
    before = set(sys.modules)
    report = inner(self, path)
    print(*sorted(set(sys.modules) - before), file=sys.stderr)
    return report
Audit._alone = alone
from tokaudit.cli import main
sys.exit(main())
"""
    result = tokaudit("check", "a", "b", cwd=folder, script=script)
    loaded = set(result.stderr.split())
    assert not {name for name in loaded if not name.startswith("encodings.")}


def test_one_model_is_audited_without_any_of_this(registry: Callable[..., Path]) -> None:
    folder = registry("a")
    script = f"{RUN.removesuffix('sys.exit(main())')}main(); print(*sys.modules, file=sys.stderr)"
    loaded = tokaudit("check", "a", cwd=folder, script=script).stderr.split()
    assert "tokaudit.load" in loaded
    several = {"tokaudit.parallel", "multiprocessing", "concurrent", "glob"}
    settings = {"tomllib", "tomli", "tokaudit.suppression", "tokaudit.baseline"}
    assert not {*several, *settings} & set(loaded)


def run_each(work: Callable[[int], object], count: int, jobs: int, seconds: float = 30) -> dict[int, object]:
    return dict(each(work, count, jobs=jobs, seconds=seconds, look=lambda: None))


def test_results_of_any_size_come_back_from_any_number_of_processes() -> None:
    assert run_each(lambda item: bytes([item]) * 300_000, 7, 3) == {i: bytes([i]) * 300_000 for i in range(7)}
    assert run_each(lambda item: item, 3, 50) == {0: 0, 1: 1, 2: 2}
    assert run_each(lambda item: item, 0, 2) == {}


def test_items_run_at_the_same_time_and_no_more_than_asked_for(tmp_path: Path) -> None:
    def work(item: int) -> int:
        (tmp_path / str(item)).touch()
        time.sleep(0.3)
        running = len(list(tmp_path.iterdir()))
        (tmp_path / str(item)).unlink()
        return running

    counts = run_each(work, 6, 3)
    assert max(counts.values()) == 3  # type: ignore[type-var]
    assert set(run_each(work, 3, 1).values()) == {1}


def test_an_exception_ends_the_processes_that_still_run(tmp_path: Path) -> None:
    def work(item: int) -> int:
        if item:
            (tmp_path / str(os.getpid())).touch()
            time.sleep(600)
        return item

    running = each(work, 3, jobs=3, seconds=600, look=lambda: None)
    assert next(running) == (0, 0)
    deadline = time.monotonic() + 10
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.close()
    pids = {int(entry.name) for entry in tmp_path.iterdir()}
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_when_the_command_is_killed_its_processes_end(registry: Callable[..., Path]) -> None:
    folder = registry("a", "hang")
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "check", str(folder), "--jobs", "2"],
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    pids: list[int] = []
    seen = 0.0
    while time.monotonic() < deadline and (not pids or time.monotonic() < seen + 1):
        pids = [int(pid) for pid in children.read_text().split()]
        seen = seen or (time.monotonic() if pids else 0.0)  # the one that hangs still does a second later
        time.sleep(0.01)
    assert pids
    process.kill()
    process.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.01)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_where_the_system_starts_no_more_processes_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, calls = os.fork, iter(range(100))

    def scarce() -> int:
        if next(calls) % 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", scarce)
    assert run_each(lambda item: item, 4, 4) == {i: i for i in range(4)}


def test_where_the_system_starts_none_every_item_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "fork", none)
    lost = Lost("no process can be started: Cannot allocate memory")
    before = len(os.listdir("/proc/self/fd"))
    assert run_each(lambda item: item, 3, 2) == dict.fromkeys(range(3), lost)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_that_is_done_leaves_nothing_behind() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = len(os.listdir("/proc/self/fd")), children.read_text()  # other tests may keep a process
    run_each(lambda item: item, 20, 4)
    assert (len(os.listdir("/proc/self/fd")), children.read_text()) == before


def test_signs_of_life_are_given_while_nothing_ends() -> None:
    looks: list[float] = []
    list(each(lambda item: time.sleep(2.5), 1, jobs=1, seconds=30, look=lambda: looks.append(0)))
    assert len(looks) >= 3
