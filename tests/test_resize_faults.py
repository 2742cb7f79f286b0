"""Kill a resize at every change to the file system, or let the change fail: nothing half-made is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models import build
from resizing import in_shards, untied

from tokaudit.atomic import abandoned
from tokaudit.cli import main

HERE = Path(__file__).resolve().parent


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def contents(directory: Path) -> dict[str, bytes]:
    return {name: data for name, (data, _, _) in snapshot(directory).items()}


def model(out: Path) -> Path:
    """A small untied model in three shards, the middle one without a table, and a file in a folder."""
    build(in_shards(untied(), 3), out)
    (out / "notes").mkdir()
    (out / "notes" / "read.me").write_text("x")
    return out


# By how many changes to go on: errors and signals that others stand for are tried at every third.
STEPS = {"kill": 1, "enospc": 1, "eio": 1, "int": 1, "edquot": 3, "term": 3}


@pytest.mark.parametrize("mode", STEPS)
def test_a_fault_at_every_change_leaves_all_or_nothing(mode: str, tmp_path: Path) -> None:
    source = model(tmp_path / "source")
    before = snapshot(source)
    work = tmp_path / "work"
    work.mkdir()
    out = work / "out"
    command = ["resize", str(source), str(out), "--add-token", "<|new|>", "--color", "never"]
    assert main([*command[:2], str(tmp_path / "reference"), *command[3:]]) == 0
    reference = contents(tmp_path / "reference")
    absent = 0
    with subprocess.Popen(
        [sys.executable, str(HERE / "crashes.py"), mode, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
    ) as sweep:
        assert sweep.stdin is not None
        assert sweep.stdout is not None
        for at in range(1, 1000, STEPS[mode]):
            sweep.stdin.write(f"{at}\n")
            sweep.stdin.flush()
            run = json.loads(sweep.stdout.readline())
            assert snapshot(source) == before
            if run["over"]:
                break
            assert "Traceback" not in run["stderr"]
            if out.exists():
                assert contents(out) == reference
                shutil.rmtree(out)
            else:
                absent += 1
                assert run["code"] == {"kill": -9, "int": 130, "term": 143}.get(mode, 2), run
            if mode == "kill":
                assert tuple(sorted(work.iterdir())) == abandoned(out)
                for left in abandoned(out):
                    shutil.rmtree(left)
            assert list(work.iterdir()) == [], f"{mode} at change {at} left something"
        sweep.stdin.close()
    assert run["over"]
    assert absent >= 3  # a signal may come too late to stop anything


def test_an_interrupt_where_python_loses_exceptions_ends_the_run(tmp_path: Path) -> None:
    """KeyboardInterrupt in a callback of the import machinery is lost, and other threads wait for ever."""
    source = model(tmp_path / "source")
    work = tmp_path / "work"
    work.mkdir()
    command = ["resize", str(source), str(work / "out"), "--add-token", "<|new|>"]
    codes = []
    for at in (100, 300, 400, 408):  # 400: while it reads; then it writes
        done = subprocess.run(
            [sys.executable, str(HERE / "interrupted.py"), str(at), *command],
            cwd=HERE.parent,
            capture_output=True,
            timeout=90,
        )
        codes.append(done.returncode)
        if done.returncode:
            assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
            assert list(work.iterdir()) == []
    assert 130 in codes
