"""A saved ledger: what is written is read again, what was not written so is refused, and `rows` shows it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledgers import Model, recorded
from models import FIXTURES, base, build
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tokaudit.atomic import CannotWrite
from tokaudit.contract import Missing
from tokaudit.contract.ledger import Ledger, Residual, TableLedger
from tokaudit.contract.listing import Wanted
from tokaudit.errors import Unreadable, UsageError
from tokaudit.reporters import View, _rows
from tokaudit.training.ledger_file import MOST_ROWS, read, save
from tokaudit.values.listing import list_rows

ROWS = 320  # of the base model's tables


def ledger(rows: int = ROWS) -> Ledger:
    def side(name: str, *, given: bool, residual: Residual | Missing) -> TableLedger:
        some, none = array("d", [id / 8 for id in range(rows)]), array("d", bytes(8 * rows))
        return TableLedger(
            name,
            given,
            not given,
            True,
            some if given else none,
            none if given else some,
            array("d", [0.25] * rows),
            none,
            residual_or=residual,
            masked=2,
            optimizer="AdamW",
            weight_decay=0.01,
        )

    return Ledger(
        steps=7,
        passes=14,
        visits=array("q", range(rows)),
        tables=(
            side("model.embed_tokens.weight", given=True, residual=Residual(3, 1e-6, 1e-3, 0)),
            side("lm_head.weight", given=False, residual=Missing("the head is odd")),
        ),
        new_ids=(318, 319),
        pad_id=310,
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.ledger"
    save(ledger(), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(base("llama"), tmp_path_factory.mktemp("rows") / "model"))


# --- the file -------------------------------------------------------------------------------------------


def test_what_is_saved_is_read_again(saved: Path) -> None:
    assert read(saved) == replace(ledger(), file=str(saved))


def test_the_ledger_of_a_run_is_read_again_but_for_the_texts_of_tokens(tmp_path: Path) -> None:
    made = recorded(Model(), pad_id=0, new_ids=[39])
    made.save(tmp_path / "run.ledger")
    assert replace(read(tmp_path / "run.ledger"), file="") == made.facts


def test_the_safetensors_library_has_the_numbers_by_name(saved: Path) -> None:
    tensors = load_file(saved)
    assert tensors["visits"].tolist() == list(range(ROWS))
    assert tensors["0.input_gradients"][8].item() == 1.0
    assert sorted(tensors) == sorted(
        ["visits", *(f"{n}.{name}" for n in (0, 1) for name in ("input_gradients", "output_gradients"))]
        + [f"{n}.{name}" for n in (0, 1) for name in ("updates", "untouched")]
    )
    with safe_open(saved, "pt") as file:
        assert file.metadata()["format"] == "tokaudit-ledger"
        assert json.loads(file.metadata()["ledger"])["steps"] == 7


def test_a_file_takes_the_place_of_the_last_one_and_nothing_is_left_beside_it(saved: Path) -> None:
    save(replace(ledger(), steps=8), saved)
    assert read(saved).steps == 8
    assert list(saved.parent.iterdir()) == [saved]
    with pytest.raises(CannotWrite, match="cannot write"):
        save(ledger(), saved.parent / "missing" / "run.ledger")


Document = dict[str, Any]
Tensors = dict[str, Any]


def rewritten(path: Path, change: Callable[[Document, Tensors, dict[str, str]], object]) -> Path:
    """The file with its document, tensors or metadata changed, written by the safetensors library."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    document = json.loads(metadata["ledger"])
    change(document, tensors, metadata)
    metadata["ledger"] = json.dumps(document)
    out = path.with_name("changed.ledger")
    save_file(tensors, out, metadata)
    return out


def table(document: Document, **changes: object) -> None:
    document["tables"][0].update(changes)


MALFORMED: list[tuple[Callable[[Document, Tensors, dict[str, str]], object], str]] = [
    (lambda d, t, m: m.update(format="pt"), "format: expected tokaudit-ledger"),
    (lambda d, t, m: m.pop("format"), "format: expected tokaudit-ledger, found null"),
    (lambda d, t, m: d.update(steps=-1), "steps: expected a whole number, found -1"),
    (lambda d, t, m: d.update(steps=1.5), "steps: expected a whole number"),
    (lambda d, t, m: d.update(passes=True), "passes: expected a whole number"),
    (lambda d, t, m: d.update(passes=2**64), "passes: expected a whole number"),
    (lambda d, t, m: d.update(pad_id="0"), "pad_id: expected a whole number"),
    (lambda d, t, m: d.update(new_ids={}), "new_ids: expected a list"),
    (lambda d, t, m: d.update(new_ids=[None]), "new_ids: expected a whole number"),
    (lambda d, t, m: d.update(tables=[]), "tables: expected one or two, found 0"),
    (lambda d, t, m: d.update(tables=[{}] * 3), "tables: expected one or two, found 3"),
    (lambda d, t, m: d.update(tables=[1]), "tables: expected an object"),
    (lambda d, t, m: table(d, name=7), "name: expected a text"),
    (lambda d, t, m: table(d, trained=1), "trained: expected true or false"),
    (lambda d, t, m: table(d, weight_decay="0.1"), "weight_decay: expected a number"),
    (lambda d, t, m: table(d, residual=None), "residual: expected an object"),
    (lambda d, t, m: table(d, residual={"id": 3}), "relative: expected a number"),
    (lambda d, t, m: table(d, residual={"missing": 3}), "missing: expected a text"),
    (lambda d, t, m: t.pop("visits"), r"visits: expected I64 of shape \[rows\], found nothing"),
    (lambda d, t, m: t.update(visits=t["visits"].double()), "visits: expected I64"),
    (lambda d, t, m: t.update(visits=t["visits"].reshape(2, -1)), "visits: expected I64"),
    (lambda d, t, m: t.update(visits=-t["visits"]), "visits: expected no negative number"),
    (lambda d, t, m: t.update({"0.updates": -t["0.updates"]}), "0.updates: expected no negative number"),
    (lambda d, t, m: t.update({"1.updates": t["1.updates"][:9].clone()}), "table 1: expected lists of one"),
]


