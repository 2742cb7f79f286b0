"""Generated inputs: hostile ones leave a report or a refusal, and sound ones are read as the libraries do.

Everything here is derandomised, so that CI says the same each time; ``python tools/fuzz.py`` looks further.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from fuzz import adapters, archives, data_files, headers, ledger_files, pickles, references, tokenizer_files
from fuzz.properties import (
    CHECKS,
    STRICTER,
    agrees_with_the_library,
    command_names,
    holds,
    ids_are_those_of_the_library,
    numbers_as_the_library,
    resize_is_as_planned,
    write,
)
from fuzz.rewriting import rewritten, with_other_ids
from fuzz.targets import LLAMA, TARGETS, Files, files_of, resizes
from fuzz.values import written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import deserialize
from tokenizers import Tokenizer

import tokaudit
import tokaudit.formats.safetensors
from tokaudit.audit import run
from tokaudit.contract.ledger import Ledger
from tokaudit.data.plan import plan
from tokaudit.errors import Unreadable
from tokaudit.formats.safetensors import DamagedWeights, read_header
from tokaudit.load import load
from tokaudit.pickles import worker
from tokaudit.sources import open_source
from tokaudit.training import ledger_file

PROJECT = Path(__file__).resolve().parents[1]
FOUND = Path(__file__).parent / "fuzz" / "found"
COMMANDS: dict[str, str] = json.loads((FOUND / "commands.json").read_text(encoding="utf-8"))
# On one core all of it takes a minute. A tokenizer costs a process; a file of settings next to nothing.
INPUTS = {
    "headers": 20, "index": 20, "tokenizer": 20, "config": 15, "template": 10, "lock": 15, "settings": 40,
    "resize": 10, "anything": 15, "hostile": 15, "adapter": 10, "data": 8, "ledger": 8, "optimizer": 8,
    "pair": 4,
}  # fmt: skip
# Held against a library each, and inputs of each.
AGAINST = {"arrays": 150, "tables": 25, "pickles": 25, "ledgers": 40, "pairs": 5}


def tried(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes an empty directory each time it is asked."""
    return lambda: tmp_path_factory.mktemp("input") / "model"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_that_failed_once_does_not_fail_again(name: str, tmp_path: Path) -> None:
    what = COMMANDS[name]
    CHECKS.get(what, holds)(write(files_of(FOUND / name), tmp_path / "model"), what)


def test_every_target_is_tried() -> None:
    assert set(CHECKS) == set(TARGETS) == {*INPUTS, *AGAINST, "parser", "numbering"}


def test_every_input_that_failed_once_is_replayed() -> None:
    assert {path.name for path in FOUND.iterdir() if path.is_dir()} == set(COMMANDS)
    assert set(COMMANDS.values()) <= {*command_names(), *AGAINST}


@pytest.mark.parametrize("target", INPUTS)
def test_any_input_leaves_a_report_or_a_refusal(target: str, empty: Any) -> None:
    """No traceback, no hang, inert texts, valid reports in all formats, exit 0, 1 or 2, twice the same."""

    @tried(INPUTS[target])
    @given(TARGETS[target], st.sampled_from(command_names()))
    def check(files: Files, command: str) -> None:
        holds(write(files, empty()), command)

    check()


# Against the libraries ------------------------------------------------------------------------------------


def test_weights_hold_what_the_library_says_they_hold(empty: Any) -> None:
    @tried(1000)
    @given(TARGETS["parser"])
    def check(files: Files) -> None:
        agrees_with_the_library(write(files, empty()))

    check()


ENTRY = b'"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]%b}'
REFUSED_ON_PURPOSE = {
    "a key that stands twice": b"{%b, %b}" % (ENTRY % b"", ENTRY % b""),
    "an integer of more than 40 digits": b"{%b}" % (ENTRY % (b', "x": 1' + b"0" * 40)),
    "an entry as a list": b'{"a": ["U8", [1], [0, 1]]}',
}


@pytest.mark.parametrize("difference", STRICTER)
def test_what_only_tokaudit_refuses_is_refused_for_the_reason_in_the_table(
    difference: str, tmp_path: Path
) -> None:
    data = headers.file_bytes(REFUSED_ON_PURPOSE[difference], b"\7")
    assert [name for name, _ in deserialize(data)] == ["a"]
    (tmp_path / "model.safetensors").write_bytes(data)
    with open_source(tmp_path).open("model.safetensors") as file, pytest.raises(DamagedWeights) as caught:
        read_header(file)
    form, _ = STRICTER[difference]
    assert re.search(form, f"{caught.value.code}: {caught.value.message}")


def test_the_reader_documents_every_difference_to_the_library() -> None:
    said = " ".join((tokaudit.formats.safetensors.__doc__ or "").split())
    for difference, (_, reason) in STRICTER.items():
        assert f"- {difference}: {reason}" in said


