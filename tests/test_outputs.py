"""`--output FORMAT=FILE`, the summary of a GitHub step, where files lie: the command in real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from models import base, build, changed
from reports import ACTIVE, without_commands

from tokaudit.cli.checkout import Checkout
from tokaudit.cli.outputs import SUMMARY_BYTES
from tokaudit.findings import Location, Region
from tokaudit.formats.json_lines import JsonLines

PROJECT = Path(__file__).resolve().parents[1]
TINYLM = PROJECT / "fixtures" / "tinylm"
FORMATS = ("terminal", "json", "sarif", "junit", "github", "gitlab", "markdown")
RUN = "import sys; from tokaudit.cli import main; sys.exit(main())"


def tokaudit(
    *arguments: str | Path, cwd: Path = PROJECT, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "LC_"))}
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(PROJECT), "LC_ALL": "C.UTF-8", "COLUMNS": "40", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in order, in a directory of its own beside which reports may be written."""
    return Path(shutil.copytree(TINYLM, tmp_path / "models" / "tinylm"))


@pytest.fixture
def broken(model: Path) -> Path:
    """The same with an error: the generation stops at another id."""
    file = model / "generation_config.json"
    text = file.read_text(encoding="utf-8")
    assert '"eos_token_id": 2' in text
    file.write_text(text.replace('"eos_token_id": 2', '"eos_token_id": 3'), encoding="utf-8")
    return model


# Files


def test_several_reports_are_written_beside_the_one_that_is_printed(broken: Path, tmp_path: Path) -> None:
    outputs = [part for format in FORMATS for part in ("--output", f"{format}={tmp_path / format}.out")]
    result = tokaudit("check", broken, *outputs)
    assert (result.returncode, result.stderr) == (1, "")
    assert "error TA304" in result.stdout
    written = {format: (tmp_path / f"{format}.out").read_text(encoding="utf-8") for format in FORMATS}
    for text in written.values():
        assert "TA304" in text
    assert json.loads(written["json"])["verdict"] == "findings"
    assert ElementTree.fromstring(written["junit"]).attrib["failures"] == "1"
    assert json.loads(written["sarif"])["runs"][0]["results"][0]["ruleId"] == "TA304"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (["check", "MODEL", "--output", "json=one", "--output", "sarif=two"], ["one", "two"]),
        (["check", "MODEL", "--write-baseline", "base", "--output", "json=one"], ["base", "one"]),
        (["lock", "MODEL", "-o", "a.lock"], ["a.lock"]),
    ],
)
def test_what_was_written_is_named_where_standard_output_is_full(
    arguments: list[str], written: list[str], model: Path, tmp_path: Path
) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-c", RUN, *(str(model) if word == "MODEL" else word for word in arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert result.returncode == 2
    names = [name if arguments[0] == "lock" else str(tmp_path / name) for name in written]
    was = "was" if len(names) == 1 else "were"
    assert result.stderr == (
        f"tokaudit: error: {', '.join(names)} {was} written, "
        "but standard output cannot be written: No space left on device\n"
    )
    assert all((tmp_path / name).stat().st_size for name in written)


