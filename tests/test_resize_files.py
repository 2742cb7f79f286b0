"""Where the result goes and what goes into it: destinations, copies, links, modes, full disks, changes.

The RS cases are those of the group of hostile destinations and sources that `resize` must withstand.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES, base, build
from resizing import EMBED, HEAD, both_copies, data, in_shards, tables, tensor, tied, untied, with_rows

import tokaudit.resize.write as writing
from tokaudit.atomic import CannotWrite
from tokaudit.cli import main
from tokaudit.errors import Unreadable
from tokaudit.resize import NewToken, Refused, Request, plan_resize, resize
from tokaudit.resize.manifest import FILE as MANIFEST

PROJECT = Path(__file__).resolve().parents[1]
ASKED = Request(tokens=(NewToken("<|new|>"),))


def call(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`tokaudit resize` in a process of its own."""
    command = [sys.executable, "-m", "tokaudit", "resize", *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, **options)


def snapshot(directory: Path) -> dict[str, Any]:
    """Everything below, links not followed: content, mode and time of the last change."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content: object = os.readlink(path) if path.is_symlink() else None
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        found[str(path.relative_to(directory))] = (content, status.st_mode, status.st_mtime_ns)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build(untied(), tmp_path / "in")


# --- destinations --------------------------------------------------------------------------------------


def occupied(here: Path) -> Path:
    (here / "out").mkdir()
    (here / "out" / "keep.txt").write_text("x")
    return here / "out"


def empty(here: Path) -> Path:
    (here / "out").mkdir()
    return here / "out"


def file(here: Path) -> Path:
    (here / "out").write_text("x")
    return here / "out"


def dangling(here: Path) -> Path:
    (here / "out").symlink_to("nowhere")
    return here / "out"


def alias(here: Path) -> Path:
    (here / "alias").symlink_to("in")
    return here / "alias"


DESTINATIONS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "RS01 exists": (occupied, "exists already"),
    "RS01 exists, empty": (empty, "exists already"),
    "RS02 the source": (lambda here: here / "in", "cannot go into its source"),
    "RS03 inside the source": (lambda here: here / "in" / "out", "cannot go into its source"),
    "RS04 holds the source": (lambda here: here, "exists already"),
    "RS05 a link to the source": (alias, "cannot go into its source"),
    "RS05 inside a link to the source": (lambda here: alias(here) / "out", "cannot go into its source"),
    "RS06 the source by a detour": (
        lambda here: here / "in" / ".." / "in" / ".",
        "cannot go into its source",
    ),
    "RS07 a file": (file, "exists already"),
    "RS08 a dangling link": (dangling, "exists already"),
    "RS09 no parent": (lambda here: here / "a" / "b" / "out", "does not exist"),
    "root": (lambda here: Path("/"), "not a name"),
}


@pytest.mark.parametrize("case", DESTINATIONS)
def test_a_destination_that_cannot_be_is_refused(
    case: str, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, says = DESTINATIONS[case]
    out = make(tmp_path)
    before = snapshot(tmp_path)
    assert main(["resize", str(source), str(out), "--rows", "336"]) == 2
    assert snapshot(tmp_path) == before
    line, *hint = capfd.readouterr().err.splitlines()
    assert says in line
    assert len(hint) <= 1


def test_rs10_a_parent_that_cannot_be_written_to() -> None:
    """As an ordinary user: root may write everywhere."""
    become: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("without setpriv, root stays root")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to others
        here = Path(name)
        here.chmod(0o755)
        source = build(untied(), here / "in")
        parent = here / "ro"
        parent.mkdir(mode=0o555)
        command = [
            *become,
            sys.executable,
            "-m",
            "tokaudit",
            "resize",
            source,
            parent / "out",
            "--rows",
            "336",
        ]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert "Permission denied" in done.stderr
        assert len(done.stderr.splitlines()) <= 2
        assert list(parent.iterdir()) == []


@pytest.mark.parametrize(
    "rows",
    ["3", "0", "-1", "1e3", "0x10", "10**12", "1000000000000", "99999999999999999999", "NaN", "", "16 "],
)
def test_rs17_rs18_sizes_that_cannot_be_are_refused_before_anything_is_made(
    rows: str, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(tmp_path)
    started = time.monotonic()
    assert main(["resize", str(source), str(tmp_path / "out"), "--rows", rows]) == 2
    assert time.monotonic() - started < 20
    assert snapshot(tmp_path) == before
    assert len(capfd.readouterr().err.splitlines()) in (1, 2)


def test_rs18_a_size_beyond_the_disk_is_refused_before_anything_is_made(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tmp_path)
    free = os.statvfs(tmp_path)
    small = os.statvfs_result((*free[:2], 0, 1000, 1000, *free[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    assert main(["resize", str(source), str(tmp_path / "out"), "--rows", str(2**31 - 1)]) == 2
    assert "are needed in" in capfd.readouterr().err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_result_may_fill_the_disk(
    lacking: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = plan_resize(source, ASKED).bytes_rewritten - lacking
    exact = os.statvfs_result((1, 1, free, free, free, *os.statvfs(tmp_path)[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: exact)
    if lacking:
        with pytest.raises(CannotWrite, match="are needed in"):
            resize(source, tmp_path / "out", ASKED)
    else:
        resize(source, tmp_path / "out", ASKED)


# --- disks and signals -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("large", ["a copied file", "the optimizer"])
def test_rs11_a_disk_that_fills_up_leaves_nothing(
    large: str, source: Path, tmp_path: Path, small_disk: Path
) -> None:
    import torch

    if large == "a copied file":
        (source / "large.txt").write_bytes(os.urandom(300_000))
        options: list[str] = []
    else:
        moments = {n: {"exp_avg": torch.rand(320, 8), "exp_avg_sq": torch.rand(320, 8)} for n in (0, 1)}
        state = {**moments, 2: {"exp_avg": torch.rand(40_000)}}
        torch.save({"state": state}, source / "optimizer.pt")
        options = ["--optimizer"]
    before = snapshot(source)
    done = call(source, small_disk / "out", "--add-token", "<|new|>", *options)
    assert done.returncode == 2
    assert "cannot" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert list(small_disk.iterdir()) == []
    assert snapshot(source) == before


def test_rs12_a_limit_on_file_sizes_leaves_nothing(source: Path, tmp_path: Path) -> None:
    (source / "large.txt").write_bytes(bytes(300_000))
    command = f'ulimit -f 100; exec "{sys.executable}" -m tokaudit resize "$0" "$1" --rows 336'
    done = subprocess.run(
        ["bash", "-c", command, str(source), str(tmp_path / "out")],
        cwd=PROJECT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


SLOW = r"""
import os, signal, sys, time
import tokaudit.resize.write as writing
from tokaudit.cli import run
copy = writing.copy_file
def slow(file, out, progress):
    copy(file, out, progress)
    os.write(2, b"copying\n")
    while True:
        time.sleep(0.01)
        progress.advance(0)
