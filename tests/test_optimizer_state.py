"""`check DIR --optimizer PATH`: what torch, Accelerate, DeepSpeed and strangers save."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import FIXTURES, base, build, save_optimizer

import tokaudit
from tokaudit.contract import OptimizerState, has_shape, parameter_shape
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.load.optimizer import read_optimizer
from tokaudit.pickles import worker
from tokaudit.report import Report, Verdict

TINYLM = FIXTURES / "tinylm"
ROWS, HIDDEN = 320, 8


def found(report: Report) -> list[str]:
    return [finding.message for finding in report.findings if finding.rule == "TA906"]


def reason(report: Report) -> str:
    return next(skip.reason for skip in report.skipped if skip.rule.code == "TA906")


def shapes(state: OptimizerState) -> list[tuple[str, tuple[int, ...]]]:
    return [(moments.name, moments.shape) for moments in state.parameters]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return build(base("llama"), tmp_path / "model")


# --- what libraries write ---------------------------------------------------------------------------------


def network(rows: int = ROWS) -> torch.nn.Module:
    return torch.nn.ModuleDict(
        {"embed": torch.nn.Embedding(rows, HIDDEN), "head": torch.nn.Linear(HIDDEN, rows, bias=False)}
    )


def stepped(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer.state_dict()


OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad,
    "Adafactor of torch": torch.optim.Adafactor,
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_the_state_of_an_optimizer_of_torch_tells_the_shapes_of_parameters(
    make: Any, zipped: bool, tmp_path: Path
) -> None:
    net = network()
    path = tmp_path / "optimizer.pt"
    torch.save(stepped(net, make(net.parameters())), path, _use_new_zipfile_serialization=zipped)
    state = read_optimizer(str(path))
    assert state.layout == "torch"
    assert shapes(state) == [("0", (ROWS, HIDDEN)), ("1", (ROWS, HIDDEN))]
    assert not any(moments.named for moments in state.parameters)


def test_the_adafactor_of_transformers_tells_the_shapes_of_parameters(tmp_path: Path) -> None:
    from transformers.optimization import Adafactor

    net = network()
    torch.save(stepped(net, Adafactor(net.parameters())), tmp_path / "optimizer.pt")
    assert shapes(read_optimizer(str(tmp_path))) == [("0", (ROWS, HIDDEN)), ("1", (ROWS, HIDDEN))]


class Own(torch.Tensor):
    """A class that no library has."""


def test_parameters_that_are_subclasses_and_parameters_themselves_are_read(tmp_path: Path) -> None:
    own = torch.zeros(4, 2).as_subclass(Own)
    kept = {"exp_avg": torch.nn.Parameter(torch.zeros(3, 2)), "own": own, "size": torch.Size([9, 9, 9])}
    kept["step"] = 1  # type: ignore[assignment]
    torch.save({"state": {0: kept}, "param_groups": []}, tmp_path / "optimizer.pt")
    with pytest.raises(Unreadable, match="asks for"):  # a class of this test's
        read_optimizer(str(tmp_path))
    kept.pop("own")
    torch.save({"state": {0: kept}, "param_groups": []}, tmp_path / "optimizer.pt")
    (moments,) = read_optimizer(str(tmp_path)).parameters
    assert moments.tensors == {"exp_avg": (3, 2), "size": (9, 9, 9)}


@pytest.mark.parametrize("key", ["optimizer_state_dict", "optimizer"])
def test_the_state_inside_a_checkpoint_of_a_hand_written_loop_is_found(key: str, tmp_path: Path) -> None:
    net = network()
    state = stepped(net, torch.optim.AdamW(net.parameters()))
    torch.save({"epoch": 3, "model": net.state_dict(), key: state}, tmp_path / "run.pt")
    assert len(read_optimizer(str(tmp_path / "run.pt")).parameters) == 2


def test_the_states_of_lightning_are_found(tmp_path: Path) -> None:
    net = network()
    state = stepped(net, torch.optim.AdamW(net.parameters()))
    torch.save({"state_dict": net.state_dict(), "optimizer_states": [state]}, tmp_path / "last.ckpt")
    assert len(read_optimizer(str(tmp_path / "last.ckpt")).parameters) == 2


@pytest.mark.parametrize("folder", ["", "optimizer_0"])
def test_a_distributed_checkpoint_tells_shapes_by_name(folder: str, tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    net = network()
    optimizer = torch.optim.AdamW(net.parameters())
    stepped(net, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"optim": get_optimizer_state_dict(net, optimizer)}, checkpoint_id=tmp_path / "out" / folder)
    state = read_optimizer(str(tmp_path / "out"))
    assert state.layout == "distributed checkpoint"
    assert shapes(state) == [("embed.weight", (ROWS, HIDDEN)), ("head.weight", (ROWS, HIDDEN))]
    assert all(moments.named for moments in state.parameters)


def test_a_run_of_deepspeed_tells_shapes_by_name(tmp_path: Path) -> None:
    """The layout as DeepSpeed writes it, made by hand: the package needs a compiler."""
    folder = tmp_path / "global_step5"
    folder.mkdir()
    (tmp_path / "latest").write_text("global_step5\n")
    groups = [OrderedDict({"model.embed_tokens.weight": torch.Size([316, 8])}), OrderedDict()]
    document = {"module": {"a": torch.zeros(2)}, "param_shapes": groups, "ds_version": "0.16"}
    torch.save(document, folder / "mp_rank_00_model_states.pt")
    state = read_optimizer(str(tmp_path))
    assert (state.layout, shapes(state)) == ("DeepSpeed", [("model.embed_tokens.weight", (316, 8))])
    report = tokaudit.check(build(base("llama"), tmp_path / "model"), optimizer=tmp_path)
    assert found(report) == [
        "the optimizer keeps 316 rows of model.embed_tokens.weight (model.embed_tokens.weight), "
        "the table has 320"
    ]


def test_a_checkpoint_of_a_trainer_is_clean_and_one_that_was_resized_without_it_is_not(
    tmp_path: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from tokaudit.resize import Request, resize

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = transformers.AutoTokenizer.from_pretrained(TINYLM)
        trainer = transformers.Trainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(TINYLM),
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path / "run"),
                max_steps=1,
                save_steps=1,
                per_device_train_batch_size=1,
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=[{"input_ids": [3, 4, 5], "labels": [3, 4, 5]}],
            processing_class=tokenizer,
        )
        trainer.train()
    saved = tmp_path / "run/checkpoint-1"
    report = tokaudit.check(saved, optimizer=saved)
    assert found(report) == []
    assert "TA906" in {ref.code for ref in report.checked}
    grown = tmp_path / "grown"
    resize(saved, grown, Request(rows=520, optimizer=True))
    assert found(tokaudit.check(grown, optimizer=grown)) == []
    shutil.copy(saved / "optimizer.pt", grown)
    assert len(found(tokaudit.check(grown, optimizer=grown))) == 1


# --- the rule ---------------------------------------------------------------------------------------------


def adam(*shape: int) -> dict[str, list[int]]:
    return {"exp_avg": list(shape), "exp_avg_sq": list(shape)}


def test_one_table_of_two_was_grown_alone(model: Path) -> None:
    path = save_optimizer({"0": adam(316, 8), "1": adam(320, 8)}, model / "optimizer.pt")
    assert len(found(tokaudit.check(model, optimizer=path))) == 1


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"0": adam(4, 8), "1": adam(8, 4)}, "may be frozen"),  # low-rank factors of something
        ({"0": adam(8)}, "may be frozen"),
        ({"0": adam(330, 8), "1": adam(340, 8), "2": adam(350, 8)}, "may be frozen"),  # which two?
        ({"0": adam(100, 8), "1": adam(100, 8)}, "may be frozen"),  # too far off
    ],
)
def test_states_that_cannot_be_told_skip_the_rule(state: Any, words: str, model: Path) -> None:
    report = tokaudit.check(model, optimizer=save_optimizer(state, model / "optimizer.pt"))
    assert found(report) == []
    assert words in reason(report)
    assert report.verdict() is Verdict.PASS


def test_without_the_option_or_the_tables_the_rule_is_skipped(model: Path, tmp_path: Path) -> None:
    assert reason(tokaudit.check(model)) == "no --optimizer was given"
    path = save_optimizer({"0": adam(316, 8)}, model / "optimizer.pt")
    assert reason(tokaudit.check(model, optimizer=path, read_weights=False)) == "--no-weights was given"
    adapter = build(base("adapter"), tmp_path / "adapter")
    assert "an adapter's" in reason(tokaudit.check(adapter, optimizer=path))


def test_a_directory_without_a_state_leaves_no_verdict(model: Path) -> None:
    report = tokaudit.check(model, optimizer=model)
    assert [part.code for part in report.unreadable] == ["no-optimizer"]
    assert report.verdict() is Verdict.NO_VERDICT


def _scheduler() -> object:
    optimizer = torch.optim.SGD(network().parameters(), lr=1.0)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0).state_dict()


def _model_alone() -> object:
    from torch.distributed.checkpoint.metadata import Metadata, TensorProperties, TensorStorageMetadata

    table = TensorStorageMetadata(TensorProperties(), torch.Size((ROWS, HIDDEN)), [])
    return Metadata({"model.embed_tokens.weight": table})


SOMETHING_ELSE = {
    "the state of a scheduler": _scheduler,
    "the weights of a model": lambda: network().state_dict(),
    "the weights of a model alone": _model_alone,
    "the states of random number generators": lambda: {"python": (3, (1, 2), None), "cpu": torch.zeros(9)},
    "a tensor": lambda: torch.zeros(9),
}


@pytest.mark.parametrize("words", SOMETHING_ELSE)
def test_a_file_that_holds_something_else_leaves_no_verdict(words: str, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.pt"
    torch.save(SOMETHING_ELSE[words](), path)
    report = tokaudit.check(model, optimizer=path)
    assert [(part.code, part.message) for part in report.unreadable] == [
        ("no-optimizer", f"expected an optimizer's state, found {words}")
    ]
    assert report.verdict() is Verdict.NO_VERDICT


@pytest.mark.parametrize("document", [{"moments": {"embed": [torch.zeros(3)]}}, [1, 2], {}])
def test_a_file_that_nobody_knows_skips_the_rule(document: object, model: Path, tmp_path: Path) -> None:
    torch.save(document, tmp_path / "own.pt")
    report = tokaudit.check(model, optimizer=tmp_path / "own.pt")
    assert "holds no state of an optimizer that tokaudit knows" in reason(report)
    assert report.verdict() is Verdict.PASS


def test_what_one_rank_may_keep_of_a_divided_table_is_no_mismatch(model: Path, tmp_path: Path) -> None:
    name = "model.embed_tokens.weight"
    table = tokaudit.check(model).summary.input
    assert table is not None
    rows, hidden = table.rows or 0, table.hidden or 0
    for kept, wrong in ((rows // 2, False), (rows // 2 + 1, True)):
        state = {"state": {name: {"exp_avg": torch.zeros(kept, hidden)}}}
        torch.save(state, tmp_path / "optimizer.pt")
        report = tokaudit.check(model, optimizer=tmp_path / "optimizer.pt", select=["TA906"])
        assert bool(report.findings) is wrong
        if not wrong:
            assert "one rank's part" in reason(report)


def test_a_file_without_a_state_skips_the_rule(model: Path, tmp_path: Path) -> None:
    torch.save({"last_lr": [0.1]}, tmp_path / "scheduler.pt")
    report = tokaudit.check(model, optimizer=tmp_path / "scheduler.pt")
    assert "holds no state" in reason(report)
    assert report.verdict() is Verdict.PASS


def test_shapes_of_parameters_follow_from_what_is_kept_of_them() -> None:
    factors = {"exp_avg_sq_row": (5,), "exp_avg_sq_col": (3,), "step": ()}
    assert has_shape(factors, (5, 3))
    assert not has_shape(factors, (5,))  # a bias of as many rows
    assert parameter_shape(factors) == (5, 3)
    assert parameter_shape({"step": (), "exp_avg": (2, 2)}) == (2, 2)
    assert parameter_shape({}) == ()


# --- what strangers write ---------------------------------------------------------------------------------


def archive(
    data: bytes, *, name: str = "optimizer/data.pkl", compressed: bool = False, more: int = 0
) -> bytes:
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr(name, data)
        for number in range(more):
            file.writestr(f"other{number}/data.pkl", data)
    return out.getvalue()


def program(module: str, name: str, argument: str) -> bytes:
    """A pickle that calls ``module.name(argument)``."""
    return b"\x80\x02c%s\n%s\nX%s%s\x85R." % (
        module.encode(),
        name.encode(),
        struct.pack("<I", len(argument)),
        argument.encode(),
    )


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as file:
        file.addfile(tarfile.TarInfo("pickle"))
    return out.getvalue()


DEEP_KEY = b"\x80\x02}(" + b")" + b"\x85" * 2_000_000 + b"K\x01u."
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5\n"
HOSTILE: dict[str, tuple[bytes | Callable[[Path], bytes], str]] = {
    "a shell command": (
        lambda marker: program("posix", "system", f"touch {marker}"),
        "asks for posix.system",
    ),
    "a shell command, zipped": (
        lambda marker: archive(program("os", "system", f"touch {marker}")),
        "asks for os.system",
    ),
    "eval": (lambda marker: program("builtins", "eval", f"open('{marker}', 'w')"), "asks for builtins.eval"),
    "exec under its old name": (program("__builtin__", "exec", "1"), "asks for __builtin__.exec"),
    "getattr": (program("builtins", "getattr", "a"), "asks for builtins.getattr"),
    "a module whose name begins like torch": (program("torchevil", "run", "a"), "asks for torchevil.run"),
    "nothing": (b"", "neither an archive"),
    "a web page": (b"<!DOCTYPE html><html>", "neither an archive"),
    "an LFS pointer": (LFS, "Git LFS"),
    "the beginning of an archive": (archive(b"\x80\x02N.")[:40], "damaged archive"),
    "the magic of an archive alone": (b"PK\x03\x04", "damaged archive"),
    "an archive without data.pkl": (archive(b"", name="a/b.txt"), "without the one data.pkl"),
    "an archive with three of them": (archive(b"\x80\x02N.", more=2), "without the one data.pkl"),
    "a zip bomb": (archive(bytes(1 << 24), compressed=True), "not stored as torch stores it"),
    "a data.pkl that ends early": (archive(b"\x80\x02X\xff\xff\xff\x7fa"), "not a sound pickle"),
    "bytes that are announced and not there": (
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40),
        "too much memory",
    ),
    "a stack that is empty": (b"\x80\x02R.", "not a sound pickle"),
    "a memo that is not there": (b"\x80\x02h\x05.", "not a sound pickle"),
    "a tar archive": (tar(), "tar archive"),
    "lists without end": (b"\x80\x02" + b"]" * 40_000_000, "too much memory"),
    "a key that is too deep to hash": (DEEP_KEY, ""),
    "escape sequences in the name of a class": (program("\x1b[31mposix", "system", "a"), "asks for"),
}


@pytest.mark.parametrize(("data", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_one_line_and_runs_nothing(
    data: bytes | Callable[[Path], bytes],
    words: str,
    model: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / "optimizer.pt"
    path.write_bytes(data if isinstance(data, bytes) else data(marker))
    report = tokaudit.check(model, optimizer=path)
    assert not marker.exists()
    assert found(report) == []
    (error,) = report.unreadable
    assert words in error.message
    assert "\n" not in error.message
    assert "\x1b" not in error.message
    assert report.verdict() is Verdict.NO_VERDICT
    assert capfd.readouterr() == ("", "")


def test_a_command_in_a_pickle_would_run_if_it_were_unpickled(tmp_path: Path) -> None:
    """The test above can fail: this is what its files do elsewhere."""
    pickle.loads(program("posix", "system", f"touch {tmp_path}/marker"))
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "data", [b"\x80\x02N.", b"\x80\x02]q\x00.", b"\x80\x02K\x01.", archive(b"\x80\x02}.")]
)
def test_a_sound_pickle_of_something_else_skips_the_rule(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "optimizer.pt").write_bytes(data)
    with pytest.raises(FactMissing, match="holds no state"):
        read_optimizer(str(tmp_path))


@pytest.mark.parametrize("shape", [[-1, 8], [True, 8], ["a"], [1] * 65, [1.5], 3, None])
def test_a_shape_that_is_none_is_left_out(shape: object) -> None:
    size = worker.Reader(io.BytesIO(b"\x80\x02ctorch\nSize\n)\x81.")).load()
    size.args = (tuple(shape) if isinstance(shape, list) else shape,)
    assert worker.shape_of(size) is None


def test_a_pointer_of_deepspeed_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "mp_rank_00_model_states.pt").write_bytes(b"")
    (tmp_path / "run/latest").write_text("..")
    with pytest.raises(Unreadable) as caught:
        read_optimizer(str(tmp_path / "run"))
    assert caught.value.code == "path-escape"


def test_a_fifo_and_a_path_that_is_not_there_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "optimizer.pt")
    for path in (tmp_path / "optimizer.pt", tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Unreadable):
            read_optimizer(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """Only the archive's index and the pickle are; the tensors here are a hole of 200 GB on a sparse disk."""
    out = io.BytesIO()
    torch.save({"state": {0: {"exp_avg": torch.zeros(2, 2)}}, "param_groups": []}, out)
    path = tmp_path / "optimizer.pt"
    with zipfile.ZipFile(out) as saved, zipfile.ZipFile(path, "w") as file:
        file.writestr("optimizer/data.pkl", saved.read(saved.namelist()[0]))
        assert file.fp is not None
        file.start_dir = file.fp.seek(200 << 30)
    assert path.stat().st_size > 200 << 30
    assert shapes(read_optimizer(str(path))) == [("0", (2, 2))]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_pickle_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    out = io.BytesIO()
    torch.save({"state": {0: {"exp_avg": torch.zeros(2, 2)}}}, out, _use_new_zipfile_serialization=False)
    content = bytearray(out.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "optimizer.pt").write_bytes(content)
    with contextlib.suppress(FactMissing, Unreadable):
        assert read_optimizer(str(tmp_path)).layout == "torch"


def test_the_worker_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(worker.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert own == {"tokaudit.isolation.child"}


def test_the_command_reads_a_state_without_torch(model: Path) -> None:
    save_optimizer({"0": adam(316, 8), "1": adam(316, 8)}, model / "optimizer.pt")
    script = (
        "import sys; from tokaudit.cli import main; code = main(['check', 'model', '--optimizer', "
        "'model/optimizer.pt', '--quiet']); print({'torch', 'numpy'} & set(sys.modules)); sys.exit(code)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=model.parent, capture_output=True, text=True, check=False
    )
    assert "model/optimizer.pt#/state/0" in run.stdout, run.stderr
    assert run.stdout.rstrip().endswith("set()") or run.returncode == 1