def test_a_file_is_not_written_as_a_terminal_is(broken: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    tokaudit("check", broken, "--color", "always", "--output", f"terminal={file}", LC_ALL="C", PYTHONUTF8="0")
    text = file.read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "✗ fail" in text


def test_a_report_replaces_the_one_before_it_whole_and_keeps_a_link(model: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("x" * 1_000_000)
    link = tmp_path / "report.json"
    link.symlink_to(real)
    assert tokaudit("check", model, "-o", f"json={link}").returncode == 0
    assert link.is_symlink()
    assert json.loads(real.read_text(encoding="utf-8"))["verdict"] == "pass"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~umask
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["models", "real.json", "report.json"]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_the_same_with_files(model: Path, tmp_path: Path, code: int) -> None:
    if code == 1:
        (model / "generation_config.json").write_text('{"eos_token_id": 3}')
    if code == 2:
        (model / "config.json").write_text("{")
    file = tmp_path / "report.xml"
    result = tokaudit("check", model, "--output", f"junit={file}")
    assert result.returncode == code
    assert ElementTree.parse(file).getroot().attrib["errors"] == str(int(code == 2))


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("sarif", "--output must be FORMAT=FILE, not 'sarif'"),
        ("sarif=", "--output must be FORMAT=FILE, not 'sarif='"),
        ("xml=report.xml", "there is no output format 'xml'"),
        ("sarif=absent/report.sarif", "there is no directory"),
        ("sarif=.", "'.' is no file"),
        ("sarif=/dev/stdout", "'/dev/stdout' is no file"),
        ("sarif=/dev/null", "'/dev/null' is no file"),
        ("sarif=/dev/fd/1", "'/dev/fd/1' is no file"),
        ("sarif=/proc/self/fd/1", "'/proc/self/fd/1' is no file"),
        ("sarif=models/tinylm/report.sarif", "lies in 'models/tinylm', which is audited"),
        ("sarif=models/tinylm/../tinylm/report.sarif", "which is audited"),
        ("sarif=link/report.sarif", "which is audited"),
        ("sarif=models/tinylm", "is no file"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_is_read(
    model: Path, tmp_path: Path, output: str, complaint: str
) -> None:
    (tmp_path / "link").symlink_to(model)
    before = sorted(tmp_path.rglob("*"))
    result = tokaudit("check", "models/tinylm", "absent", "--output", output, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_written_into_the_tokenizer_that_is_audited(model: Path, tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    shutil.copy(TINYLM / "tokenizer.json", tokenizer)
    result = tokaudit("check", model, "--tokenizer", tokenizer, "-o", f"json={tokenizer / 'report.json'}")
    assert result.returncode == 2
    assert [entry.name for entry in tokenizer.iterdir()] == ["tokenizer.json"]


def test_a_file_named_twice_is_refused(model: Path, tmp_path: Path) -> None:
    result = tokaudit("check", model, "-o", "json=a", "-o", "sarif=./a", cwd=tmp_path)
    assert result.returncode == 2
    assert "--output names './a' twice" in result.stderr


@pytest.mark.parametrize("fixture", ["model", "broken"])
def test_a_file_that_cannot_be_written_is_exit_2_and_the_others_are_written(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str
) -> None:
    """A name that is too long for its temporary file beside it."""
    directory = request.getfixturevalue(fixture)
    result = tokaudit(
        "check", directory, "-o", f"json={tmp_path / ('x' * 254)}", "-o", f"sarif={tmp_path / 'report.sarif'}"
    )
    assert result.returncode == 2
    first, hint = result.stderr.splitlines()
    assert first.startswith("tokaudit: error: cannot write ")
    assert hint.startswith("  hint: ")
    assert "checked" in result.stdout
    assert json.loads((tmp_path / "report.sarif").read_text(encoding="utf-8"))["runs"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["models", "report.sarif"]


# The summary of a GitHub step


def test_the_summary_of_a_step_is_appended_to_for_the_format_github(broken: Path, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    for format in ("github", "json"):
        assert tokaudit("check", broken, "-f", format, GITHUB_STEP_SUMMARY=str(file)).returncode == 1
    text = file.read_text(encoding="utf-8")
    assert text.startswith("before\n## ")
    assert text.count("### error TA304") == 1


def test_the_summary_stays_below_the_limit_of_github(broken: Path, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("x" * (SUMMARY_BYTES - 1_200))
    assert tokaudit("check", broken, "-f", "github", GITHUB_STEP_SUMMARY=str(file)).returncode == 1
    assert "The report is longer than a summary may be" in file.read_text(encoding="utf-8")
    assert file.stat().st_size <= SUMMARY_BYTES < 1024 * 1024
    for _ in range(3):
        tokaudit("check", broken, "-f", "github", GITHUB_STEP_SUMMARY=str(file))
    assert file.stat().st_size <= SUMMARY_BYTES


def test_a_summary_that_cannot_be_written_is_exit_2(model: Path, tmp_path: Path) -> None:
    result = tokaudit("check", model, "-f", "github", GITHUB_STEP_SUMMARY=str(tmp_path / "absent" / "x"))
    assert result.returncode == 2
    assert result.stderr == (
        "tokaudit: error: GITHUB_STEP_SUMMARY cannot be written: No such file or directory\n"
    )
    assert "✓ pass" in result.stdout


# Where files lie


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a model in models/tinylm; the working directory is its folder "ci"."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "ci").mkdir()
    shutil.copytree(TINYLM, root / "models" / "tinylm")
    monkeypatch.chdir(root / "ci")
    return root


def test_paths_are_relative_to_the_repository(repository: Path) -> None:
    places = Checkout()
    for target in ("../models/tinylm", str(repository / "models" / "tinylm"), "../models/./tinylm/"):
        assert places.path(target, Location("config.json")) == "models/tinylm/config.json"
    assert places.path("..", Location("")) == "."
    assert places.path("..", Location("config.json")) == "config.json"


def test_a_file_outside_the_model_is_named_by_its_own_path(repository: Path) -> None:
    (repository / "ci" / "tokaudit.lock").write_text("{}", encoding="utf-8")
    at = Location("tokaudit.lock", outside=True)
    assert Checkout().path("../models/tinylm", at) == "ci/tokaudit.lock"
    assert Checkout(tokenizer="..").path("../models/tinylm", at) == "ci/tokaudit.lock"


def test_without_a_repository_paths_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Checkout().path("a/model", Location("config.json")) == "a/model/config.json"


def test_what_lies_elsewhere_is_named_from_the_model_on(repository: Path) -> None:
    snapshot = "/cache/hub/models--org--name/snapshots/0123abc"
    assert Checkout().path("/opt/models/llama", Location("config.json")) == "llama/config.json"
    assert Checkout().path("/", Location("config.json")) == "config.json"
    assert Checkout().path(snapshot, Location("config.json")) == (
        "models--org--name/snapshots/0123abc/config.json"
    )


@pytest.mark.parametrize("file", ["../../etc/passwd", "/etc/passwd", "a/../../x"])
def test_no_name_from_a_model_leads_out_of_it(repository: Path, file: str) -> None:
    assert Checkout().path("../models/tinylm", Location(file)).startswith("models/tinylm/")


def test_the_files_of_a_tokenizer_elsewhere_are_shown_there(repository: Path) -> None:
    places = Checkout("../tokenizer")
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "merges.txt", "chat_template.jinja"):
        assert places.path("../models/tinylm", Location(file)) == f"tokenizer/{file}"
    for file in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ):
        assert places.path("../models/tinylm", Location(file)) == f"models/tinylm/{file}"


def test_the_line_of_a_member_is_found_in_its_file(repository: Path) -> None:
    directory = repository / "models" / "tinylm"
    (directory / "config.json").write_text('{\n  "a": 1,\n  "vocab_size": 512\n}\n')
    region = Checkout().region(str(directory), Location("config.json", "/vocab_size"))
    assert region == Region(line=3, column=3, end_column=20)


@pytest.mark.parametrize(
    "at",
    [
        Location("model.safetensors", tensor="model.embed_tokens.weight"),
        Location("absent.json", "/a"),
        Location("../outside.json", "/a"),
        Location("vocab.txt"),
    ],
)
def test_what_has_no_lines_is_shown_at_its_beginning(repository: Path, at: Location) -> None:
    (repository / "models" / "outside.json").write_text('\n\n{"a": 1}')
    assert Checkout().region("../models/tinylm", at) == Region()


TEXT = """{
  "added_tokens": [
    {"id": 1}, {"id": 2},
    {
      "id": 3
    }
  ],
  "model": {"vocab": {"a/b": 0, "~": 1, "é": 2}},
  "twice": 1,
  "twice": 2
}
"""


@pytest.mark.parametrize(
    ("pointer", "line", "shown"),
    [
        ("", 1, "{"),
        ("/added_tokens", 2, '"added_tokens": ['),
        ("/added_tokens/0", 3, '{"id": 1}'),
        ("/added_tokens/1/id", 3, '"id": 2'),
        ("/added_tokens/2", 4, "{"),
        ("/added_tokens/2/id", 5, '"id": 3'),
        ("/model/vocab/a~1b", 8, '"a/b": 0'),
        ("/model/vocab/~0", 8, '"~": 1'),
        ("/model/vocab/é", 8, '"é": 2'),
        ("/twice", 10, '"twice": 2'),
        ("/absent", 1, "{"),
        ("/added_tokens/9", 2, '"added_tokens": ['),
        ("/twice/deeper", 10, '"twice": 2'),
    ],
)
def test_a_pointer_leads_to_a_line_or_to_the_nearest_one_above(pointer: str, line: int, shown: str) -> None:
    region = JsonLines(TEXT).region(pointer)
    assert region.line == line
    assert TEXT.splitlines()[line - 1][region.column - 1 : region.end_column - 1] == shown


@pytest.mark.parametrize(
    "text", ["", " ", "{", '{"a"', '{"a": ', '{"a": [1,, 2]}', "[" * 100_000, '"', "{]", "1"]
)
def test_a_text_that_is_no_json_gives_a_region_all_the_same(text: str) -> None:
    region = JsonLines(text).region("/a/0/b")
    assert region.line == 1
    assert 1 <= region.column <= region.end_column


# A hostile model

EVIL = {
    "ansi": "\x1b[2J\x1b[31mPASSED\x1b]0;x\x07",
    "csi": "\x9b31mred",
    "rich": "[bold red]x[/] [/nope]",
    "actions": "x\n::error file=a,line=1::forged\n::add-mask::a\n::stop-commands::t\n##[error]forged",
    "output": "\r\n::set-output name=ok::true",
    "markdown": "|x|<img src=x onerror=alert(1)>`](javascript:1)\n# heading\n</details><script>x</script>",
    "xml": "]]><x>&amp;\x01\x0b\x1f\ufffe\uffff",
    "bidi": "\u202egnp.exe\u2066 \u200b\ufeff\u00ad",
    "lines": "line1\nline2\rline3\u2028line4\u0085line5",
    "nul": "a\x00b",
    "percent": "%0A%0D::warning::x {0} ${{ secrets.X }} $(id) `id`",
    "long": "\t" + "A" * 4000,
}


def write_weights(file: Path, names: list[str], rows: int) -> None:
    """Input embeddings of so many rows, and a tensor of each name."""
    header = {
        "model.embed_tokens.weight": {"dtype": "F32", "shape": [rows, 1], "data_offsets": [0, 4 * rows]}
    }
    end = 4 * rows
    for name in names:
        header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
        end += 4
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def hostile_tokens(directory: Path) -> Path:
    """Token texts in the vocabulary, past the last row, as added tokens and as roles."""
    names = {str(40 + i): text + "!" for i, text in enumerate(EVIL.values())}
    added = [{"id": 320 + i, "content": text, "special": True} for i, text in enumerate(EVIL.values())]
    roles = dict(zip(("bos", "eos", "pad", "unk"), EVIL.values(), strict=False))
    change = {
        "tokenizer": {"names": names, "added": added},
        "json": {"tokenizer_config.json": {f"{role}_token": text for role, text in roles.items()}},
    }
    return build(changed(base("llama"), change), directory)


def hostile_tensors(directory: Path) -> Path:
    built = build(base("llama"), directory)
    write_weights(built / "model.safetensors", [*EVIL.values(), "../../x", "lm_head.weight"], 3)
    return built


def hostile_files(directory: Path) -> Path:
    """The directory, a shard and an extra file whose name is no UTF-8."""
    built = build(base("llama"), directory / "m\x1b[31m\n::error::x`|<b>")
    shard = "x\n::error::y\u202e-00001.safetensors"
    (built / "model.safetensors").rename(built / shard)
    weight_map = {EVIL["actions"]: shard, "model.embed_tokens.weight": EVIL["output"] + ".safetensors"}
    (built / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (Path(os.fsdecode(os.fsencode(built) + b"/extra-\xff\xfe.safetensors"))).write_bytes(b"")
    return built


def hostile_json(directory: Path) -> Path:
    """What cannot be read says so with texts of the file: half an emoji as a token, a key that acts."""
    built = build(base("llama"), directory)
    (built / "tokenizer_config.json").write_text('{"a": "\\ud83d", "x\\n::error::y": }')
    (built / "generation_config.json").write_text(
        json.dumps({EVIL["actions"]: 1, "eos_token_id": EVIL["xml"]})
    )
    return built


HOSTILE = (hostile_tokens, hostile_tensors, hostile_files, hostile_json)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(inner)


def parsed(format: str, text: str) -> Iterator[str]:
    """The texts that a reader of the format gets; those of the JSON format are what stands in the files."""
    if format in ("sarif", "gitlab"):
        yield from strings(json.loads(text))
    elif format == "json":
        assert json.loads(text)["findings"] or json.loads(text)["errors"]
    elif format == "junit":
        for element in ElementTree.fromstring(text).iter():
            yield from (*element.attrib.values(), element.text or "", element.tail or "")
    else:
        yield without_commands(text) if format == "github" else text


@pytest.mark.parametrize("make", HOSTILE)
def test_nothing_of_a_hostile_model_acts_in_any_format(make: type, tmp_path: Path) -> None:
    """On standard output, in the files, for whoever parses them, and in the summary of a step."""
    directory = make(tmp_path / "model")
    summary = tmp_path / "summary.md"
    outputs = [part for format in FORMATS for part in ("-o", f"{format}={tmp_path / format}.out")]
    result = tokaudit("check", directory, "-f", "github", *outputs, GITHUB_STEP_SUMMARY=str(summary))
    assert result.returncode in (1, 2)
    printed = without_commands(result.stdout)
    lines = re.split("[\r\n]", "\n".join((printed, result.stderr, summary.read_text(encoding="utf-8"))))
    assert not ACTIVE.search(printed + result.stderr)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in lines)
    for format in FORMATS:
        text = (tmp_path / f"{format}.out").read_text(encoding="utf-8")
        assert "##[" not in text
        assert "::" not in without_commands(text)
        for one in parsed(format, text):
            assert not ACTIVE.search(one)
            assert "##[" not in one


@pytest.mark.parametrize("format", FORMATS)
def test_a_hostile_model_is_printed_in_ascii_where_nothing_else_can_be(format: str, tmp_path: Path) -> None:
    directory = hostile_tokens(tmp_path / "model")
    result = tokaudit("check", directory, "-f", format, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert result.returncode in (1, 2)
    assert result.stdout.isascii()
    for one in parsed(format, result.stdout):
        assert not ACTIVE.search(one)
