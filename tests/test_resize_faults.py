"""Kill a resize at every change to the file system, or let the change fail: nothing half-made is left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models import base, build, changed

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


def sharded(out: Path) -> Path:
    """A small untied model in two shards."""
    tables = base("llama")["safetensors"]["model.safetensors"]
    first = "model.embed_tokens.weight"
    shards = {
        "model.safetensors": None,
        "model-00001-of-00002.safetensors": {first: tables.pop(first)},
        "model-00002-of-00002.safetensors": tables,
    }
    return build(changed(base("llama"), {"safetensors": shards, "index": True}), out)


@pytest.mark.parametrize("mode", ["kill", "enospc", "eio", "edquot", "int", "term"])
def test_a_fault_at_every_change_leaves_all_or_nothing(mode: str, tmp_path: Path) -> None:
    source = sharded(tmp_path / "source")
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
        for at in range(1, 1000):
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
    assert absent > 10
