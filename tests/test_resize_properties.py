"""What holds for a resize of any model: old rows, order of two resizes, plans, shards, seeds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import Description, build
from resizing import FLOATS, SHAPES, data, in_shards, tables, with_dtype, with_rows

from tokaudit.resize import NewToken, Plan, Request, plan_resize, resize
from tokaudit.resize.manifest import FILE as MANIFEST

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])

METHODS = (
    "mean-of-subwords", "mean", "subword-mean-rescaled", "weighted-subwords", "normal", "zeros",
    "copy=a", "description=etas",
)  # fmt: skip

# Words of two alphabets: no token made of the first is a piece of a text of the second.
first_words = st.lists(st.text("etaoin", min_size=2, max_size=6), min_size=1, max_size=3, unique=True)
second_words = st.lists(st.text("shrdlu", min_size=2, max_size=6), min_size=1, max_size=3, unique=True)


@st.composite
def descriptions(draw: st.DrawFn) -> Description:
    """A model of some shape, dtype and number of rows; the tokenizer needs 320 of them."""
    shape = draw(st.sampled_from(sorted(SHAPES)))
    description = with_dtype(SHAPES[shape](), draw(st.sampled_from(FLOATS)))
    return with_rows(description, draw(st.sampled_from((320, 323, 336))))


@st.composite
def requests(draw: st.DrawFn, words: st.SearchStrategy[list[str]] = first_words) -> Request:
    tokens = tuple(
        NewToken(f"<{word}>", special=draw(st.booleans()), lstrip=draw(st.booleans())) for word in draw(words)
    )
    return Request(
        tokens=tokens,
        rows=draw(st.none() | st.integers(340, 400)),
        multiple=draw(st.none() | st.sampled_from((8, 64))),
        init=draw(st.sampled_from(METHODS)),
        output_init=draw(st.sampled_from(("", *METHODS))),
        seed=draw(st.integers(-3, 3)),
    )


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def at(document: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        document = document[int(step) if isinstance(document, list) else step]
    return document


def assert_as_planned(plan: Plan, source: Path, out: Path) -> None:
    """Every table, field and token that the plan names stands in the result; nothing else moved."""
    before, after = tables(source), tables(out)
    edits = {edit.table.name: edit for edit in plan.tensors}
    written = {row.id for row in plan.rows}
    assert before.keys() == after.keys()
    for name, rows in before.items():
        if name not in edits:
            assert after[name] == rows
            continue
        assert len(after[name]) == edits[name].rows_after == plan.rows_after
        for id, row in enumerate(rows):
            assert id in written or after[name][id] == row
    for edit in plan.files:
        stands = at(data(out / edit.at.file), edit.at.pointer)
        if edit.operation in ("replace", "set"):
            assert stands == edit.after
        elif edit.operation == "append":
            assert isinstance(edit.after, list)
            assert stands[-len(edit.after) :] == edit.after
        else:
            assert isinstance(edit.after, dict)
            assert edit.after.items() <= stands.items()


@few
@given(descriptions(), requests())
def test_old_rows_stay_and_the_result_is_what_the_plan_says(
    description: Description, request: Request
) -> None:
    with folder() as here:
        source = build(description, here / "source")
        plan = plan_resize(source, request)
        result = resize(source, here / "out", request)
        assert result.plan == plan
        assert_as_planned(plan, source, here / "out")
        assert [row.id for row in plan.rows] == list(range(320, 320 + len(request.tokens)))


def everything(directory: Path) -> dict[str, Any]:
    """The result as data, without its manifest."""
    documents = {path.name: data(path) for path in directory.glob("*.json") if path.name != MANIFEST}
    return {**documents, **tables(directory)}


@few
@given(
    descriptions(),
    first_words,
    second_words,
    st.sampled_from(("mean-of-subwords", "weighted-subwords", "zeros", "copy=a")),
)
def test_one_resize_after_another_is_both_at_once(
    description: Description, one: list[str], other: list[str], method: str
) -> None:
    """For methods that read the rows of pieces only: a mean of all rows in use counts new ones as well."""
    a = tuple(NewToken(f"{word}") for word in one)
    b = tuple(NewToken(f"{word}", special=True) for word in other)
    with folder() as here:
        source = build(description, here / "source")
        resize(source, here / "both", Request(tokens=a + b, init=method))
        resize(source, here / "a", Request(tokens=a, init=method))
        resize(here / "a", here / "ab", Request(tokens=b, init=method))
        assert everything(here / "ab") == everything(here / "both")


@few
@given(descriptions(), requests(), st.integers(2, 3))
def test_shards_give_the_same_tables_as_a_single_file(
    description: Description, request: Request, count: int
) -> None:
    with folder() as here:
        resize(build(description, here / "single"), here / "one", request)
        result = resize(build(in_shards(description, count), here / "sharded"), here / "many", request)
        assert tables(here / "many") == tables(here / "one")
        index = data(here / "many" / "model.safetensors.index.json")
        stored = sum(len(row) for rows in tables(here / "many").values() for row in rows)
        assert index["metadata"]["total_size"] == stored
        assert index["weight_map"] == data(here / "sharded" / "model.safetensors.index.json")["weight_map"]
        edited = {edit.table.name for edit in result.plan.tensors}
        touched = {file for name, file in index["weight_map"].items() if name in edited}
        assert set(result.plan.rewritten_shards) == touched


@pytest.mark.parametrize("method", METHODS)
def test_the_same_request_gives_the_same_bytes(method: str, tmp_path: Path) -> None:
    source = build(SHAPES["biased"](), tmp_path / "source")
    request = Request(tokens=(NewToken("<eta>"),), init=method, rows=330)
    for name in ("one", "two"):
        resize(source, tmp_path / name, request)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
