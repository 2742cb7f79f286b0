"""`tokaudit data` and `check --data` from the outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
import token_data
from command import RUN, environment, tokaudit
from models import base, build, changed
from test_imports import loaded_by_command

import tokaudit as api
from tokaudit.findings import Severity
from tokaudit.report import Report, Verdict
from tokaudit.reporters import View, names, reporter

TEXT = list(b"The rain in the north is not as cold as it was last year, but the wind is. ")
END, PAD = 311, 306
TABLES = ("model.embed_tokens.weight", "lm_head.weight")


def found(report: Report) -> dict[str, Severity]:
    return {finding.rule: finding.severity for finding in report.findings}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return build(base("llama"), tmp_path / "model")


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", np.array([*TEXT, END, PAD, PAD], dtype="uint16"))
    return tmp_path / "ids.npy"


def test_data_is_audited_against_a_tokenizer_alone(model: Path, ids: Path, tmp_path: Path) -> None:
    for file in model.iterdir():
        if file.suffix == ".safetensors" or file.name == "config.json":
            file.unlink()
    run = tokaudit("data", ids, "--tokenizer", model, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert "78 ids (uint16) in 1 file, from 32 to 311" in run.stdout
    assert 'pad 306 "<|pad|>" 2.6 %' in run.stdout
    assert '"The rain in the north is not as cold as it was' in run.stdout
    assert "TA905 unvisited-tokens" in run.stdout
    assert {ref.area for ref in api.check_data(ids, tokenizer=model).checked} == {"training"}


def test_exit_codes(model: Path, ids: Path, tmp_path: Path) -> None:
    def code(*arguments: str | Path) -> int:
        return tokaudit(*arguments, cwd=tmp_path).returncode

    np.save(tmp_path / "bad.npy", np.array([*TEXT, 400], dtype="uint16"))
    assert code("data", "bad.npy", "--tokenizer", model) == 1
    assert code("check", model, "--data", ids) == 0
    assert code("check", model, "--data", ids, "--strict") == 1  # added tokens that never occur


def test_what_cannot_be_read_leaves_no_verdict_and_the_rest_is_said(
    model: Path, ids: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "bad.npy", np.array([*TEXT, 400], dtype="uint16"))
    (tmp_path / "cut.npy").write_bytes(ids.read_bytes()[:-1])
    run = tokaudit("data", "*.npy", "--tokenizer", model, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.splitlines() == [
        "tokaudit: error[data-truncated]: cut.npy: uint16 of shape [78] needs 284 bytes, the file has 283",
        "  hint: write or download the file again",
    ]
    assert "error TA901 data-id-out-of-range" in run.stdout
    assert "TA905 unvisited-tokens" not in run.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.npy"], "error[no-such-path]: absent.npy: there is no such file or directory"),
        (["*.arrow"], "error[no-such-path]: *.arrow: the pattern matches nothing"),
        (["ids.npy", "--dtype", "float32"], "--dtype must be uint8, int8, "),
        (["ids.npy", "--engine", "spark"], "--engine must be local or ray, not 'spark'"),
        ([], "missing argument 'PATH'"),
    ],
)
def test_wrong_calls_are_one_line(arguments: list[str], words: str, model: Path, ids: Path) -> None:
    run = tokaudit("data", *arguments, "--tokenizer", model, cwd=ids.parent)
    assert run.returncode == 2
    assert words in run.stderr.splitlines()[0]


def test_a_missing_tokenizer_leaves_no_verdict(ids: Path, tmp_path: Path) -> None:
    run = tokaudit("data", ids, "--tokenizer", tmp_path / "absent", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert "error[no-such-path]" in run.stderr


def test_json_has_the_count_of_each_id_and_fits_its_schema(model: Path, ids: Path, tmp_path: Path) -> None:
    run = tokaudit("check", model, "--data", ids, "--format", "json", cwd=tmp_path)
    document = json.loads(run.stdout)
    jsonschema.validate(document, json.loads(tokaudit("schema", "report", cwd=tmp_path).stdout))
    data = document["facts"]["data"]
    assert (data["ids"], data["least"], data["most"], data["rows"]) == (78, 32, 311, 320)
    assert data["counts"]["306"] == 2
    assert sum(data["counts"].values()) == 78
    assert data["samples"][0]["text"].startswith("The rain")
    assert {"role": "eos", "id": 311, "content": "<|turn_end|>", "count": 1} in data["roles"]


def test_labels_are_in_the_json(model: Path, tmp_path: Path) -> None:
    token_data.write_parquet(tmp_path / "a.parquet", [[*TEXT, END]], [[-100, *TEXT[1:], END]])
    report = api.check(model, data=tmp_path / "a.parquet")
    assert report.summary.data is not None
    labels = report.summary.data.data.statistics.labels
    assert (labels.items, labels.trained, labels.same) == (76, 75, 75)
    run = tokaudit("check", model, "--data", "a.parquet", "--format", "json", cwd=tmp_path)
    assert json.loads(run.stdout)["facts"]["data"]["labels"]["trained"] == 75


@pytest.mark.parametrize(("name", "severity"), [("labels", Severity.ERROR), ("targets", Severity.NOTE)])
def test_moved_labels_are_wrong_where_a_model_class_takes_them(
    name: str, severity: Severity, model: Path, tmp_path: Path
) -> None:
    row = {"input_ids": TEXT, name: [*TEXT[1:], END]}
    (tmp_path / "moved.jsonl").write_text(json.dumps(row))
    assert found(api.check(model, data=tmp_path / "moved.jsonl"))["TA904"] is severity


def test_one_file_of_moved_labels_among_right_ones_is_found(model: Path, tmp_path: Path) -> None:
    moved = [{"input_ids": TEXT, "labels": [*TEXT[1:], END]}]
    right = [{"input_ids": [*TEXT, END], "labels": [*TEXT, END]}] * 20
    for name, rows in {"a": right, "b": moved, "c": right}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = api.check(model, data=[tmp_path / f"{name}.jsonl" for name in "abc"])
    [finding] = [finding for finding in report.findings if finding.rule == "TA904"]
    assert "labels of 1 of 3 files are the next input" in finding.message
    assert [Path(claim.at.file).name for claim in finding.claims] == ["b.jsonl"]


@pytest.mark.parametrize(("ends", "masked", "said"), [(100, 1, True), (200, 1, False), (0, 0, False)])
def test_masked_ends_are_found_where_they_are_one_in_a_hundred(
    ends: int, masked: int, said: bool, model: Path, tmp_path: Path
) -> None:
    ids = [*TEXT, END] * ends or TEXT
    labels = [*[*TEXT, END] * (ends - masked), *[*TEXT, -100] * masked] or TEXT
    (tmp_path / "a.jsonl").write_text(json.dumps({"input_ids": ids, "labels": labels}))
    report = api.check(model, data=tmp_path / "a.jsonl")
    assert "TA903" in {ref.code for ref in report.checked}
    assert ("TA903" in found(report)) is said


def test_added_tokens_that_need_not_occur_are_no_warning(model: Path, ids: Path) -> None:
    """Those with a role, placeholders for images, and those that keep a place for others."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    (model / "config.json").write_text(json.dumps({**config, "image_token_id": 308}), "utf-8")
    messages = [finding.message for finding in api.check(model, data=ids).findings if finding.rule == "TA905"]
    assert messages[0] == (
        '3 added tokens are never visited: 305 "<|end|>", 309 "<|user|>", 310 "<|assistant|>"'
    )


