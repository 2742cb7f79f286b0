"""What `resize` must do with the cases that say it: rows, unchanged rows, tie, configuration, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES, build_case
from weights import tables_of

from tokaudit.errors import TokauditError
from tokaudit.resize import NewToken, Request, resize

CASES = [
    pytest.param(case, id=case["id"])
    for path in sorted((FIXTURES / "cases").glob("*.json"))
    if "resize" in (case := json.loads(path.read_text("utf-8")))
]


def request_of(arguments: list[str]) -> tuple[Request, bool]:
    """The request that the case's arguments make, and whether the model's own tokenizer is the target."""
    words = iter(arguments)
    tokens: list[NewToken] = []
    multiple = None
    own = False
    for word in words:
        if word == "--add-token":
            tokens.append(NewToken(next(words)))
        elif word == "--pad-to-multiple-of":
            multiple = int(next(words))
        elif word == "--to-tokenizer":
            own = True
        else:
            raise ValueError(word)
    return Request(tokens=tuple(tokens), multiple=multiple), own


def at_pointer(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        document = document[step]
    return document


@pytest.mark.parametrize("case", CASES)
def test_resize_of_a_case(case: dict[str, Any], tmp_path: Path) -> None:
    wanted = case["resize"]
    paths = build_case(case, tmp_path)
    source = paths[wanted.get("dir", "model")]
    request, own = request_of(wanted["args"])
    out = tmp_path / "out"
    target = source if own else None
    if wanted["refuses"]:
        with pytest.raises(TokauditError) as refusal:
            resize(source, out, request, to_tokenizer=target)
        assert len(str(refusal.value).splitlines()) == 1
        assert not out.exists()
        return
    result = resize(source, out, request, to_tokenizer=target)
    before, after = tables_of(source), tables_of(out)
    edited = {edit.table.name for edit in result.plan.tensors}
    first, last = map(int, wanted["unchanged_rows"].split("-"))
    for edit in result.plan.tensors:
        rows = after[edit.table.name]
        assert len(rows) == wanted["rows_after"]
        assert rows[first : last + 1] == before[edit.table.name][first : last + 1]
        for id in wanted.get("new_rows", ()):
            assert any(rows[id]), f"row {id} of {edit.table.name} was not written"
    assert result.plan.rows_after == wanted["rows_after"]
    assert [row.id for row in result.plan.rows if row.content is not None] == wanted.get("new_rows", [])
    for name in before.keys() - edited:
        assert after[name] == before[name]
    assert result.plan.tied is wanted["tied_after"]
    config = json.loads((out / "config.json").read_text("utf-8"))
    for pointer, value in wanted["config"].items():
        assert at_pointer(config, pointer) == value
