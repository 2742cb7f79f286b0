"""`tokaudit rows`: which rows are shown, and how."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES, base, build, changed

from tokaudit.contract import RowClass
from tokaudit.contract.listing import Wanted
from tokaudit.errors import UsageError
from tokaudit.reporters import View, _rows
from tokaudit.values.listing import list_rows

PROJECT = FIXTURES.parent
ALL = Wanted(everything=True)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokaudit", "rows", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, encoding="utf-8", timeout=120)


def shown(path: str | Path, wanted: Wanted, format: str) -> str:
    """What the command prints, without a start of Python and torch for each."""
    return _rows.RENDER[format](list_rows(path, wanted), View())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The base model with planted rows: 100 zero, 101 not finite, 309 a copy of 308."""
    rows = {"100": "zeros", "101": "nan", "309": {"copy": 308}}
    tables = {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [320, 8], "fill": {"rows": rows}}}
    change = {"safetensors": {"model.safetensors": tables}}
    return str(build(changed(base("llama"), change), tmp_path_factory.mktemp("rows") / "model"))


def document(model: str, wanted: Wanted) -> Any:
    return json.loads(shown(model, wanted, "json"))


def ids(table: Any) -> list[int]:
    return [row["id"] for row in table["rows"]]


def test_json_holds_every_row_of_every_table(model: str) -> None:
    given, logits = document(model, ALL)["tables"]
    assert (given["tensor"], logits["tensor"]) == ("model.embed_tokens.weight", "lm_head.weight")
    assert ids(given) == ids(logits) == list(range(320))
    rows = given["rows"]
    assert rows[100]["class"] == ["in-use", "zero"]
    assert rows[101]["norm"] is None
    assert rows[309]["class"] == ["in-use", "identical"]
    assert rows[312]["class"] == ["reserved"]
    assert "the eos token" in rows[311]["referred_by"]


def test_rows_are_chosen_by_token_and_by_id(model: str) -> None:
    given, _ = document(model, Wanted(tokens=("<|user|>", "a"), ids=(7,)))["tables"]
    assert [row["token"] for row in given["rows"]] == ["<|user|>", "a", "\u0107"]
    best = given["rows"][0]["nearest"][0]
    assert (best["id"], best["token"]) == (308, "<|system|>")
    assert best["cosine"] == pytest.approx(1, abs=1e-5)


def test_a_row_without_a_direction_has_no_nearest_tokens(model: str) -> None:
    given, _ = document(model, Wanted(ids=(100, 101, 102)))["tables"]
    assert [len(row["nearest"]) for row in given["rows"]] == [0, 0, 3]


def test_rows_are_chosen_by_class(model: str) -> None:
    given, logits = document(model, Wanted(kind=RowClass.RESERVED))["tables"]
    assert ids(given) == ids(logits) == list(range(312, 320))
    assert ids(document(model, Wanted(kind=RowClass.NON_FINITE))["tables"][0]) == [101]


def test_the_worst_rows_come_in_order_of_how_odd_they_are(model: str) -> None:
    given, _ = document(model, Wanted(worst=4, everything=True))["tables"]
    assert ids(given) == [101, 100, 308, 309]
    assert given["total"] == 320


def test_the_terminal_shows_the_oddest_rows_as_a_table(model: str) -> None:
    result = run(model)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert any(line.split()[:3] == ["id", "token", "class"] for line in lines)
    first = next(line for line in lines if line.strip().startswith("101"))
    assert "in-use, non-finite" in first
    assert "20 of 320 rows" in result.stdout


def test_csv_has_a_line_for_each_row_and_reads_back(model: str) -> None:
    rows = list(csv.DictReader(io.StringIO(shown(model, ALL, "csv"))))
    assert len(rows) == 640
    assert json.loads(rows[309]["token"]) == "<|user|>"
    assert rows[309]["class"] == "in-use identical"
    assert rows[101]["norm"] == ""
    assert float(rows[100]["norm"]) == 0


def test_token_texts_are_inert_in_every_format(tmp_path: Path) -> None:
    text = '=cmd|"::error::\x1b[31m\u202e##['
    change = {"tokenizer": {"names": {"40": text}}}
    out = build(changed(base("llama"), change), tmp_path / "model")
    for format in _rows.RENDER:
        said = shown(out, Wanted(ids=(40,)), format)
        assert not {"\x1b", "\u202e"} & set(said)
        assert "::" not in said
        assert "##[" not in said
    row, _ = csv.DictReader(io.StringIO(shown(out, Wanted(ids=(40,)), "csv")))
    assert json.loads(row["token"]) == text
    assert not row["token"].startswith("=")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--id", "320"], "no table has a row 320"),
        (["--id", "-1"], "--id must be a number from 0 on, not '-1'"),
        (["--class", "near-zer"], "did you mean near-zero?"),
        (["--class", "zero", "--worst", "3"], "exclude each other"),
        (["--worst", "0"], "--worst must be at least 1"),
        (["--format", "xml"], "--format must be terminal, json or csv"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(model: str, arguments: list[str], words: str) -> None:
    result = run(model, *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_a_token_that_there_is_not_is_a_wrong_call(model: str) -> None:
    with pytest.raises(UsageError, match='no token has the text "nonsense"'):
        list_rows(model, Wanted(tokens=("nonsense",)))


def test_a_model_without_tables_has_no_rows_to_show(tmp_path: Path) -> None:
    description = base("llama")
    del description["safetensors"]
    result = run(str(build(description, tmp_path / "model")))
    assert result.returncode == 2
    assert result.stderr.startswith("tokaudit: error")
