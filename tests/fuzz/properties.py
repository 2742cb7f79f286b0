"""What must hold for every input, whatever is in it: ``holds`` raises where it does not."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import re
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from models import base, build
from safetensors import SafetensorError, deserialize
from test_resize_properties import assert_as_planned
from tokenizers import Tokenizer

from fuzz.adapters import BASE
from fuzz.ledger_files import LEDGER
from fuzz.pairs import OTHER, pair_is_compared
from fuzz.pickles import MARKER
from fuzz.references import (
    data_is_counted_as_the_library_does,
    ledger_is_read_or_refused,
    state_is_read_as_torch_does,
    tables_are_counted_as_pyarrow_does,
)
from fuzz.targets import REQUEST, TARGETS
from fuzz.texts import is_inert, is_one_line, report_renders
from tokaudit import audit, baseline, configuration
from tokaudit.cli import main
from tokaudit.contract import Contract, Loaded, Options, Vocabulary
from tokaudit.contract.data import DataOptions
from tokaudit.errors import TokauditError, Unreadable, UsageError
from tokaudit.formats.safetensors import DamagedWeights, read_header
from tokaudit.load import load
from tokaudit.locks.read import read as read_lock
from tokaudit.report import Report
from tokaudit.reporters import View, names, reporter
from tokaudit.resize import NewToken, Request, plan_resize, resize
from tokaudit.sources import open_source
from tokaudit.tokenizing import effective_ids

SECONDS = 30.0  # of processor time, for all that one input is put to; half a dozen audits and a command

# How the safetensors library and tokaudit differ, by what the refusal says ---------------------------------

STRICTER: Mapping[str, tuple[str, str]] = {
    "a key that stands twice": (
        r"^weights-duplicate-key:",
        "the specification forbids it; the library keeps the last one, other readers the first.",
    ),
    "an entry as a list": (
        r"^weights-header: .*: expected an object, found \[",
        'the library takes ["F32", [4], [0, 16]] for the three fields in order; no writer does.',
    ),
    "an integer of more than 40 digits": (
        r"an integer of more than 40 digits",
        "the library skips it in fields that nobody reads; Python's parser takes quadratic time for it.",
    ),
}
"""Files that the library loads and tokaudit refuses: what differs, what the refusal says, and the reason."""


def agrees_with_the_library(folder: Path) -> None:
    """The file holds the same tensors for the `safetensors` library and for tokaudit, or both refuse it."""
    data = (folder / "model.safetensors").read_bytes()
    try:
        expected: dict[str, Any] | None = dict(deserialize(data))
    except SafetensorError:
        expected = None
    try:
        with open_source(folder).open("model.safetensors") as file:
            found = read_header(file)
    except DamagedWeights as error:
        refusal = f"{error.code}: {error.message}"
        known = any(re.search(form, refusal) for form, _ in STRICTER.values())
        assert expected is None or known, refusal
        is_one_line(error)
        return
    if expected is None:
        # The only such case: for the library -0 is no integer, for Python's parser it is 0.
        (length,) = struct.unpack("<Q", data[:8])
        assert re.search(rb"-0(?![.0-9eE])", data[8 : 8 + length]), "accepted, and the library refuses it"
        return
    assert set(found.tensors) == set(expected)
    for name, tensor in found.tensors.items():
        assert (tensor.dtype, list(tensor.shape)) == (expected[name]["dtype"], expected[name]["shape"])
        assert data[tensor.start : tensor.stop] == bytes(expected[name]["data"])


# Ids ------------------------------------------------------------------------------------------------------


def numbers_as_the_library(folder: Path) -> None:
    """Of a sound tokenizer.json, which the library may read in this process."""
    document = json.loads((folder / "tokenizer.json").read_bytes())
    library = Tokenizer.from_str(json.dumps(document))
    vocab = document["model"]["vocab"]
    base = vocab if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    contents = [entry["content"] for entry in document["added_tokens"]]
    found = effective_ids(base, contents, base_tokens=len(vocab))
    assert found == {content: library.token_to_id(content) for content in contents if content}
    assert {**base, **found} == library.get_vocab()


def ids_are_those_of_the_library(folder: Path, contract: Contract, report: Report) -> None:
    """What tokaudit calls effective is what the library gives, and TA403 says exactly where that differs.

    Where the isolated process did not load the file this holds nothing; there the audit must say so.
    """
    vocabulary = contract.vocabulary_or
    if not isinstance(vocabulary, Vocabulary) or not isinstance(vocabulary.loaded_or, Loaded):
        assert contract.tokenizer_error is not None or contract.unreadable
        return
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    document = json.loads((folder / "tokenizer.json").read_bytes().removeprefix(b"\xef\xbb\xbf"))
    entries = document.get("added_tokens") or []
    given = {entry["content"]: library.token_to_id(entry["content"]) for entry in entries}
    for content, id in vocabulary.loaded.effective.items():
        assert given[content] == id, (content, given, vocabulary.loaded.effective)
    dropped = given.keys() - vocabulary.loaded.effective.keys()
    assert dropped <= {""}, dropped
    base_tokens = library.get_vocab_size(with_added_tokens=False)
    worked_out = effective_ids(
        vocabulary.base.ids, (entry["content"] for entry in entries), base_tokens=base_tokens
    )
    assert worked_out == vocabulary.loaded.effective
    everything = {**vocabulary.base.ids, **vocabulary.loaded.effective}
    assert everything == library.get_vocab(), (everything, library.get_vocab())
    moved = any(vocabulary.loaded.effective.get(entry["content"]) != entry["id"] for entry in entries)
    said = [
        finding
        for finding in report.findings
        if finding.rule == "TA403" and finding.claims[0].at.file == "tokenizer.json"
    ]
    assert bool(said) == moved, (moved, said)


# Audits --------------------------------------------------------------------------------------------------


def options_for(folder: Path) -> Options:
    """What the input has beside a model: the base of an adapter, token data, the state of an optimizer."""
    return Options(
        base=str(folder / BASE) if (folder / BASE).is_dir() else None,
        optimizer=str(folder / "optimizer") if (folder / "optimizer").is_dir() else None,
        data=DataOptions((str(folder / "data"),), jobs=2) if (folder / "data").is_dir() else None,
    )


def audit_is_decided(folder: Path) -> tuple[Contract, Report] | None:
    """The audit ends with a report, or a documented error (then there is None), and no rule fails."""
    try:
        contract = load(folder, options=options_for(folder))
    except Unreadable as error:
        is_one_line(error)
        return None
    report = audit.run(contract)
    for error in report.unreadable:
        is_one_line(error)
    internal = [error.message for error in report.unreadable if error.code == "internal"]
    assert not internal, internal
    return contract, report


def audit_says_the_same_again(folder: Path, report: Report) -> None:
    again = audit.run(load(folder, options=options_for(folder)))
    one, other = (reporter("json").render([each], View(verbose=True)) for each in (again, report))
    assert _without_last_words(one) == _without_last_words(other)


def _without_last_words(text: str) -> str:
    """Without those of a library that panics: its hash maps decide from run to run what it trips over."""
    return re.sub(r'panics on it: (?:[^"\\]|\\.)*', "panics", text)


# Commands -------------------------------------------------------------------------------------------------


@functools.cache
def _other() -> Path:
    """A sound model to compare with."""
    return build(base("llama"), Path(tempfile.mkdtemp(prefix="fuzz-other-")) / "model")


def commands(folder: Path) -> dict[str, list[str]]:
    """Every command on the input, by a name."""
    model, other = str(folder), str(_other())
    out = f"{folder}.out"
    found = {
        **{f"check --format {name}": ["check", model, "--isolated", "--format", name] for name in names()},
        "check --deep": ["check", model, "--isolated", "--deep", "--verbose"],
        "check --tokenizer": ["check", other, "--isolated", "--tokenizer", model],
        "check --no-weights": ["check", model, "--isolated", "--no-weights", "--strict"],
        "lock": ["lock", model, "--output", "-"],
        "hash": ["hash", model],
        "diff": ["diff", model, other],
        "diff --merge": ["diff", other, model, "--for", "merge", "--format", "json"],
        "rows": ["rows", model, "--worst", "3"],
        "rows --format csv": ["rows", model, "--format", "csv"],
        "cost": ["cost", model],
        "resize --dry-run": ["resize", model, out, "--add-token", "<new>", "--dry-run", "-f", "json"],
        "resize --rows": ["resize", model, out, "--rows", "400", "--dry-run"],
    }
    if (folder / "tokaudit.lock").exists():
        lock = str(folder / "tokaudit.lock")
        found |= {
            "check --lock": ["check", model, "--isolated", "--lock", lock],
            "check --lock --deep": ["check", other, "--isolated", "--deep", "--lock", lock, "-f", "json"],
            "diff a lock": ["diff", lock, model],
        }
    if (folder / "baseline.json").exists():
        found["check --baseline"] = [
            "check",
            model,
            "--isolated",
            "--baseline",
            str(folder / "baseline.json"),
        ]
    if (folder / BASE).is_dir():
        found["check --base"] = ["check", model, "--isolated", "--base", str(folder / BASE), "--deep"]
    if (folder / "data").is_dir():
        data = str(folder / "data")
        found |= {
            "data": ["data", data, "--tokenizer", other, "--isolated", "--verbose"],
            "data --dtype": [
                "data",
                data,
                "--tokenizer",
                other,
                "--isolated",
                "--dtype",
                "int64",
                "-f",
                "json",
            ],
            "check --data": ["check", other, "--isolated", "--data", data, "--deep"],
        }
    if (folder / "optimizer").is_dir():
        state = str(folder / "optimizer")
        found["check --optimizer"] = ["check", other, "--isolated", "--optimizer", state, "--verbose"]
    if (folder / "optimizer.pt").exists():
        found["resize --optimizer"] = ["resize", model, out, "--rows", "400", "--optimizer"]
    if (folder / LEDGER).exists():
        recorded = ["rows", other, "--ledger", str(folder / LEDGER)]
        found |= {"rows --ledger": recorded, "rows --ledger, all": [*recorded, "--format", "json"]}
    if (folder / OTHER).is_dir():
        second = str(folder / OTHER)
        found |= {
            "diff a pair": ["diff", model, second, "--deep"],
            "diff --for merge": ["diff", model, second, "--for", "merge", "--format", "json"],
            "diff --for speculative": ["diff", second, model, "--for", "speculative"],
            "cost --tokenizer": ["cost", model, "--tokenizer", second, "--add", "3", "--format", "json"],
        }
    return found


@functools.cache
def command_names() -> tuple[str, ...]:
    """The names of all commands, for any input; one that needs a file which is not there is not run."""
    with tempfile.TemporaryDirectory() as name:
        for file in ("tokaudit.lock", "baseline.json", "optimizer.pt", LEDGER):
            Path(name, file).touch()
        for inner in (BASE, "data", "optimizer", OTHER):
            Path(name, inner).mkdir()
        return tuple(commands(Path(name)))


def command_ends_well(arguments: list[str]) -> None:
    """It leaves with 0, 1 or 2, with one line on standard error for 2, and prints nothing that acts."""
    printed, complained = io.StringIO(), io.StringIO()
    with _undisturbed(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        code = main(arguments)
    output, errors = printed.getvalue(), complained.getvalue()
    assert code in (0, 1, 2), (code, errors)
    assert "internal" not in errors, errors
    assert "Traceback" not in output + errors
    lines = [line for line in errors.splitlines() if not line.startswith("tokaudit: note:")]
    if code == 2:
        assert lines, "no verdict, and nothing on standard error"
        assert lines[0].startswith("tokaudit: error"), errors
        assert all(line.startswith("  ") for line in lines[1:]), errors
        assert len(lines) <= 2, errors
    is_inert(output, "standard output")
    is_inert(errors, "standard error")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """``main`` is made for a process of its own: it sets the garbage collector off."""
    try:
        yield
    finally:
        gc.enable()


# Files of the user ----------------------------------------------------------------------------------------


def user_files_are_read_or_refused(folder: Path) -> None:
    for name, read in (
        ("tokaudit.toml", configuration.read),
        ("baseline.json", baseline.read),
        ("tokaudit.lock", read_lock),
    ):
        path = folder / name
        if path.exists():
            try:
                read(str(path))
            except (UsageError, Unreadable) as error:
                is_one_line(error)


# Resize ---------------------------------------------------------------------------------------------------


def request_in(folder: Path) -> Request:
    stated = json.loads((folder / REQUEST).read_bytes())
    return Request(**{**stated, "tokens": tuple(NewToken(**token) for token in stated.get("tokens", ()))})


def resize_is_as_planned(folder: Path, out: Path) -> None:
    """One clear refusal and nothing written, or a result that is what the plan says, ids included."""
    request = request_in(folder)
    plan = refusal = None
    try:
        plan = plan_resize(folder, request)
        result = resize(folder, out, request)
    except TokauditError as error:
        refusal = error
    if refusal is not None:
        is_one_line(refusal)
        assert os.listdir(out.parent) == []
        late = ("would fail its audit", "not finite", "overflow")  # what only the result shows
        assert plan is None or any(words in refusal.message for words in late), refusal
        return
    assert result.plan == plan
    if plan.rows_before > 1:  # which axis of one row has the rows, the look at the result cannot tell
        assert_as_planned(plan, folder, out)
    effective = load(out).vocabulary.effective
    assert {row.id: effective.get(row.content) for row in plan.rows} == {row.id: row.id for row in plan.rows}
    before = load(folder).vocabulary.effective
    assert before.items() <= effective.items(), "a token has another id than before"


# All of it ------------------------------------------------------------------------------------------------


def write(files: Mapping[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def holds(folder: Path, command: str) -> None:
    """Everything that must hold for the input in a folder; ``command`` is the one that is run ("": all)."""
    began = time.process_time()
    os.environ["TOKAUDIT_DEBUG"] = "1"  # a rule that fails raises
    try:
        user_files_are_read_or_refused(folder)
        decided = audit_is_decided(folder)
        if decided is not None:
            contract, report = decided
            report_renders(report)
            if command.startswith("check"):
                audit_says_the_same_again(folder, report)
            if (folder / "tokenizer.json").exists():
                ids_are_those_of_the_library(folder, contract, report)
        if (folder / "model.safetensors").exists():
            agrees_with_the_library(folder)
        if (folder / REQUEST).exists():
            with tempfile.TemporaryDirectory() as beside:
                resize_is_as_planned(folder, Path(beside) / "out")
        for name, arguments in commands(folder).items():
            if command in ("", name):
                command_ends_well(arguments)
    except TokauditError as error:
        raise AssertionError(f"{type(error).__name__} where none may leave: {error}") from error
    finally:
        del os.environ["TOKAUDIT_DEBUG"]
    assert not Path(MARKER).exists(), "a command in a pickle was run"
    took = time.process_time() - began
    assert took < SECONDS, f"took {took:.0f} s"
    assert not _children(), "a process stays behind"


def _children() -> list[str]:
    """The processes that this one has started and that are not ended and reaped; none where /proc is not."""
    lists = Path("/proc/self/task").glob("*/children")
    return [number for children in lists for number in children.read_text().split()]


CHECKS: Mapping[str, Callable[[Path, str], None]] = {
    **dict.fromkeys(TARGETS, holds),
    "parser": lambda folder, command: agrees_with_the_library(folder),
    "numbering": lambda folder, command: numbers_as_the_library(folder),
    "arrays": lambda folder, command: data_is_counted_as_the_library_does(folder),
    "tables": lambda folder, command: tables_are_counted_as_pyarrow_does(folder),
    "pickles": lambda folder, command: state_is_read_as_torch_does(folder),
    "ledgers": lambda folder, command: ledger_is_read_or_refused(folder),
    "pairs": lambda folder, command: pair_is_compared(folder),
}
"""What must hold for the inputs of a target; all but the first are about one part alone, and fast."""