@pytest.mark.parametrize(
    ("id", "words"),
    [
        (257, ["and is an ordinary token"]),
        (350, ["350 (no token) makes up 73 % of all ids, as padding would, and is no token"]),
        (312, []),  # an added token, whatever it is for
    ],
)
def test_an_id_that_fills_rows_like_padding_is_found_unless_it_may_be_meant_to(
    id: int, words: list[str], tmp_path: Path
) -> None:
    table = {"dtype": "BF16", "shape": [384, 8]}
    rows = {
        "json": {"config.json": {"vocab_size": 384}},
        "safetensors": {"model.safetensors": dict.fromkeys(TABLES, table)},
    }
    model = build(changed(base("llama"), rows), tmp_path / "model")
    np.save(tmp_path / "ids.npy", np.array([*TEXT, *[id] * 200], dtype="uint16"))
    findings = api.check(model, data=tmp_path / "ids.npy").findings
    messages = [finding.message for finding in findings if finding.rule == "TA907"]
    assert len(messages) == len(words)
    assert all(told in message for told, message in zip(words, messages, strict=True))


def test_data_without_a_single_id_leaves_no_verdict(model: Path, ids: Path, tmp_path: Path) -> None:
    """Whatever was to be audited is not there; an empty file among others is fine."""
    schema = pa.schema([("input_ids", pa.list_(pa.int32()))])
    with pa.ipc.new_stream(tmp_path / "batches.arrow", schema):
        pass
    np.save(tmp_path / "array.npy", np.zeros((0, 8), dtype="uint16"))
    (tmp_path / "raw.bin").touch()
    for name in ("batches.arrow", "array.npy", "raw.bin"):
        report = api.check(model, data=tmp_path / name)
        assert [error.code for error in report.unreadable] == ["no-data"]
        assert api.check(model, data=[tmp_path / name, ids]).verdict() is Verdict.PASS


def test_without_data_the_rules_say_so(model: Path) -> None:
    report = api.check(model)
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    for code in ("TA901", "TA902", "TA903", "TA904", "TA905", "TA907"):
        assert reasons[code] == "no --data was given"
    assert report.summary.data is None


def test_an_audit_without_data_does_not_load_what_reads_it(model: Path) -> None:
    loaded = loaded_by_command("check", str(model), "--format", "json")
    assert "tokaudit.audit" in loaded
    assert not {name for name in loaded if name.startswith(("tokaudit.data", "tokaudit.contract.data"))}