writing.copy_file = slow
run()
"""


@pytest.mark.parametrize(
    ("signum", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_rs14_a_signal_in_the_middle(signum: int, code: int, source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, "resize", str(source), str(tmp_path / "out"), "--rows", "336"]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "copying\n"
        process.send_signal(signum)
        assert process.wait(60) == code
        assert "Traceback" not in process.stderr.read()
    left = sorted(path.name for path in tmp_path.iterdir())
    if signum != signal.SIGKILL:
        assert left == ["in"]
        return
    assert left[1:] == ["in"]
    assert left[0].startswith(".out.tokaudit-")
    done = call(source, tmp_path / "out", "--rows", "336")
    assert done.returncode == 0
    assert f"{left[0]}, beside it, is left of a run that was killed" in " ".join(done.stdout.split())


SLOWER = SLOW.replace(
    "        progress.advance(0)\n", "        if time.monotonic() > end: progress.advance(0)\n"
)
SLOWER = SLOWER.replace("    while True:", "    end = time.monotonic() + 1.5\n    while True:")


def test_a_second_ctrl_c_while_the_threads_end_leaves_nothing_either(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOWER, "resize", str(source), str(tmp_path / "out"), "--rows", "336"]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "copying\n"
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.wait(60) == 130
        assert "Traceback" not in process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_rs15_of_two_runs_at_once_one_makes_the_result(source: Path, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tokaudit", "resize", str(source), str(tmp_path / "out"), "--rows", rows],
            cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rows in ("336", "352")
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 2]
    assert "exists already" in said[codes.index(2)]
    rows = (336, 352)[codes.index(0)]
    assert len(tables(tmp_path / "out")[EMBED]) == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


# --- a source that changes -------------------------------------------------------------------------------


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b" ")


MOMENTS = {
    "before a copy": "copy_file",
    "before a shard": "write_old_bytes",
    "before the comparison of a copy": "compare_files",
    "before the comparison of a shard": "compare_shards",
}


NAMES = ("model-00001-of-00003.safetensors", "config.json", "notes.txt", "deep/er/file")
LAST = "before the comparison of a shard"


@pytest.mark.parametrize(
    ("moment", "change", "name"),
    [
        *((moment, shrink, name) for moment in MOMENTS for name in NAMES),
        *((LAST, change, name) for change in (rewrite, replace, grow) for name in NAMES),
    ],
)
def test_rs16_a_source_that_changes_meanwhile_gives_no_result(
    name: str, change: Callable[[Path], None], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = build(in_shards(untied(), 3), tmp_path / "in")
    (source / "notes.txt").write_text("notes")
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "file").write_bytes(bytes(5000))
    original = getattr(writing, MOMENTS[moment])
    done: list[str] = []

    def hook(*arguments: Any) -> Any:
        if not done:
            done.append(name)
            time.sleep(0.01)  # beyond the resolution of times of change
            change(source / name)
        return original(*arguments)

    monkeypatch.setattr(writing, MOMENTS[moment], hook)
    with pytest.raises(Unreadable) as error:
        resize(source, tmp_path / "out", ASKED)
    assert error.value.code == "changed-while-read"
    assert done
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_rs16_a_file_that_appears_meanwhile_gives_no_result(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = writing.compare_shards

    def hook(*arguments: Any) -> Any:
        (source / "model.safetensors.index.json").write_text("{}")
        return original(*arguments)

    monkeypatch.setattr(writing, "compare_shards", hook)
    with pytest.raises(Unreadable, match="changed while it was read"):
        resize(source, tmp_path / "out", ASKED)


def test_rs16_a_tokenizer_that_changes_meanwhile_gives_no_result(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = build({"tokenizer": untied()["tokenizer"]}, tmp_path / "other")
    original = writing.compare_shards

    def hook(*arguments: Any) -> Any:
        grow(other / "tokenizer.json")
        return original(*arguments)

    monkeypatch.setattr(writing, "compare_shards", hook)
    with pytest.raises(Unreadable, match="changed while it was read"):
        resize(source, tmp_path / "out", Request(rows=336), to_tokenizer=other)


@pytest.mark.parametrize("row", [0, 7, 319, 321, 335])
def test_a_copy_that_came_out_different_is_not_published(
    row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a kernel that copies wrongly: nothing of it is trusted. The new token takes row 320 of 336."""
    source = build(with_rows(untied(), 336), tmp_path / "in")
    original = writing.write_old_bytes

    def damaged(file: Any, plan: Any, out: int, progress: Any) -> None:
        original(file, plan, out, progress)
        start = plan.tables[HEAD] + row * 16
        os.pwrite(out, bytes([os.pread(out, 1, start)[0] ^ 1]), start)

    monkeypatch.setattr(writing, "write_old_bytes", damaged)
    with pytest.raises(Exception, match=rf"row {row} of {HEAD} came out different"):
        resize(source, tmp_path / "out", ASKED)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# --- what goes along -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("<|new|>", "<|newer|>", 'give "<|new|>" no id, not 320'),
        ("<|reserved_7|>", "<|renamed|>", 'give "<|reserved_7|>" no id, not 319'),
    ],
)
def test_a_tokenizer_that_came_out_different_is_not_published(
    before: str, after: str, says: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = writing.apply_edits

    def hook(text: str, edits: Any) -> str:
        return original(text, edits).replace(before, after)

    monkeypatch.setattr(writing, "apply_edits", hook)
    with pytest.raises(Refused, match=re.escape(says)):
        resize(source, tmp_path / "out", ASKED)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_rs20_another_name_of_a_source_file_is_untouched(source: Path, tmp_path: Path) -> None:
    os.link(source / "model.safetensors", tmp_path / "other-name")
    before = snapshot(tmp_path)
    for name, options in (("out", Request(rows=336)), ("linked", Request(rows=336, link=True))):
        resize(source, tmp_path / name, options)
        (tmp_path / name / "model.safetensors").write_bytes(b"changed")
        shutil.rmtree(tmp_path / name)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_rs21_modes_are_the_sources_under_the_umask(
    umask: int, expected: int, source: Path, tmp_path: Path
) -> None:
    for path in source.iterdir():
        path.chmod(0o666)
    (source / "tokenizer.json").chmod(0o4777)
    (source / "sub").mkdir()
    (source / "sub" / "file").write_text("x")
    (source / "sub" / "file").chmod(0o444)
    before = os.umask(umask)
    try:
        resize(source, tmp_path / "out", ASKED)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    for name in ("model.safetensors", "config.json", "generation_config.json", MANIFEST):
        assert modes[name] == expected
    assert modes["tokenizer.json"] == 0o777 & ~umask
    assert modes["sub"] == stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~umask
    copied = tmp_path / "out" / "sub" / "file"
    assert stat.S_IMODE(copied.stat().st_mode) == (0o644 & ~umask)


def test_rs23_what_goes_along_and_what_does_not(tmp_path: Path) -> None:
    source = build(in_shards(untied(), 2), tmp_path / "in")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    carried = {
        "README.md": b"# model",
        ".gitattributes": b"* text",
        "training_args.bin": b"x",
        "rng_state_0.pth": b"x",
        "trainer_state.json": b"{}",
        "deep/er/notes.txt": b"notes",
        "1_Pooling/config.json": b"{}",
        "2_Dense/pytorch_model.bin": b"x",
        "additional_chat_templates/tool.jinja": b"x",
    }
    left = {
        ".git/config": b"x",
        ".cache/huggingface/x": b"x",
        "pytorch_model.bin": b"x",
        "pytorch_model.bin.index.json": b"{}",
        "tf_model.h5": b"x",
        "flax_model.msgpack": b"x",
        "model-Q4_K.gguf": b"x",
        "onnx/model.onnx": b"x",
        "openvino/openvino_model.bin": b"x",
        "openvino/openvino_model.xml": b"x",
        "optimizer.pt": b"x",
        "global_step1/mp_rank_00_model_states.pt": b"x",
        "original/consolidated.00.pth": b"x",
    }
    for name, content in {**carried, **left}.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    inside = {"2_Dense/model.safetensors": (8, 8), "consolidated.safetensors": (320, 8)}
    for name, shape in inside.items():
        build({"safetensors": {name: {"linear.weight": tensor(*shape)}}}, source)
    (source / "link.txt").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path)
    (source / "dangling").symlink_to("nowhere")
    (source / "inner.md").symlink_to("README.md")
    os.mkfifo(source / "pipe")
    result = resize(source, tmp_path / "out", ASKED)
    for name, content in carried.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    assert (tmp_path / "out" / "2_Dense" / "model.safetensors").exists()
    assert (tmp_path / "out" / "inner.md").read_bytes() == b"# model"
    assert not (tmp_path / "out" / "inner.md").is_symlink()
    reasons = {entry.name: entry.reason for entry in result.left_behind}
    gone = {".git", ".cache", *(name for name in left if name[0] != "."), "consolidated.safetensors"}
    assert reasons.keys() == gone | {"link.txt", "folder", "dangling", "pipe"}
    assert not any((tmp_path / "out" / name).exists() for name in reasons)
    assert reasons["link.txt"] == reasons["folder"] == "the link leads out of the directory"
    assert reasons["dangling"] == "the link leads nowhere"
    assert reasons["pipe"] == "not a regular file"
    assert "old rows" in reasons["pytorch_model.bin"]
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_folders_below_the_eighth_are_left_behind(source: Path, tmp_path: Path) -> None:
    eighth = source.joinpath(*"abcdefgh")
    (eighth / "ninth").mkdir(parents=True)
    (eighth / "notes.txt").write_text("kept")
    result = resize(source, tmp_path / "out", ASKED)
    assert (tmp_path / "out").joinpath(*"abcdefgh", "notes.txt").read_text() == "kept"
    left = [(entry.name, entry.reason) for entry in result.left_behind]
    assert left == [("a/b/c/d/e/f/g/h/ninth", "deeper than 8 folders")]


