"""Two small models side by side, and what `diff`, `lock`, `rows` and `cost` say of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from hypothesis import strategies as st
from safetensors.torch import load_file

import tokaudit
from fuzz import checkpoints, tokenizer_files
from fuzz.rewriting import rewritten, with_other_ids
from fuzz.texts import is_inert, is_one_line, validator
from tokaudit.contract.listing import Wanted
from tokaudit.cost.run import Request, costs
from tokaudit.diffs.run import Answer, Diff
from tokaudit.errors import FactMissing, TokauditError
from tokaudit.progress import Quiet
from tokaudit.reporters import View, _cost, _diff, _diff_json
from tokaudit.values.listing import list_rows

Files = dict[str, bytes]
OTHER = "second"


@st.composite
def pairs(draw: st.DrawFn) -> Files:
    """A model, and in a folder of it another one: the same, nearly the same, or any."""
    first = draw(checkpoints.small())
    second = dict(first)
    match draw(st.integers(0, 4)):
        case 0:
            second = draw(checkpoints.small())
        case 1:
            document = json.loads(first["tokenizer.json"])
            second |= tokenizer_files.as_file(draw(with_other_ids(document)))
        case 2:
            name = draw(st.sampled_from(["tokenizer.json", "config.json"]))
            second[name] = draw(rewritten(json.loads(first[name])))
        case 3:
            second["model.safetensors"] = draw(checkpoints.small())["model.safetensors"]
    return {**first, **{f"{OTHER}/{name}": data for name, data in second.items()}}


def pair_is_compared(folder: Path) -> None:
    """A model is the same as itself and as its lock, a diff is the same from both sides, rows are torch's."""
    other = folder / OTHER
    itself = _diff_of(folder, folder)
    assert itself is None or itself.answer is not Answer.DIFFERS, itself
    there, back = _diff_of(folder, other), _diff_of(other, folder)
    if there is not None and back is not None:
        assert there.answer == back.answer
        assert len(there.comparison.tables) == len(back.comparison.tables)
    _lock_holds(folder)
    _rows_are_those_of_torch(folder)
    _costs_are_shown(folder, other)


def _diff_of(left: Path, right: Path) -> Diff | None:
    try:
        found = tokaudit.diff(left, right, deep=True)
    except TokauditError as error:
        is_one_line(error)
        return None
    for error in found.unreadable:
        is_one_line(error)
    is_inert(_diff.as_text(found, View()), "a diff")
    text = _diff_json.as_json(found, View())
    is_inert(text, "a diff")
    validator("diff").validate(json.loads(text))
    return found


def _lock_holds(folder: Path) -> None:
    """Written, read and written again it is the same, and the model that it is of has not drifted."""
    try:
        text = tokaudit.lock_text(tokaudit.lock(folder, deep=True))
    except TokauditError as error:
        is_one_line(error)
        return
    is_inert(text, "a lock")
    path = folder / "tokaudit.lock"
    path.write_text(text, encoding="ascii")
    assert tokaudit.lock_text(tokaudit.lock(folder, deep=True)) == text
    report = tokaudit.check(folder, lock=path, deep=True, select=["TA5"])
    assert not report.findings, report.findings
    found = _diff_of(path, folder)
    assert found is None or found.answer is not Answer.DIFFERS, found


def _rows_are_those_of_torch(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    try:
        found = list_rows(folder, Wanted(everything=True))
    except FactMissing:
        return
    except TokauditError as error:
        is_one_line(error)
        return
    for table in found.tables:
        norms = torch.linalg.vector_norm(tensors[table.values.table.name].double(), dim=1).tolist()
        assert [row.id for row in table.rows] == list(range(len(norms)))
        for row, norm in zip(table.rows, norms, strict=True):
            assert math.isclose(row.norm, norm, rel_tol=1e-5, abs_tol=1e-38), (row, norm)


def _costs_are_shown(folder: Path, other: Path) -> None:
    try:
        found = costs(Request(str(folder), tokenizers=(str(other),), add=3), Quiet())
    except FactMissing:
        return
    except TokauditError as error:
        is_one_line(error)
        return
    is_inert(_cost.as_text(found, View()), "costs")
    text = _cost.as_json(found, View())
    is_inert(text, "costs")
    validator("cost").validate(json.loads(text))
