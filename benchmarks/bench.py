"""What the benchmarks share: their options, the machine they run on, taking turns, memory, and the table."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from checkpoint import Checkpoint, Tables, build, rows_for, shape_for, synthesise_tokenizer

PROJECT = Path(__file__).resolve().parents[1]
REAL_TOKENIZER = PROJECT.parent / "shared/real/deepseek-litellm/tokenizer.json"
SAMPLE_SECONDS = 0.001
HEAD = f"{'best':>8}{'median':>15}"

Command = tuple[str, ...]


def parser(
    doc: str | None, *, runs: int, writes: bool = True, gb: float | None = None
) -> argparse.ArgumentParser:
    """The options of a benchmark: of one that ``writes``, or builds a checkpoint of ``gb``, some more."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--runs", type=int, default=runs, help="how often each line is timed")
    if writes:
        made.add_argument("--work", type=Path, help="where to write; default: the temporary directory")
    if gb is not None:
        made.add_argument("--tokenizer", type=Path, help="a tokenizer.json; default: one of 128k tokens")
        made.add_argument("--gb", type=float, default=gb, help="size of the weights in 10^9 bytes")
    return made


@contextmanager
def scratch(call: argparse.Namespace) -> Iterator[Path]:
    """A folder to write into, which is removed at the end."""
    with tempfile.TemporaryDirectory(dir=call.work, prefix="tokaudit-benchmark-") as folder:
        yield Path(folder).resolve()


def tokenizer_of(call: argparse.Namespace, work: Path) -> Path:
    """The tokenizer.json that was given, else a real one, else one that is made up in ``work``."""
    if call.tokenizer is not None:
        return Path(call.tokenizer)
    if REAL_TOKENIZER.exists():
        return REAL_TOKENIZER
    made = work / "tokenizer.json"
    synthesise_tokenizer(made)
    return made


@contextmanager
def checkpoint(work: Path, tokenizer: Path, nbytes: int, tables: Tables) -> Iterator[Checkpoint]:
    """A checkpoint on disk for as long as it is needed."""
    out = work / "checkpoint"
    try:
        yield build(out, tokenizer, shape_for(nbytes, rows_for(tokenizer), tables), tables)
    finally:
        shutil.rmtree(out)


def tokaudit(*arguments: str | Path) -> Command:
    return (sys.executable, "-m", "tokaudit", *map(str, arguments))


def machine(*more: str) -> None:
    """Print what the figures are from."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    python = f"Python {platform.python_version()}"
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(", ".join((f"{os.cpu_count()} cores", f"{memory:.0f} GB of memory", python, *more, load)))


def run(command: Command, *, codes: Iterable[int] = (0,)) -> None:
    """Run it to its end; leaves with its output where it exits with another code."""
    done = subprocess.run(command, cwd=PROJECT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode not in codes:
        fail(command, done.returncode, done.stdout)


def fail(command: Command, code: int, output: str = "") -> None:
    sys.exit(f"{output[-2000:]}\nexit code {code}: {' '.join(command)}")


def measure(actions: Mapping[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Seconds of each action, ``runs`` times in turns, after a first round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(runs + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


@dataclass(frozen=True, slots=True)
class Peak:
    """Largest resident memory in bytes: of the process, and of the largest of its children (0: none)."""

    itself: int
    child: int


def peak_memory(command: Command) -> Peak:
    """The kernel's high-water marks of the process and its children, sampled in a run of its own."""
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in (process.pid, *_descendants(process.pid)):
                peaks[pid] = max(peaks.get(pid, 0), _high_water(pid))
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        fail(command, process.returncode)
    itself = peaks.pop(process.pid)
    return Peak(itself, max(peaks.values(), default=0))


def _descendants(pid: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return
    for child in children:
        yield child
        yield from _descendants(child)


def _high_water(pid: int) -> int:
    """VmHWM in bytes; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def times(seconds: list[float], floor: list[float]) -> str:
    """The best and the median time, each with its ratio to the floor's: what stands below `HEAD`."""
    return "".join(f"{pick(seconds):6.2f} s{pick(seconds) / pick(floor):6.2f}x" for pick in (min, median))


def row(name: str, seconds: list[float], floor: list[float], peak: Peak | None = None) -> None:
    """Print the times, and the memory."""
    memory = "" if peak is None else f"{peak.itself / 1e6:6.0f} MB{peak.child / 1e6:6.0f} MB"
    print(f"  {name:34}{times(seconds, floor)}{memory}", flush=True)