def test_a_set_of_weights_that_loaders_pass_over_is_left_behind(tmp_path: Path) -> None:
    source = build(in_shards(untied(), 3), tmp_path / "in")
    build({"safetensors": untied()["safetensors"]}, source)
    result = resize(source, tmp_path / "out", Request(tokens=ASKED.tokens, force=True))
    names = {f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)}
    assert {left.name for left in result.left_behind} == names | {"model.safetensors.index.json"}
    assert len(tables(tmp_path / "out")[EMBED]) == 321


def cached(tmp_path: Path) -> Path:
    """A snapshot in the cache of huggingface_hub: links to blobs named by their digests."""
    model = build(untied(), tmp_path / "model")
    repository = tmp_path / "models--org--name"
    snapshot_ = repository / "snapshots" / "abc"
    snapshot_.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in model.iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(repository / "blobs" / digest)
        (snapshot_ / path.name).symlink_to(f"../../blobs/{digest}")
    return snapshot_


@pytest.mark.parametrize("link", [False, True])
def test_a_snapshot_in_the_cache_becomes_ordinary_files(link: bool, tmp_path: Path) -> None:
    source = cached(tmp_path)
    before = snapshot(tmp_path / "models--org--name")
    resize(source, tmp_path / "out", Request(tokens=ASKED.tokens, link=link))
    for path in (tmp_path / "out").iterdir():
        assert not path.is_symlink()
        assert path.stat().st_nlink == 1  # never a second name of a blob that others use
    assert snapshot(tmp_path / "models--org--name") == before