def test_added_tokens_are_numbered_as_the_library_numbers_them(empty: Any) -> None:
    @tried(300)
    @given(TARGETS["numbering"])
    def check(files: Files) -> None:
        numbers_as_the_library(write(files, empty()))

    check()


def test_ids_and_the_verdict_on_them_are_those_of_the_library(empty: Any) -> None:
    @tried(40)
    @given(tokenizer_files.sound())
    def check(document: dict[str, Any]) -> None:
        folder = write(tokenizer_files.as_file(document), empty())
        assert Tokenizer.from_file(str(folder / "tokenizer.json"))  # it is sound
        contract = load(folder)
        ids_are_those_of_the_library(folder, contract, run(contract))

    check()


@pytest.mark.parametrize("target", AGAINST)
def test_what_is_read_is_what_the_library_reads(target: str, empty: Any) -> None:
    """Ids as NumPy, json and pyarrow have them, shapes and rows as torch, a ledger as it was written."""

    @tried(AGAINST[target])
    @given(TARGETS[target])
    def check(files: Files) -> None:
        CHECKS[target](write(files, empty()), "")

    check()


def npz(*arrays: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    return archives.repacked([(f"{name}.npy", data) for name, data in arrays], method)


IDS = data_files.npy(np.arange(3))
DATA_REFUSED_ON_PURPOSE = {
    "several columns": ("ids.npz", npz(("x", IDS), ("y", IDS))),
    "a header in another spelling": ("ids.npy", IDS.replace(b"'", b'"')),
    "another compression": ("ids.npz", npz(("ids", IDS), method=zipfile.ZIP_BZIP2)),
    "an array that ends before its member": ("ids.npz", npz(("ids", IDS + b"\0"))),
}


@pytest.mark.parametrize("difference", references.STRICTER_DATA)
def test_token_data_that_only_tokaudit_refuses_is_refused_for_the_reason_in_the_table(
    difference: str, tmp_path: Path
) -> None:
    name, data = DATA_REFUSED_ON_PURPOSE[difference]
    (tmp_path / name).write_bytes(data)
    assert references.LIBRARIES[Path(name).suffix](tmp_path / name, "")
    with pytest.raises(Unreadable) as caught:
        for unit in plan(str(tmp_path / name), None, 3, 1):
            list(unit.blocks())
    form, reason = references.STRICTER_DATA[difference]
    assert re.search(form, f"{Path(name).suffix} {caught.value.code}: {caught.value.message}")
    page = " ".join((PROJECT / "docs" / "data.md").read_text(encoding="utf-8").split())
    assert f"- {difference}: {reason}" in page


@pytest.mark.parametrize("act", [lambda: importlib.import_module("this"), lambda: open(os.devnull)])  # noqa: SIM115
def test_a_pickle_that_got_anything_done_would_be_noticed(act: Callable[[], object]) -> None:
    def watched() -> None:
        with references.Watched():
            act()

    with pytest.raises(AssertionError, match="imported or run"):
        references.apart(watched)


STATE = {"state": {0: {"exp_avg": torch.zeros(3, 2)}}, "param_groups": []}
SAVED = archives.members(pickles.saved(STATE))
STATES_REFUSED_ON_PURPOSE = {
    "an archive that Python cannot open": archives.repacked([*SAVED.items()], comment=b"PK\5\6"),
    "a compressed pickle": archives.repacked([*SAVED.items()], zipfile.ZIP_DEFLATED),
    "several pickles in one archive": archives.repacked([*SAVED.items(), *SAVED.items()]),
}


@pytest.mark.parametrize("difference", references.STRICTER_STATES)
def test_a_state_that_only_tokaudit_refuses_is_refused_for_the_reason_in_the_table(
    difference: str, tmp_path: Path
) -> None:
    path = tmp_path / "optimizer.pt"
    path.write_bytes(STATES_REFUSED_ON_PURPOSE[difference])
    assert torch.load(path, weights_only=True)["state"].keys() == {0}
    with path.open("rb") as file, pytest.raises(ValueError) as caught:  # noqa: PT011
        worker.shapes(file.fileno())
    form, reason = references.STRICTER_STATES[difference]
    assert re.search(form, str(caught.value))
    assert f"- {difference}: {reason}" in " ".join((worker.__doc__ or "").split())


def test_what_the_libraries_write_is_read(tmp_path: Path) -> None:
    """The tables of what is stricter hide nothing that a library writes."""

    @tried(60)
    @given(data_files.arrays(), st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))
    def check(array: Any, version: tuple[int, int] | None) -> None:
        data = data_files.npy(array, version)
        for name, written_data in (("ids.npy", data), ("ids.npz", npz(("ids", data), ("x", IDS)))):
            (tmp_path / name).write_bytes(written_data)
            units = plan(str(tmp_path / name), None, 3, 1)
            references.assert_counts(references.counted(units), array.ravel(order="K").tolist())

    check()


