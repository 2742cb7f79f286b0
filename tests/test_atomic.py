"""What the atomic writer makes is complete under its name, or not there at all."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tokaudit.atomic import CannotWrite, abandoned, new_directory, new_file


def test_a_directory_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with new_directory(target) as building:
        (building / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_directory(tmp_path / "out") as building:
        (building / "a").write_text("1")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "directory", "empty directory", "dangling link"])
def test_nothing_is_written_over(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out"
    if kind == "file":
        target.write_text("x")
    elif kind == "dangling link":
        target.symlink_to("nowhere")
    else:
        target.mkdir()
        if kind == "directory":
            (target / "x").write_text("x")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CannotWrite, match="exists already"), new_directory(target):
        pass
    assert sorted(os.listdir(tmp_path)) == before


def test_a_directory_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(CannotWrite, match="exists already"), new_directory(target) as building:
        (building / "a").write_text("1")
        target.mkdir()
    assert list(target.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="does not exist"), new_directory(tmp_path / "a" / "out"):
        pass


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700)])
def test_modes_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with new_directory(tmp_path / "out"):
            pass
        with new_file(tmp_path / "report") as path:
            path.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == mode & 0o666


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), new_file(target) as path:
        path.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    with new_file(target) as path:
        path.write_text("new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_what_a_killed_run_left_is_recognised(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tokaudit.atomic import new_directory\n"
        "with new_directory(Path(sys.argv[1])):\n    os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "out")], cwd=root, check=False)
    (left,) = abandoned(tmp_path / "out")
    assert left.name.startswith(".out.tokaudit-")
    with new_directory(tmp_path / "out"):
        assert abandoned(tmp_path / "out") == (left,)  # the running one holds its lock


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_python_would_lose_removes_what_threads_still_write(
    tmp_path: Path, signum: signal.Signals
) -> None:
    script = """
import os, sys, threading, time
from pathlib import Path
from tokaudit.atomic import new_directory, new_file
from tokaudit.ending import end_at_signals

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))

def write(building):
    for number in range(100_000):
        (building / str(number)).write_text("x")

end_at_signals()
with new_directory(Path("out")) as building, new_file(Path("file")) as other:
    (building / "folder").mkdir()
    for _ in range(4):
        threading.Thread(target=write, args=(building,), daemon=True).start()
    time.sleep(0.2)
    Finalised()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(int(signum))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 128 + signum
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_the_run_was_started_to_ignore_stays_ignored() -> None:
    script = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from tokaudit.ending import end_at_signals
end_at_signals()
os.kill(os.getpid(), signal.SIGHUP)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "alive\n"


def test_a_terminal_gets_its_cursor_back() -> None:
    """A bar of progress hides it, and nothing of Python's runs after a signal that would show it again."""
    script = """
import os, signal, sys
from tokaudit.ending import end_at_signals
end_at_signals()
sys.stderr.write("\\x1b[?25lhalf of a line")
sys.stderr.flush()
os.kill(os.getpid(), signal.SIGTERM)
"""
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", script], stderr=theirs, timeout=60)
    os.close(theirs)
    assert done.returncode == 143
    assert os.read(ours, 1000) == b"\x1b[?25lhalf of a line\r\x1b[K\x1b[?25h"
    os.close(ours)
