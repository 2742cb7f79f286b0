"""Every command that reads a directory, on the catalogue of hostile ones: what must hold for any input.

It ends in time with the exit code that hostile_codes.py decides, with one line on standard error for 2, shows
no traceback, stays within memory, changes and runs nothing, and writes nothing that acts on a terminal or a
CI log; what programs read is valid in its format.

The ordinary run takes every eighteenth directory of each kind; those marked ``hostile`` take all, the big
ones included.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import PROJECT
from forked import Done, Forked
from hostile_codes import expected
from machine_readable import problems

from tokaudit.reporters import names

HERE = Path(__file__).resolve().parent / "hostile"
GROUPS = ("CT", "ST", "IX", "FS", "JS", "TK", "PK", "AD")
FEW = 18
MEMORY = 1500 << 20
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]")
FORMATS = tuple(name for name in names() if name != "terminal")


@dataclass(frozen=True)
class Command:
    """``decided`` is its column in the table of exit codes, ``prints`` what its standard output is in.

    ``call`` gets the model, a folder for what is written, the undamaged model of which the others are copies,
    and an adapter for it.
    """

    decided: str
    call: Callable[[str, Path, Path, Path], Sequence[str | Path]]
    prints: str = "terminal"


COMMANDS = {
    "check --deep in every format": Command(
        "check",
        lambda model, out, valid, adapter: [
            *("check", model, "--deep"),
            *(part for name in FORMATS for part in ("--output", f"{name}={out / name}")),
        ],
    ),
    "lock": Command("lock", lambda model, out, valid, adapter: ["lock", model, "--output", out / "lock"]),
    "hash": Command("lock", lambda model, out, valid, adapter: ["hash", model]),
    "diff": Command("diff", lambda model, out, valid, adapter: ["diff", model, valid, "--deep"]),
    "diff the other way": Command(
        "diff", lambda model, out, valid, adapter: ["diff", valid, model, "--format", "json"], "diff"
    ),
    "rows": Command("rows", lambda model, out, valid, adapter: ["rows", model]),
    "rows as json": Command(
        "rows", lambda model, out, valid, adapter: ["rows", model, "--format", "json"], "rows"
    ),
    "cost": Command("cost", lambda model, out, valid, adapter: ["cost", model]),
    "cost --add": Command(
        "cost-add",
        lambda model, out, valid, adapter: ["cost", model, "--add", "9", "--format", "json"],
        "cost",
    ),
    "resize --dry-run": Command(
        "add",
        lambda model, out, valid, adapter: [
            *("resize", model, out / "model", "--add-token", "<|new|>", "--dry-run"),
        ],
    ),
    "resize": Command(
        "resize", lambda model, out, valid, adapter: ["resize", model, out / "model", "--rows", "4096"]
    ),
    "resize to it": Command(
        "fit", lambda model, out, valid, adapter: ["resize", valid, out / "model", "--to-tokenizer", model]
    ),
    "check --base": Command("base", lambda model, out, valid, adapter: ["check", adapter, "--base", model]),
    "check --data": Command("data", lambda model, out, valid, adapter: ["check", valid, "--data", model]),
    "check --optimizer": Command(
        "optimizer", lambda model, out, valid, adapter: ["check", valid, "--optimizer", model]
    ),
}


@dataclass(frozen=True)
class Case:
    """A directory of the catalogue, and how it is called: in ``cwd``, as ``name``."""

    id: str
    code: str
    folder: Path
    name: str
    cwd: Path
    root_only: bool


def cases(catalogue: Path, group: str) -> Iterator[Case]:
    with (catalogue / "EXPECTED.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        folder, call = catalogue / row["dir"], row["command"]
        if row["group"] != group or not folder.is_dir() or "harness" in row["needs"]:
            continue
        if call.startswith(("api:", "resize", "ulimit", "umask")):
            continue
        here = call.startswith("cd {dir} && ")
        argument = call.rpartition("&& ")[2].split(" ", 1)[1]
        for _ in range(2):
            argument = argument.encode().decode("unicode_escape")
        yield Case(
            row["id"],
            row["code"],
            folder,
            argument.replace("{dir}", str(folder)),
            folder if here else PROJECT,
            "nonroot" in row["needs"],
        )


def make(out: Path, *options: str) -> Path:
    command = [sys.executable, str(HERE / "make_bad.py"), str(out), *options]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the big ones, which are removed at once: they take some hundred megabytes."""
    out = tmp_path_factory.mktemp("hostile")
    yield make(out, "--big")
    shutil.rmtree(out, ignore_errors=True)


