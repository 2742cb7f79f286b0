"""Break what tokaudit writes at every change to the file system; the figures go to docs/reliability.md.

    python tools/reliability.py              write the table
    python tools/reliability.py --print      print it and write nothing

The sweep runs each command over and over: the first time its first change to the file system fails, or the
process is killed or gets a signal just before it; then the second, until a run makes fewer changes. After
each run everything must be as before or complete, and nothing may be left. Then other trouble: interrupts at
random times, and where Python loses exceptions; several runs with one destination; disks that are full or
read-only (mounted here, which needs root).

The script exits with 1, and writes nothing, where a run left anything half-made.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from models import build  # noqa: E402
from resizing import in_shards, untied  # noqa: E402

from tokaudit.atomic import abandoned  # noqa: E402

PAGE = PROJECT / "docs" / "reliability.md"
MARK = "<!-- begin figures: tools/reliability.py -->", "<!-- end figures -->"
FAULTS = {
    "kill": "killed (SIGKILL)",
    "int": "SIGINT",
    "term": "SIGTERM",
    "enospc": "no space (ENOSPC)",
    "edquot": "over quota (EDQUOT)",
    "eio": "the disk fails (EIO)",
    "change": "the source changes",
}
INTERRUPTS = 100  # of each command, at random times
IN_IMPORTS = range(10, 450, 10)  # more than a resize has, so that some runs end by themselves
RUNS_AT_ONCE = 6
ROUNDS = 5
PATIENCE = 60.0  # seconds after which an interrupted run hangs
DISKS = (8, 16, 32, 64, 96, 128, 160)  # KiB


@dataclass(frozen=True)
class Command:
    """A command that writes ``out``; with ``old``, over a file that is there already."""

    name: str
    arguments: Sequence[str]
    out: Path
    old: bytes | None = None


@dataclass
class Tally:
    runs: int = 0
    complete: int = 0
    nothing: int = 0
    left: int = 0  # by kill -9: nothing else may leave anything
    named: bool = False  # whether the next run tells of it
    wrong: list[str] = field(default_factory=list)


def contents(path: Path) -> object:
    """What is at the path: bytes, the files below it by name, or None."""
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return path.read_bytes() if path.exists() else None


def tokaudit(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokaudit", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120)


def reset(command: Command) -> None:
    shutil.rmtree(command.out.parent)
    command.out.parent.mkdir()
    if command.old is not None:
        command.out.write_bytes(command.old)


def sweep(command: Command, fault: str, source: Path) -> Tally:
    """The fault at every change that the command makes."""
    tally = Tally()
    victim = source / "model-00002-of-00003.safetensors"
    good, original = contents(source), victim.read_bytes()
    reset(command)
    tokaudit(command.arguments)
    result, before = contents(command.out), command.old
    mode = f"change:{victim}" if fault == "change" else fault
    process = subprocess.Popen(
        [sys.executable, str(PROJECT / "tests" / "crashes.py"), mode, *command.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    )
    with process:
        assert process.stdin
        assert process.stdout
        for at in range(1, 10_000):
            reset(command)
            process.stdin.write(f"{at}\n")
            process.stdin.flush()
            run = json.loads(process.stdout.readline())
            if fault == "change":
                victim.write_bytes(original)
            if run["over"]:
                break
            tally.runs += 1
            found = contents(command.out)
            left = [path for path in command.out.parent.iterdir() if path != command.out]
            if found == result:
                tally.complete += 1
            elif found == before:
                tally.nothing += 1
            else:
                tally.wrong.append(f"{command.name}, {fault} at {at}: half-made")
            if fault == "kill" and left:
                tally.left += 1
                tally.named = command.old is None
                if command.old is None and tuple(sorted(left)) != abandoned(command.out):
                    tally.wrong.append(f"{command.name}, kill at {at}: {left} is not recognised")
            elif left:
                tally.wrong.append(f"{command.name}, {fault} at {at}: {left} is left")
            if contents(source) != good:
                tally.wrong.append(f"{command.name}, {fault} at {at}: the source was touched")
            if "Traceback" in run["stderr"]:
                tally.wrong.append(f"{command.name}, {fault} at {at}: a traceback")
        process.stdin.close()
    if not run["over"] or not tally.runs:
        tally.wrong.append(f"{command.name}, {fault}: the sweep did not end")
    reset(command)
    if tokaudit(command.arguments).returncode != 0 or contents(command.out) != result:
        tally.wrong.append(f"{command.name}, {fault}: a plain run afterwards fails")
    return tally


def interrupted(command: Command, lines: Sequence[Sequence[str]], after: Callable[[float], float]) -> Tally:
    """Each line of a command, with SIGINT so many seconds after its start; ``after`` gets what one lasts."""
    tally = Tally()
    reset(command)
    began = time.monotonic()
    tokaudit(command.arguments)
    lasts, result = time.monotonic() - began, contents(command.out)
    for number, line in enumerate(lines, 1):
        reset(command)
        process = subprocess.Popen(
            line, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        tally.runs += 1
        try:
            process.wait(after(lasts))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            tally.wrong.append(f"{command.name}, interrupt {number}: it does not end")
            process.kill()
            process.wait()
        found = contents(command.out)
        if found == result:
            tally.complete += 1
        elif found == command.old:
            tally.nothing += 1
        else:
            tally.wrong.append(f"{command.name}, interrupt {number}: half-made")
        left = [path for path in command.out.parent.iterdir() if path != command.out]
        if left:
            tally.wrong.append(f"{command.name}, interrupt {number}: {left} is left")
    return tally


def at_random_times(command: Command) -> Tally:
    line = [sys.executable, "-m", "tokaudit", *command.arguments]
    chance = random.Random(0)
    return interrupted(command, [line] * INTERRUPTS, lambda lasts: chance.uniform(0, lasts))


def in_imports(command: Command) -> Tally:
    """The line interrupts itself."""
    script = str(PROJECT / "tests" / "interrupted.py")
    lines = [[sys.executable, script, str(at), *command.arguments] for at in IN_IMPORTS]
    return interrupted(command, lines, lambda lasts: PATIENCE)


def at_once(command: Command) -> Tally:
    """Several runs of a resize with one destination: one makes it, the others say that it exists."""
    tally = Tally()
    reset(command)
    tokaudit(command.arguments)
    result = contents(command.out)
    line = [sys.executable, "-m", "tokaudit", *command.arguments]
    for _ in range(ROUNDS):
        reset(command)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        started = [subprocess.Popen(line, cwd=PROJECT, **quiet) for _ in range(RUNS_AT_ONCE)]  # type: ignore[call-overload]
        for process in started:
            process.communicate()
        codes = [process.returncode for process in started]
        tally.runs += len(codes)
        tally.complete += codes.count(0)
        tally.nothing += codes.count(2)
        if codes.count(0) != 1 or codes.count(2) != len(codes) - 1:
            tally.wrong.append(f"{RUNS_AT_ONCE} runs at once ended with {codes}")
        if contents(command.out) != result or list(command.out.parent.iterdir()) != [command.out]:
            tally.wrong.append(f"{RUNS_AT_ONCE} runs at once left {list(command.out.parent.iterdir())}")
    return tally


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own; raises CalledProcessError where none can be mounted."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def on_disks(arguments: Callable[[Path], Sequence[str]], folder: Path, options: Sequence[str]) -> Tally:
    """A run on each of these file systems: complete, or nothing at all."""
    tally = Tally()
    for option in options:
        with mounted(folder, option) as disk:
            done = tokaudit(arguments(disk / "out"))
            tally.runs += 1
            left = list(disk.iterdir())
            if done.returncode == 0 and left == [disk / "out"]:
                tally.complete += 1
            elif done.returncode == 2 and not left and len(done.stderr.splitlines()) <= 2:
                tally.nothing += 1
            else:
                tally.wrong.append(f"{option}: exit code {done.returncode}, {left}, {done.stderr}")
    return tally


def measured(work: Path) -> Iterator[tuple[str, str, Tally]]:
    """(command, trouble, its tally) for each line of the table."""
    source = build(in_shards(untied(), 3), work / "source")
    place = work / "place"
    place.mkdir()
    grow = ["--add-token", "<|new|>", "--color", "never"]
    resize = Command("resize", ["resize", str(source), str(place / "out"), *grow], place / "out")
    lock = Command(
        "lock", ["lock", str(source), "--output", str(place / "lock")], place / "lock", b"an older lock"
    )
    output = Command(
        "check --output",
        ["check", str(source), "--output", f"json={place / 'report'}"],
        place / "report",
        b"an older report",
    )
    for command in (resize, lock, output):
        for fault, words in FAULTS.items():
            if fault != "change" or command is resize:
                yield command.name, words, sweep(command, fault, source)
        yield command.name, "SIGINT at a random time", at_random_times(command)
        yield command.name, "SIGINT within an import", in_imports(command)
    yield "resize", f"{RUNS_AT_ONCE} runs at once, one destination", at_once(resize)
    sizes = [f"size={kib}k" for kib in DISKS]
    into = lambda out: ["resize", str(source), str(out), *grow]  # noqa: E731
    disk = work / "disk"
    yield "resize", f"a disk of {DISKS[0]} to {DISKS[-1]} KiB", on_disks(into, disk, sizes)
    yield "resize", "a read-only disk", on_disks(into, disk, ["ro"])


def table(rows: Sequence[tuple[str, str, Tally]]) -> str:
    lines = [
        "| command | trouble | runs | complete | as before | half-made | left behind |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for command, words, tally in rows:
        left = f"{tally.left}, named" if tally.named else str(tally.left)
        figures = f"{tally.runs} | {tally.complete} | {tally.nothing} | 0 | {left}"
        lines.append(f"| `{command}` | {words} | {figures} |")
    total = sum(tally.runs for _, _, tally in rows)
    return "\n".join([*lines, "", f"{total:,} runs; the source was the same byte for byte after each."])


def main() -> int:
    parser = argparse.ArgumentParser(description="Break what tokaudit writes, and count what is left.")
    parser.add_argument("--print", action="store_true", help="print the table; write nothing")
    call = parser.parse_args()
    # A shell starts what runs in the background with SIGINT ignored, and so would every command here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[tuple[str, str, Tally]] = []
    with tempfile.TemporaryDirectory(prefix="tokaudit-reliability-") as folder:
        for row in measured(Path(folder)):
            print(f"{row[0]}: {row[1]}: {row[2].runs} runs", *row[2].wrong, sep="\n  ", file=sys.stderr)
            rows.append(row)
    wrong = [words for _, _, tally in rows for words in tally.wrong]
    if call.print or wrong:
        print(table(rows))
        return 1 if wrong else 0
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(MARK[0])
    tail = rest.partition(MARK[1])[2]
    PAGE.write_text(f"{head}{MARK[0]}\n\n{table(rows)}\n\n{MARK[1]}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