def test_link_gives_unchanged_files_a_second_name_and_no_other(tmp_path: Path) -> None:
    source = build(in_shards(untied(), 3), tmp_path / "in")
    (source / "real.md").write_text("x")
    (source / "alias.md").symlink_to("real.md")
    result = resize(source, tmp_path / "out", Request(tokens=ASKED.tokens, link=True))
    for path in (tmp_path / "out").iterdir():
        linked = path.name != MANIFEST and path.stat().st_ino == (source / path.name).stat().st_ino
        changed_ = path.name in {edit.at.file for edit in result.plan.files} | set(
            result.plan.rewritten_shards
        )
        assert linked is (not changed_ and path.name not in (MANIFEST, "alias.md"))
        assert not path.is_symlink()
    assert (tmp_path / "out" / "alias.md").read_text() == "x"


def test_nothing_to_do_is_said_and_gives_a_copy(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["resize", str(source), str(tmp_path / "out"), "--add-token", "<|user|>"]) == 0
    assert "nothing to do" in capfd.readouterr().out
    for path in source.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert main(["resize", str(source), "--dry-run", "--rows", "320"]) == 0
    assert "nothing to do" in capfd.readouterr().out


# --- what is written -------------------------------------------------------------------------------------


def test_json_files_keep_their_formatting_and_unknown_fields(tmp_path: Path) -> None:
    source = build(untied(), tmp_path / "in")
    config = '{"architectures": ["LlamaForCausalLM"],\n\t"rope_theta": 1.0e4, "model_type": "llama",\n'
    config += (
        ' "vocab_size":320 , "hidden_size": 8, "x": {"vocab_size": 7}, "tie_word_embeddings": false}\n\n'
    )
    (source / "config.json").write_text(config)
    resize(source, tmp_path / "out", Request(rows=336))
    assert (tmp_path / "out" / "config.json").read_text() == config.replace(
        '"vocab_size":320', '"vocab_size":336'
    )
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()