@pytest.mark.parametrize(("change", "words"), MALFORMED)
def test_a_file_that_no_ledger_wrote_is_refused_in_one_line(
    saved: Path, change: Callable[[Document, Tensors, dict[str, str]], object], words: str
) -> None:
    with pytest.raises(Unreadable, match=words) as caught:
        read(rewritten(saved, change))
    assert caught.value.code == "ledger-malformed"
    assert "\n" not in caught.value.message


def test_a_newer_version_is_refused_as_such(saved: Path) -> None:
    with pytest.raises(Unreadable, match="version: expected 1") as caught:
        read(rewritten(saved, lambda d, t, m: m.update(version="2")))
    assert caught.value.code == "ledger-version"


@pytest.mark.parametrize("length", [0, 7, 8, 100, -8, -1])
def test_a_file_that_was_cut_is_refused(saved: Path, length: int) -> None:
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(Unreadable):
        read(saved)


def test_a_file_that_claims_more_rows_than_any_vocabulary_has_is_not_read(tmp_path: Path) -> None:
    """A sparse file of 1 GB that takes no room."""
    size = 8 * (MOST_ROWS + 1)
    document = json.dumps({"steps": 1, "passes": 1, "tables": [{}], "new_ids": [], "pad_id": None})
    header = json.dumps(
        {
            "__metadata__": {"format": "tokaudit-ledger", "version": "1", "ledger": document},
            "visits": {"dtype": "I64", "shape": [MOST_ROWS + 1], "data_offsets": [0, size]},
        }
    ).encode()
    path = tmp_path / "huge.ledger"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    with pytest.raises(Unreadable, match=f"visits: expected at most {MOST_ROWS} rows"):
        read(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        read(tmp_path / "missing")
    with pytest.raises(Unreadable, match="expected a regular file"):
        read(tmp_path)


# --- tokaudit rows --ledger -----------------------------------------------------------------------------


def shown(model: str, wanted: Wanted, format: str, held: Ledger | None) -> str:
    return _rows.RENDER[format](list_rows(model, wanted, ledger=held), View())


def test_json_has_visits_gradients_and_updates_beside_the_norms(model: str) -> None:
    document = json.loads(shown(model, Wanted(ids=(16,)), "json", ledger()))
    assert document["ledger"] == {"steps": 7, "passes": 14}
    given, output = (table["rows"][0]["recorded"] for table in document["tables"])
    assert given == {"visits": 16, "input_gradient": 2.0, "output_gradient": None, "update": 0.25}
    assert output == {"visits": 16, "input_gradient": None, "output_gradient": 2.0, "update": 0.25}


def test_without_a_ledger_the_fields_are_empty(model: str) -> None:
    document = json.loads(shown(model, Wanted(ids=(16,)), "json", None))
    assert document["ledger"] is None
    assert document["tables"][0]["rows"][0]["recorded"] is None
    row, _ = csv.DictReader(io.StringIO(shown(model, Wanted(ids=(16,)), "csv", None)))
    assert row["visits"] == row["update"] == ""


def test_csv_has_visits_gradients_and_updates(model: str) -> None:
    given, output = csv.DictReader(io.StringIO(shown(model, Wanted(ids=(16,)), "csv", ledger())))
    columns = ("visits", "input_gradient", "output_gradient", "update")
    assert [given[name] for name in columns] == ["16", "2.0", "", "0.25"]
    assert [output[name] for name in columns] == ["16", "", "2.0", "0.25"]


def test_the_terminal_has_them_in_columns_of_80_cells(model: str) -> None:
    lines = shown(model, Wanted(ids=(16,)), "terminal", ledger()).splitlines()
    head = next(line.split() for line in lines if line.split()[:1] == ["id"])
    assert head == ["id", "token", "norm", "visits", "input", "output", "update"]
    row = next(line for line in lines if line.strip().startswith("16 "))
    assert row.split()[-3:] == ["16", "2", "0.25"]
    assert max(map(len, lines)) <= 80
    assert any("7 steps" in line for line in lines)


def test_the_ledger_of_a_table_with_other_rows_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"the ledger is of 12 rows, model\.embed_tokens\.weight has 320"):
        list_rows(model, Wanted(), ledger=ledger(12))


def test_the_command_reads_the_file(model: str, saved: Path, tmp_path: Path) -> None:
    def run(file: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tokaudit", "rows", model, "--id", "16", "--ledger", str(file)]
        return subprocess.run(
            command, cwd=FIXTURES.parent, capture_output=True, encoding="utf-8", timeout=120
        )

    result = run(saved)
    assert (result.returncode, result.stderr) == (0, "")
    assert "visits" in result.stdout
    (tmp_path / "no.ledger").write_bytes(b"PK\x03\x04 not one")
    result = run(tmp_path / "no.ledger")
    assert result.returncode == 2
    assert "no.ledger" in result.stderr
    assert "Traceback" not in result.stderr
