"""The plan: data that is printed as a table and as JSON, made without torch; and the pages of a run."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from models import FIXTURES, base, build, changed
from resizing import bart, both_copies, data, in_shards, tied, untied

from tokaudit.cli import main
from tokaudit.contract import Role
from tokaudit.reporters import View, _plan
from tokaudit.resize import NewToken, Request, plan_resize, resize
from tokaudit.resize.manifest import FILE as MANIFEST

PROJECT = Path(__file__).resolve().parents[1]
HOSTILE = "\x1b[31m\u202e::error::\n[bold]x"


def schema(name: str) -> Any:
    return json.loads((files("tokaudit.reporters") / f"{name}.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build(in_shards(untied(), 3), tmp_path / "source")


@pytest.mark.parametrize("option", ["--format=terminal", "--format=json"])
def test_a_plan_is_made_without_torch_and_writes_nothing(option: str, source: Path, tmp_path: Path) -> None:
    code = (
        "import json, sys\nfrom tokaudit.cli import main\n"
        f"code = main(['resize', {str(source)!r}, 'out', '--add-token', '<x>', '--dry-run', {option!r}])\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=60
    )
    exit_code, modules = json.loads(done.stderr.splitlines()[-1])
    assert exit_code == 0
    assert not {"torch", "numpy", "safetensors", "transformers", "pydantic"} & set(modules)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert "<x>" in done.stdout


REQUESTS = [
    Request(tokens=(NewToken("<x>"), NewToken(HOSTILE)), multiple=64, output_init="zeros"),
    Request(tokens=(NewToken("<x>", init="copy=<|user|>"),), roles={Role.PAD: "<x>"}),
    Request(rows=400),
    Request(rows=320),
    Request(init="description=a text", roles={Role.PAD: "<|p|>"}),
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
@pytest.mark.parametrize("make", [untied, tied, both_copies, bart], ids=lambda make: make.__name__)
def test_plan_and_manifest_follow_their_schemas(number: int, make: Any, tmp_path: Path) -> None:
    source = build(make(), tmp_path / "source")
    request = REQUESTS[number]
    document = json.loads(_plan.as_json(plan_resize(source, request), View()))
    jsonschema.validate(document, schema("plan"))
    resize(source, tmp_path / "out", request)
    manifest = data(tmp_path / "out" / MANIFEST)
    jsonschema.validate(manifest, schema("manifest"))
    assert [token["id"] for token in manifest["tokens"]] == [token["id"] for token in document["tokens"]]


def test_plan_json_tells_every_number(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--add-token", "<x>", "--pad-to-multiple-of", "64", "--dry-run", "--format", "json"]
    assert main(["resize", str(source), *arguments]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["rows_before"], document["rows_after"], document["padding_rows"]) == (320, 384, 63)
    (token,) = document["tokens"]
    assert [piece["content"] for piece in token["input"]["constituents"]] == ["<", "x", ">"]
    assert [(entry["shape_after"], entry["bytes_added"]) for entry in document["tensors"]] == [
        ([384, 8], 64 * 16), ([384, 8], 64 * 16),
    ]  # fmt: skip
    assert {(change["file"], change["pointer"]) for change in document["files"]} == {
        ("tokenizer.json", "/added_tokens"),
        ("config.json", "/vocab_size"),
        ("model.safetensors.index.json", "/metadata/total_size"),
    }
    sizes = {path.name: path.stat().st_size for path in source.glob("*.safetensors")}
    rewritten = sum(sizes[name] for name in document["rewritten_shards"])
    assert document["bytes_rewritten"] == rewritten + 2 * 64 * 16
    assert document["bytes_rewritten"] + document["bytes_copied"] == sum(sizes.values()) + 2 * 64 * 16


def test_the_manifest_is_printed_as_it_was_written(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["resize", str(source), str(out), "--add-token", HOSTILE, "--format", "json"]) == 0
    printed = capfd.readouterr().out
    assert json.loads(printed) == data(out / MANIFEST)
    assert "::" not in printed
    assert "##[" not in printed


def test_a_plan_as_json_triggers_nothing_in_a_log(source: Path) -> None:
    plan = plan_resize(source, Request(tokens=(NewToken("##[error]forged ::error::forged"),)))
    text = _plan.as_json(plan, View())
    assert "::" not in text
    assert "##[" not in text
    assert json.loads(text)["tokens"][0]["content"] == "##[error]forged ::error::forged"


def test_schemas_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("plan", "manifest"):
        assert main(["schema", name]) == 0
        assert json.loads(capfd.readouterr().out) == schema(name)


def test_the_dry_run_as_a_page(source: Path) -> None:
    request = Request(
        tokens=(NewToken("<x>"), NewToken("toast", init="zeros")), multiple=64, roles={Role.PAD: "<x>"}
    )
    plan = replace(plan_resize(source, request), source="SOURCE")
    assert _plan.as_text(plan, View()) == GOLDEN


GOLDEN = """SOURCE

  rows     320 before, 384 after
  tables   2 tables in 2 shards
  weights  12.3 KiB rewritten, 144 B copied