def test_a_stray_token_matters_once_the_data_holds_it(tmp_path: Path) -> None:
    stray = [*base("llama")["tokenizer"]["added"], {"id": 320, "content": "<stray>", "special": True}]
    model = build(changed(base("llama"), {"tokenizer": {"added": stray}}), tmp_path / "model")
    np.save(tmp_path / "without.npy", np.array([*TEXT, END], dtype="uint16"))
    np.save(tmp_path / "with.npy", np.array([*TEXT, 320], dtype="uint16"))
    assert found(api.check(model, data=tmp_path / "without.npy"))["TA102"] is Severity.WARNING
    report = api.check(model, data=tmp_path / "with.npy")
    assert found(report)["TA101"] is Severity.ERROR
    assert any("seen in the given data" in finding.message for finding in report.findings)


def test_a_dead_row_matters_once_the_data_holds_its_token(tmp_path: Path) -> None:
    dead = {"dtype": "BF16", "shape": [320, 8], "fill": {"rows": {"319": "zeros"}}}
    change = {"safetensors": {"model.safetensors": {"model.embed_tokens.weight": dead}}}
    model = build(changed(base("llama"), change), tmp_path / "model")  # 319 is a reserved name
    np.save(tmp_path / "without.npy", np.array([*TEXT, END], dtype="uint16"))
    np.save(tmp_path / "with.npy", np.array([*TEXT, 319], dtype="uint16"))
    assert "TA602" not in found(api.check(model, data=tmp_path / "without.npy", deep=True))
    assert found(api.check(model, data=tmp_path / "with.npy", deep=True))["TA602"] is Severity.ERROR


def test_a_settings_file_names_data_relative_to_itself(model: Path, ids: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "ci").mkdir(parents=True)
    (project / "tokaudit.toml").write_text('data = ["../ids.npy"]\ndtype = "uint16"\n')
    run = tokaudit("check", model, "--format", "json", cwd=project / "ci")
    assert json.loads(run.stdout)["facts"]["data"]["ids"] == 78
    run = tokaudit("check", model, "--format", "json", cwd=tmp_path, TOKAUDIT_DATA="ids.npy")
    assert json.loads(run.stdout)["facts"]["data"]["ids"] == 78
    (project / "tokaudit.toml").write_text('dtype = "float32"\n')
    run = tokaudit("check", model, cwd=project)
    assert run.returncode == 2
    assert "dtype must be uint8" in run.stderr


def test_many_models_are_each_held_against_the_data(ids: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        build(base("llama"), tmp_path / "models" / name)
    run = tokaudit("check", "models", "--data", ids, "--format", "json", cwd=tmp_path)
    assert [each["facts"]["data"]["ids"] for each in json.loads(run.stdout)["reports"]] == [78, 78]


def test_texts_of_the_data_are_inert(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    evil = list(b"\x1b[31m::error::x\r\n")
    np.save(tmp_path / "ids.npy", np.array([*evil, *TEXT], dtype="uint16"))
    report = api.check_data(tmp_path / "ids.npy", tokenizer=model)
    for format in names():
        text = reporter(format).render([report], View())
        assert "\x1b" not in text
        assert "::error::x" not in text


def test_nothing_is_written_into_the_data(model: Path, ids: Path) -> None:
    run = tokaudit(
        "check", model, "--data", ids.parent, "--output", f"json={ids.parent / 'o.json'}", cwd=model
    )
    assert run.returncode == 2
    assert "which is audited" in run.stderr


def _screen(leader: int) -> Iterator[str]:
    """What the terminal got until its other end was closed."""
    with suppress(OSError):
        while data := os.read(leader, 65_536):
            yield data.decode("utf-8", "replace")


def test_a_person_sees_how_far_it_is(model: Path, ids: Path) -> None:
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    try:
        run = subprocess.Popen(
            [sys.executable, "-c", RUN, "data", str(ids), "--tokenizer", str(model)],
            env=environment(TERM="xterm"),
            cwd=ids.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=follower,
        )
        os.close(follower)
        shown = "".join(_screen(leader))  # meanwhile: a terminal that nobody reads holds the command up
        code = run.wait(timeout=60)
    finally:
        os.close(leader)
    assert code == 0
    assert "156/156 bytes" in shown


def test_the_library_takes_one_path_or_several(model: Path, ids: Path) -> None:
    one = api.check(model, data=ids)
    several = api.check(model, data=[str(ids), ids])
    assert one.findings == several.findings
    assert one.verdict() is Verdict.PASS
    with pytest.raises(api.UsageError, match="dtype must be uint8"):
        api.check(model, data=ids, dtype="float32")
    with pytest.raises(api.UsageError, match="engine must be local or ray"):
        api.check_data(ids, tokenizer=model, engine="spark")


def test_without_rows_and_tokens_there_is_nothing_to_hold_data_against(ids: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    report = api.check(tmp_path / "model", data=ids)
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    assert reasons["TA901"] == "neither the tokenizer nor the weights say which ids there are"