def test_a_ledger_that_was_saved_is_the_same_when_it_is_read(tmp_path: Path) -> None:
    @tried(40)
    @given(ledger_files.ledgers())
    def check(ledger: Ledger) -> None:
        (tmp_path / "run.ledger").write_bytes(ledger_files.saved(ledger))
        assert references.plain(ledger_file.read(tmp_path / "run.ledger")) == references.plain(ledger)

    check()


def test_an_adapter_is_at_odds_with_its_base_exactly_where_its_rows_or_ids_are(empty: Any) -> None:
    seen: set[frozenset[str]] = set()

    @tried(60)
    @given(adapters.of_other_rows())
    def check(case: tuple[Files, set[str]]) -> None:
        files, expected = case
        report = tokaudit.check(write(files, empty()), select=["TA801", "TA804"])
        assert {finding.rule for finding in report.findings} == expected
        assert len(report.checked) == 2, report.skipped
        seen.add(frozenset(expected))

    check()
    assert len(seen) == 4, seen


# Locks ----------------------------------------------------------------------------------------------------


def lock_of(files: Files, folder: Path) -> str:
    return tokaudit.lock_text(tokaudit.lock(write(files, folder)))


def test_a_model_written_otherwise_has_the_same_lock(empty: Any) -> None:
    @tried(20)
    @given(st.data(), tokenizer_files.sound())
    def check(data: st.DataObject, document: dict[str, Any]) -> None:
        others = {name: json.loads(LLAMA[name]) for name in ("config.json", "generation_config.json")}
        first = {"tokenizer.json": document, **others}
        second = {
            "tokenizer.json": data.draw(rewritten(document)),  # in which the library takes no byte order mark
            **{name: data.draw(rewritten(value, mark=b"\xef\xbb\xbf")) for name, value in others.items()},
        }
        assert lock_of({name: written(value) for name, value in first.items()}, empty()) == lock_of(
            second, empty()
        )

    check()


def test_a_lock_drifts_exactly_where_the_library_gives_other_ids(empty: Any) -> None:
    seen = set()

    @tried(40)
    @given(st.data(), tokenizer_files.sound())
    def check(data: st.DataObject, document: dict[str, Any]) -> None:
        changed = data.draw(with_other_ids(document))
        one, other = (
            Tokenizer.from_str(json.dumps(tokenizer)).get_vocab() for tokenizer in (document, changed)
        )
        folder = empty()
        lock = folder.parent / "tokaudit.lock"
        lock.write_text(lock_of(tokenizer_files.as_file(document), folder), encoding="ascii")
        write(tokenizer_files.as_file(changed), folder)
        report = tokaudit.check(folder, lock=lock, select=["TA501"])
        assert not report.skipped
        assert bool(report.findings) == (one != other), (one, other)
        seen.add(one != other)

    check()
    assert seen == {False, True}


# Resize ---------------------------------------------------------------------------------------------------


def test_a_resize_is_refused_or_is_what_its_plan_says(empty: Any) -> None:
    results = []

    @tried(50)
    @given(resizes())
    def check(files: Files) -> None:
        folder = write(files, empty())
        out = folder.parent / "beside" / "out"
        out.parent.mkdir()
        resize_is_as_planned(folder, out)
        results.append(out.exists())

    check()
    assert sum(results) > 10, "most are refused"
    assert not all(results)


# The tool -------------------------------------------------------------------------------------------------


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_tool", PROJECT / "tools" / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_tool_keeps_one_small_input_for_each_place_of_failure(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_on_pairs(folder: Path, command: str) -> None:
        for path in folder.iterdir():
            if path.read_bytes().count(b"=") > 1:
                raise ValueError("planted")

    monkeypatch.setitem(tool.CHECKS, "settings", fails_on_pairs)
    fuzzer = tool.Fuzzer(tmp_path / "found", seed=1)
    (tmp_path / "found").mkdir()
    fuzzer.turn("settings", 300)
    tried_until_then = fuzzer.tried["settings"]
    fuzzer.turn("settings", 300)
    assert fuzzer.tried["settings"] - tried_until_then == 300, "what is known does not end a turn"
    assert len(fuzzer.known) == 1
    (kept,) = (path for path in (tmp_path / "found").iterdir() if path.is_dir())
    data = (kept / "tokaudit.toml").read_bytes()
    assert data.count(b"=") == 2
    assert len(data) < 60
    assert "planted" in kept.with_suffix(".txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out.startswith(f"FOUND {kept}")