tables
  model.embed_tokens.weight  320 -> 384 rows, BF16, 1.0 KiB more, in
                             model-00001-of-00003.safetensors
  lm_head.weight             320 -> 384 rows, BF16, 1.0 KiB more, in
                             model-00003-of-00003.safetensors

files
  tokenizer.json#/added_tokens                       2 entries more
  tokenizer_config.json#/pad_token                   "<|pad|>" -> "<x>"
  config.json#/vocab_size                            320 -> 384
  config.json#/pad_token_id                          306 -> 320
  generation_config.json#/pad_token_id               306 -> 320
  model.safetensors.index.json#/metadata/total_size  10256 -> 12304

new rows
  320 "<x>"        mean-of-subwords: 60 "<", 120 "x", 62 ">"
  321 "toast"      zeros
  62 padding rows  the mean of the rows in use

warning  a zero output row has logit 0: it wins wherever all other logits are
         negative
"""


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_pages_fit_the_terminal_and_are_inert(width: int, source: Path, tmp_path: Path) -> None:
    request = Request(tokens=(NewToken("<x>"), NewToken(HOSTILE)), multiple=64)
    view = View(width=width)
    (source / "pytorch_model.bin").write_bytes(b"x")
    pages = [
        _plan.as_text(plan_resize(source, request), view),
        _plan.result_text(resize(source, tmp_path / f"out{width}", request), view),
    ]
    for page in pages:
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert "::" not in page
        assert all(len(line) <= max(width, 20) for line in page.splitlines())


def test_many_tokens_are_cut_short_on_the_page(source: Path, tmp_path: Path) -> None:
    request = Request(tokens=tuple(NewToken(f"<{number}>") for number in range(50)))
    result = resize(source, tmp_path / "out", request)
    assert "and 30 more tokens in --format json" in _plan.as_text(result.plan, View())
    assert "and 30 more in tokaudit-resize.json" in _plan.result_text(result, View())
    assert len(result.rows) == 50


def test_the_page_of_a_run(source: Path, tmp_path: Path) -> None:
    (source / "optimizer.pt").write_bytes(b"x")
    result = resize(source, tmp_path / "out", Request(tokens=(NewToken("<x>"),)))
    page = " ".join(_plan.result_text(result, View(width=100)).split())
    assert '320 "<x>" from mean-of-subwords: 60 "<", 120 "x", 62 ">"' in page
    assert "not carried optimizer.pt it holds, or may hold, tables with the old rows" in page
    assert "320 before, 321 after" in page
    assert "✓ proven: every old row" in page
    assert "✓ pass: 1 note" in page
    (written,) = result.rows
    assert len(written.neighbours) == 3
    assert written.neighbours[0].cosine >= written.neighbours[1].cosine >= written.neighbours[2].cosine
    assert all(near.id < 320 for near in written.neighbours)


def test_neighbours_are_the_nearest_rows_by_cosine(source: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    result = resize(source, tmp_path / "out", Request(tokens=(NewToken("<x>"),)))
    shard = next(edit.table.tensor.file for edit in result.plan.tensors if "embed" in edit.table.name)
    table = load_file(tmp_path / "out" / shard)["model.embed_tokens.weight"].float()
    cosines = torch.nn.functional.cosine_similarity(table[:320], table[320][None])
    expected = cosines.topk(3)
    (written,) = result.rows
    assert [near.id for near in written.neighbours] == expected.indices.tolist()
    torch.testing.assert_close(torch.tensor([near.cosine for near in written.neighbours]), expected.values)
    assert abs(written.norm - float(table[320].norm())) < 1e-6
    assert (
        abs(written.percentile - 100 * float((table[:320].norm(dim=1) < written.norm).float().mean())) < 1e-3
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "nothing was asked for"),
        (["--format", "yaml", "--rows", "400"], "--format must be terminal or json, not 'yaml'"),
        (["--rows", "400"], "the destination is missing"),
        (["out", "--rows", "400", "--init", "meen"], "no initialiser 'meen'"),
        (["out", "--rows", "400", "--color", "blue"], "--color must be"),
    ],
)
def test_a_wrong_call_is_explained(
    arguments: list[str], says: str, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["resize", str(source), *arguments]) == 2
    assert says in capfd.readouterr().err


def test_the_help_shows_source_and_destination_and_fits_80_columns(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["resize", "--help"]) == 0
    page = capfd.readouterr().out
    assert "SRC" in page.splitlines()[0]
    assert "[DST]" in page.splitlines()[0]
    assert all(len(line) <= 80 for line in page.splitlines())


def test_t5_sentinels_and_whisper_timestamps_are_told(tmp_path: Path) -> None:
    sentinels = {"317": "<extra_id_2>", "318": "<extra_id_1>", "319": "<extra_id_0>"}
    t5 = build(changed(base("t5"), {"tokenizer": {"names": sentinels}}), tmp_path / "t5")
    timestamps = {"300": "<|notimestamps|>", "301": "<|0.00|>", "302": "<|0.02|>"}
    whisper = build(changed(untied(), {"tokenizer": {"names": timestamps}}), tmp_path / "whisper")
    asked = Request(tokens=(NewToken("<x>"),))
    assert any("T5 sentinels" in text for text in plan_resize(t5, asked).warnings)
    assert any("Whisper timestamps" in text for text in plan_resize(whisper, asked).warnings)
    assert plan_resize(t5, Request(rows=400)).warnings == ()


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "architecture", "table", "rows", "says"),
    [
        ("t5-small", "T5ForConditionalGeneration", "shared.weight", 32128, "T5 sentinels"),
        (
            "whisper-tiny", "WhisperForConditionalGeneration", "model.decoder.embed_tokens.weight", 51865,
            "Whisper timestamps",
        ),
    ],
)  # fmt: skip
def test_published_tokenizers_that_count_from_the_end_are_recognised(
    name: str, architecture: str, table: str, rows: int, says: str, real: Path, tmp_path: Path
) -> None:
    config = {"architectures": [architecture], "model_type": name.partition("-")[0], "vocab_size": rows,
              "d_model": 2, "tie_word_embeddings": True}  # fmt: skip
    weights = {"model.safetensors": {table: {"shape": [rows, 2], "dtype": "F16"}}}
    source = build({"json": {"config.json": config}, "safetensors": weights}, tmp_path / name)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        if (real / name / file).exists():
            (source / file).write_bytes((real / name / file).read_bytes())
    plan = plan_resize(source, Request(tokens=(NewToken("<x>"),), force=True))
    assert any(says in text for text in plan.warnings)


def test_tinylm_can_be_planned_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(FIXTURES / "tinylm", tmp_path)
    assert plan_resize(relative, Request(rows=576)).rows_after == 576


def test_a_person_at_a_terminal_sees_a_bar_and_a_pipe_does_not(source: Path, tmp_path: Path) -> None:
    (source / "large.txt").write_bytes(bytes(8 << 20))
    command = [
        sys.executable,
        "-m",
        "tokaudit",
        "resize",
        str(source),
        str(tmp_path / "out"),
        "--rows",
        "336",
    ]
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=end, env=environment, text=True
    ) as process:
        os.close(end)
        shown = b""
        with suppress(OSError):  # how a terminal ends
            while part := os.read(terminal, 65536):
                shown += part
        os.close(terminal)
        page = process.stdout.read() if process.stdout else ""
        assert process.wait(60) == 0
    assert f"writing {tmp_path / 'out'}".encode() in shown.replace(b"\r\n", b"")
    assert b"MB" in shown
    assert "writing" not in page
    quiet = subprocess.run(
        [*command[:5], str(tmp_path / "two"), *command[6:]], cwd=PROJECT, capture_output=True, timeout=60
    )
    assert quiet.stderr == b""