def state(folder: Path) -> list[tuple[object, ...]]:
    """Everything below it; a path that is too long for the system is left out."""
    found = []
    for parent, folders, files in os.walk(os.fsencode(folder)):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            found.append((path, status.st_size, status.st_mtime_ns, status.st_mode, status.st_ino))
    return sorted(found, key=str)


def violations(case: Case, command: Command, done: Done, out: Path) -> Iterator[str]:
    wanted = expected(case.id, case.code, command.decided)
    if done.code != wanted:
        yield f"exit code {done.code}, not {wanted}, after {done.seconds:.0f} s"
    if done.peak > MEMORY:
        yield f"{done.peak >> 20} MB"
    if done.code == 2:
        lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        if not lines or any(not line.startswith(" ") for line in lines[1:]):
            yield f"{len(lines)} lines on standard error: {lines[:3]}"
    resized = out / "model"
    written = [path for path in out.rglob("*") if path.is_file() and not path.is_relative_to(resized)]
    texts = {"stdout": done.stdout, "stderr": done.stderr, **{p.name: p.read_bytes() for p in written}}
    for name, data in texts.items():
        yield from (f"{name}: {words}" for words in acting(data))
    for kind, data in {**texts, command.prints: done.stdout}.items():
        if data:
            yield from (f"{kind}: {words}" for words in problems(kind, data.decode("utf-8", "replace")))
    if command.decided in ("add", "resize", "fit") and done.code != 0 and list(out.iterdir()):
        yield f"left {list(out.iterdir())}"


def acting(data: bytes) -> Iterator[str]:
    """What a text does that it must not."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        yield "no UTF-8"
        return
    for word in ("Traceback (most", "panicked at", "Exception ignored", "error[internal]", "failed: "):
        if word == "failed: " and "TA" in text and re.search(r"TA\d{3} [a-z-]+ failed: ", text):
            yield "a rule failed"
        elif word != "failed: " and word in text:
            yield word
    if found := ACTING.search(text):
        yield f"raw U+{ord(found[0]):04X}"
    if "##[" in text:
        yield "a command of a CI log"


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with Forked(tmp_path_factory.mktemp("printed")) as running:
        yield running


def try_all(catalogue: Path, group: str, name: str, forked: Forked, tmp_path: Path, step: int) -> None:
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("setpriv is not here")
    canary = catalogue / ".canary"
    command = COMMANDS[name]
    valid, adapter = catalogue / "CT01-valid-single", catalogue / "AD01-base-path-absolute"
    wrong: list[str] = []
    for number, case in enumerate(cases(catalogue, group)):
        if number % step or (case.root_only and os.geteuid() == 0):
            continue
        out = tmp_path / "out"
        out.mkdir()
        before = state(case.folder)
        arguments = command.call(case.name, out, valid, adapter)
        done = forked.run(*arguments, cwd=case.cwd, TOKAUDIT_CANARY=str(canary), COLUMNS="40")
        found = list(violations(case, command, done, out))
        if state(case.folder) != before:
            found.append("the input changed")
        if canary.exists():
            found.append("CODE RAN")
            canary.unlink()
        wrong += [f"{case.folder.name}: {words}" for words in found]
        shutil.rmtree(out)
    assert wrong == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_few_of_each_kind(name: str, few: Path, forked: Forked, tmp_path: Path) -> None:
    for group in GROUPS:
        try_all(few, group, name, forked, tmp_path, FEW)


@pytest.mark.hostile
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", COMMANDS)
def test_all_of_them(name: str, group: str, whole: Path, forked: Forked, tmp_path: Path) -> None:
    try_all(whole, group, name, forked, tmp_path, 1)
