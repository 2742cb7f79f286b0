"""Time and memory of `tokaudit check` on checkpoints of several GB, against what it cannot avoid.

    python benchmarks/check.py [--work DIR] [--tokenizer FILE] [--gb 4.5] [--runs 7]

The floor of a check is one fresh Python that loads the tokenizer; the floor of comparing two tied tables is
reading both. Every ratio comes from one run of this script, in which the commands take turns, with the files
in the page cache. `check` works in two processes at once: where other work fills the cores, its ratio grows.
Needs Linux, and room for twice ``--gb``; what it writes is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from checkpoint import Checkpoint, Span, Tables, build, rows_for, shape_for, synthesise_tokenizer

PROJECT = Path(__file__).resolve().parents[1]
REAL_TOKENIZER = PROJECT.parent / "shared/real/deepseek-litellm/tokenizer.json"
READ_BYTES = 1 << 20
SAMPLE_SECONDS = 0.001

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """Largest resident memory in bytes: of the process, and of the largest of its children (0: none)."""

    itself: int
    child: int


@contextmanager
def checkpoint(work: Path, tokenizer: Path, nbytes: int, tables: Tables) -> Iterator[Checkpoint]:
    """A checkpoint on disk for as long as it is needed."""
    shape = shape_for(nbytes, rows_for(tokenizer), tables)
    out = work / "checkpoint"
    try:
        yield build(out, tokenizer, shape, tables)
    finally:
        shutil.rmtree(out)


def load_tokenizer(model: Path) -> Command:
    load = "import sys; from tokenizers import Tokenizer; Tokenizer.from_file(sys.argv[1])"
    return (sys.executable, "-I", "-c", load, str(model / "tokenizer.json"))


def check(model: Path, *options: str) -> Command:
    return (sys.executable, "-m", "tokaudit", "check", *options, str(model))


def run(command: Command) -> None:
    """Run it to its end; leaves with its output where it does not exit with 0."""
    done = subprocess.run(command, cwd=PROJECT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    expect_success(command, done.returncode, done.stdout)


def expect_success(command: Command, code: int, output: str = "") -> None:
    if code:
        sys.exit(f"{output}\nexpected exit code 0, got {code}: {' '.join(command)}")


def read_once(spans: list[Span]) -> None:
    """Read the tables' bytes in order, into one small buffer."""
    buffer = bytearray(READ_BYTES)
    for span in spans:
        descriptor = os.open(span.file, os.O_RDONLY)
        try:
            done = 0
            while done < span.nbytes:
                window = memoryview(buffer)[: span.nbytes - done]
                done += os.preadv(descriptor, [window], span.start + done)
        finally:
            os.close(descriptor)


def measure(actions: Mapping[str, Callable[[], None]], runs: int) -> dict[str, list[float]]:
    """Seconds of each action, ``runs`` times in turns, after a first round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(runs + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def peak_memory(command: Command) -> Peak:
    """The kernel's high-water marks of the process and its children, sampled in a run of its own."""
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for pid in (process.pid, *descendants(process.pid)):
                peaks[pid] = max(peaks.get(pid, 0), high_water(pid))
            time.sleep(SAMPLE_SECONDS)
    expect_success(command, process.returncode)
    itself = peaks.pop(process.pid)
    return Peak(itself, max(peaks.values(), default=0))


def descendants(pid: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has ended meanwhile
        return
    for child in children:
        yield child
        yield from descendants(child)


def high_water(pid: int) -> int:
    """VmHWM in bytes; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def heading(made: Checkpoint, kind: str) -> None:
    print(f"\n{kind}: {made.nbytes / 1e9:.1f} GB in {made.shards} shards")
    print(f"  {'':34}{'best':>8}{'median':>15}{'itself':>17}{'child':>9}")


def row(name: str, seconds: list[float], floor: list[float], peak: Peak | None = None) -> None:
    """Print the best and the median time, each with its ratio to the floor's, and the memory."""
    times = "".join(f"{pick(seconds):6.2f} s{pick(seconds) / pick(floor):6.2f}x" for pick in (min, median))
    memory = "" if peak is None else f"{peak.itself / 1e6:6.0f} MB{peak.child / 1e6:6.0f} MB"
    print(f"  {name:34}{times}{memory}", flush=True)


def against_tokenizer(made: Checkpoint, runs: int) -> None:
    """Print what `check` takes beside a fresh Python that only loads the tokenizer."""
    commands = {
        "load the tokenizer (the floor)": load_tokenizer(made.path),
        "check --no-weights": check(made.path, "--no-weights"),
        "check": check(made.path),
    }
    seconds = measure({name: partial(run, command) for name, command in commands.items()}, runs)
    heading(made, "untied")
    floor, *_ = seconds.values()
    for name, command in commands.items():
        row(name, seconds[name], floor, peak_memory(command))


def against_reading(made: Checkpoint, runs: int) -> None:
    """Print what `check` takes beside one reading of both stored tables."""
    tables = [made.spans["model.embed_tokens.weight"], made.spans["lm_head.weight"]]
    reading = f"read both tables ({sum(span.nbytes for span in tables) / 1e9:.1f} GB) once"
    commands = {"check --no-weights": check(made.path, "--no-weights"), "check": check(made.path)}
    actions = {name: partial(run, command) for name, command in commands.items()}
    seconds = measure({reading: partial(read_once, tables), **actions}, runs)
    heading(made, "tied, both tables stored")
    row(reading, seconds[reading], seconds[reading])
    for name, command in commands.items():
        row(name, seconds[name], seconds[reading], peak_memory(command))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure `tokaudit check` on checkpoints of several GB.")
    parser.add_argument("--work", type=Path, help="where to build; default: the temporary directory")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; default: one of 128k tokens")
    parser.add_argument("--gb", type=float, default=4.5, help="size of the weights in 10^9 bytes")
    parser.add_argument("--runs", type=int, default=7, help="how often each command is timed")
    call = parser.parse_args()
    nbytes = int(call.gb * 1e9)
    with tempfile.TemporaryDirectory(dir=call.work, prefix="tokaudit-benchmark-") as folder:
        work = Path(folder).resolve()
        tokenizer = call.tokenizer or REAL_TOKENIZER
        if not tokenizer.exists() and call.tokenizer is None:
            tokenizer = work / "tokenizer.json"
            synthesise_tokenizer(tokenizer)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        machine = f"{os.cpu_count()} cores, {memory:.0f} GB of memory, Python {platform.python_version()}"
        print(f"{machine}, load average {os.getloadavg()[0]:.1f}")
        print(f"{rows_for(tokenizer):,} rows; {call.runs} interleaved runs of each command, warm cache")
        for size in (nbytes, 2 * nbytes):
            with checkpoint(work, tokenizer, size, Tables.UNTIED) as made:
                against_tokenizer(made, call.runs)
        with checkpoint(work, tokenizer, nbytes, Tables.BOTH) as made:
            against_reading(made, call.runs)


if __name__ == "__main__":
    main()