def test_a_rewritten_shard_keeps_its_metadata_order_and_names(tmp_path: Path) -> None:
    from weights import header_of

    source = build(untied(), tmp_path / "in")
    resize(source, tmp_path / "out", ASKED)
    before, after = (header_of(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    assert list(before) == list(after)
    assert before["__metadata__"] == after["__metadata__"]
    assert {name: entry["dtype"] for name, entry in before.items() if name != "__metadata__"} == {
        name: entry["dtype"] for name, entry in after.items() if name != "__metadata__"
    }
    from safetensors.torch import load_file

    assert load_file(tmp_path / "out" / "model.safetensors")[EMBED].shape == (321, 8)


def test_both_copies_of_a_tied_table_count_as_the_same_parameters(tmp_path: Path) -> None:
    source = build(in_shards(both_copies(), 2), tmp_path / "in")
    path = source / "model.safetensors.index.json"
    index = data(path)
    index["metadata"]["total_parameters"] = 2568
    path.write_text(json.dumps(index))
    plan = plan_resize(source, Request(rows=330))
    totals = {edit.path[-1]: (edit.before, edit.after) for edit in plan.files if edit.at.file == path.name}
    assert totals["total_parameters"] == (2568, 2568 + 10 * 8)


@pytest.mark.parametrize("longer", [0, 1])
def test_the_values_of_a_rewritten_shard_begin_at_a_multiple_of_eight_bytes(
    longer: int, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    path = build(untied(), tmp_path / "in") / "model.safetensors"
    save_file(load_file(path), path, {"format": "pt", "note": "x" * longer})
    resize(tmp_path / "in", tmp_path / "out", ASKED)
    assert int.from_bytes((tmp_path / "out" / path.name).read_bytes()[:8], "little") % 8 == 0


def test_the_index_keeps_its_map_and_gets_new_totals(tmp_path: Path) -> None:
    source = build(in_shards(untied(), 2), tmp_path / "in")
    path = source / "model.safetensors.index.json"
    index = data(path)
    index["metadata"] = {"total_size": 1.0e4, "total_parameters": 5128, "format": "pt"}
    path.write_text(json.dumps(index))
    resize(source, tmp_path / "out", Request(rows=330))
    written = data(tmp_path / "out" / path.name)
    assert written["weight_map"] == index["weight_map"]
    stored = sum(len(row) for rows in tables(tmp_path / "out").values() for row in rows)
    assert written["metadata"] == {
        "total_size": stored, "total_parameters": 5128 + 2 * 10 * 8, "format": "pt",
    }  # fmt: skip


def test_the_manifest_says_what_was_done_and_digests_what_was_read_and_written(tmp_path: Path) -> None:
    source = build(in_shards(untied(), 2), tmp_path / "in")
    result = resize(source, tmp_path / "out", Request(tokens=ASKED.tokens, multiple=64, seed=3))
    manifest = data(tmp_path / "out" / MANIFEST)
    assert (manifest["rows_before"], manifest["rows_after"], manifest["padding_rows"]) == (320, 384, 63)
    assert manifest["seed"] == 3
    (token,) = manifest["tokens"]
    assert (token["id"], token["content"]) == (320, "<|new|>")
    assert abs(sum(piece["weight"] for piece in token["input"]["constituents"]) - 1) < 1e-4
    assert token["output"] == token["input"]
    assert token["input"]["note"] is None
    assert [table["side"] for table in manifest["tensors"]] == ["input", "output"]
    assert token["norm"] == round(result.rows[0].norm, 6)
    assert 0 <= token["norm_percentile"] <= 100
    for side, directory in (("source", source), ("result", tmp_path / "out")):
        names = {path.name for path in directory.iterdir()} - {MANIFEST}
        assert manifest["digests"][side].keys() == names
        for name in names:
            content = (directory / name).read_bytes()
            assert manifest["digests"][side][name] == {
                "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
            }  # fmt: skip
    for entry in manifest["tensors"]:
        old = b"".join(tables(source)[entry["name"]])
        assert entry["old_rows_sha256"] == hashlib.sha256(old).hexdigest()
        new = b"".join(tables(tmp_path / "out")[entry["name"]][:320])
        assert new == old


@pytest.mark.parametrize(("make", "stored"), [(tied, 1), (both_copies, 2)])
def test_the_manifest_of_a_tied_model_has_one_side(
    make: Callable[[], dict[str, Any]], stored: int, tmp_path: Path
) -> None:
    resize(build(make(), tmp_path / "in"), tmp_path / "out", ASKED)
    manifest = data(tmp_path / "out" / MANIFEST)
    assert [table["side"] for table in manifest["tensors"]] == ["input"] * stored
    assert [token["output"] for token in manifest["tokens"]] == [None]


def test_a_large_shard_is_digested_by_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokaudit.resize.manifest.HASHED_WHOLE", 1000)
    source = build(untied(), tmp_path / "in")
    resize(source, tmp_path / "out", ASKED)
    content = (tmp_path / "out" / "model.safetensors").read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    assert data(tmp_path / "out" / MANIFEST)["digests"]["result"]["model.safetensors"] == {
        "bytes": len(content), "header_sha256": hashlib.sha256(content[:length]).hexdigest(),
    }  # fmt: skip


def test_a_second_resize_keeps_the_manifest_of_the_first(source: Path, tmp_path: Path) -> None:
    resize(source, tmp_path / "one", ASKED)
    resize(tmp_path / "one", tmp_path / "two", Request(tokens=(NewToken("<|other|>"),)))
    manifest = data(tmp_path / "two" / MANIFEST)
    assert manifest["previous"] == data(tmp_path / "one" / MANIFEST)
    assert [token["content"] for token in manifest["tokens"]] == ["<|other|>"]


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    sys.path.insert(0, str(PROJECT / "benchmarks"))
    try:
        from checkpoint import Shape, Tables
        from checkpoint import build as build_checkpoint
    finally:
        sys.path.pop(0)
    peaks = []
    for rows in (1_024, 65_536):  # 4 MB and 268 MB
        source = tmp_path / str(rows)
        tokenizer = FIXTURES / "tinylm" / "tokenizer.json"
        build_checkpoint(source, tokenizer, Shape(rows, 0, hidden=1024, heads=8), Tables.UNTIED)
        out = tmp_path / f"out-{rows}"
        command = [sys.executable, "-m", "tokaudit", "resize", str(source), str(out), "--add-token", "<|x|>"]
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss)
    small, large = peaks
    assert large - small < 40 * 1024  # KiB


def test_an_unreadable_folder_is_no_internal_error(source: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def scandir(path: Any = ".", original: Any = os.scandir) -> Any:
            if str(path).endswith("closed/"):
                raise PermissionError(13, "Permission denied")
            return original(path)

        (source / "closed").mkdir()
        patch.setattr(os, "scandir", scandir)
        with pytest.raises(Unreadable, match="the folder cannot be read: Permission denied"):
            resize(source, tmp_path / "out", ASKED)


def test_progress_adds_up(source: Path, tmp_path: Path) -> None:
    class Count:
        total = done = 0

        def start(self, total: int) -> None:
            self.total = total

        def advance(self, nbytes: int) -> None:
            self.done += nbytes

    (source / "large.txt").write_bytes(bytes(3 << 20))
    count = Count()
    resize(source, tmp_path / "out", ASKED, progress=count)
    assert count.total > 6 << 20
    assert abs(count.done - count.total) < 20_000  # headers and JSON files change their size


def test_rs22_a_full_standard_output_is_no_success(source: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tokaudit", "resize", str(source), str(tmp_path / "out"), "--rows", "336"],
            cwd=PROJECT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        f"tokaudit: error: {tmp_path / 'out'} was written, "
        "but standard output cannot be written: No space left on device\n"
    )
    assert (tmp_path / "out" / MANIFEST).is_file()


def test_names_that_are_not_utf_8_go_along(source: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    try:
        (source / name).write_text("x")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    resize(source, tmp_path / "out", ASKED)
    assert (tmp_path / "out" / name).read_text() == "x"


def test_a_bert_in_the_layout_of_transformers_4_loads_with_the_new_token(tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    source = build(base("bert"), tmp_path / "in")
    out = tmp_path / "out"
    resize(source, out, Request(tokens=(NewToken("[TOOL]", special=True),), multiple=8))
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.convert_tokens_to_ids("[TOOL]") == 320
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.get_input_embeddings().weight.shape[0] == 328
    assert model(**tokenizer("a [TOOL] b", return_tensors="pt")).logits.shape[-1] == 328
