"""Generated inputs: hostile ones leave a report or a refusal, and sound ones are read as the libraries do.

Everything here is derandomised, so that CI says the same each time; ``python tools/fuzz.py`` looks further.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fuzz import headers, tokenizer_files
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
from tokaudit.formats.safetensors import DamagedWeights, read_header
from tokaudit.load import load
from tokaudit.sources import open_source

PROJECT = Path(__file__).resolve().parents[1]
FOUND = Path(__file__).parent / "fuzz" / "found"
COMMANDS: dict[str, str] = json.loads((FOUND / "commands.json").read_text(encoding="utf-8"))
# On one core all of it takes a minute. A tokenizer costs a process; a file of settings next to nothing.
INPUTS = {
    "headers": 20, "index": 20, "tokenizer": 20, "config": 15, "template": 10, "lock": 15, "settings": 40,
    "resize": 10, "anything": 15, "hostile": 15,
}  # fmt: skip


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
    holds(write(files_of(FOUND / name), tmp_path / "model"), COMMANDS[name])


def test_every_target_is_tried() -> None:
    assert set(CHECKS) == set(TARGETS) == {*INPUTS, "parser", "numbering"}


def test_every_input_that_failed_once_is_replayed() -> None:
    assert {path.name for path in FOUND.iterdir() if path.is_dir()} == set(COMMANDS)
    assert set(COMMANDS.values()) <= set(command_names())


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
