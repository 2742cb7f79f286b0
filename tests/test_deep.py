"""What `--deep` does side by side: tokens are tried while rows are read, and passes are prepared ahead."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models import base, build

import tokaudit.values.read
from tokaudit.contract import Loaded, Missing, Options, RowClass, Vocabulary
from tokaudit.load import Opening, load
from tokaudit.tokenizing import TokenizerFailure, TokenizerProcess, start
from tokaudit.values.unused import _first_component

DEEP = Options(deep=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return build(base("llama"), tmp_path / "model")


def unreachable(vocabulary: Vocabulary | Missing) -> tuple[int, ...] | Missing:
    assert isinstance(vocabulary, Vocabulary)
    assert isinstance(vocabulary.loaded_or, Loaded)
    return vocabulary.loaded_or.unreachable


def test_a_trial_that_was_begun_gives_what_asking_gives(model: Path) -> None:
    with (model / "tokenizer.json").open("rb") as file, start(file) as process:
        finish = process.try_tokens()
        begun = finish()
        assert begun == process.unreachable(most_tokens=None)
        assert process.encode(["a"])


def test_a_child_that_is_lost_meanwhile_is_a_failure_of_the_trial(model: Path) -> None:
    with (model / "tokenizer.json").open("rb") as file, start(file) as process:
        assert process.encode(["a"])
        os.kill(process._process.pid, signal.SIGSTOP)  # or it could have answered already
        finish = process.try_tokens()
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(TokenizerFailure):
            finish()
        with pytest.raises(TokenizerFailure):
            process.encode(["a"])


def test_tokens_are_tried_while_rows_are_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    begin, read = TokenizerProcess.try_tokens, tokaudit.values.read.read_values

    def trying(process: TokenizerProcess) -> Any:
        steps.append("begun")
        finish = begin(process)

        def finished() -> tuple[int, ...]:
            steps.append("answered")
            return finish()

        return finished

    def reading(*arguments: Any) -> Any:
        steps.append("read")
        return read(*arguments)

    monkeypatch.setattr(TokenizerProcess, "try_tokens", trying)
    monkeypatch.setattr(tokaudit.values.read, "read_values", reading)
    with Opening(model) as opening:
        contract = opening.contract(DEEP)
    assert steps == ["begun", "read", "answered"]
    # So few tokens are tried without --deep, too.
    assert unreachable(contract.vocabulary_or) == unreachable(load(model).vocabulary_or)


def test_rows_are_read_where_the_trial_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = TokenizerProcess.try_tokens

    def dying(process: TokenizerProcess) -> Any:
        process._process.send_signal(signal.SIGSTOP)  # it shall not have answered by then
        finish = begin(process)
        process._process.kill()
        return finish

    monkeypatch.setattr(TokenizerProcess, "try_tokens", dying)
    contract = load(model, options=DEEP)
    assert isinstance(unreachable(contract.vocabulary_or), Missing)
    assert len(contract.values.tables) == 2


@given(st.lists(st.floats(1e-6, 1e6), max_size=40), st.integers(1, 9))
def test_a_histogram_counts_each_norm_once_and_quantiles_are_norms(norms: list[float], bins: int) -> None:
    from array import array

    from tokaudit.contract import Table, TableKind, TableValues, Tensor

    tensor = Tensor("t", "F32", (len(norms), 1), "f", 0, 4 * len(norms))
    table = Table(TableKind.INPUT, tensor, 0, len(norms), 1, Missing(""))
    values = TableValues(
        table=table,
        first_id=0,
        norms=array("d", norms),
        largest=array("d", norms),
        classes=array("H", [RowClass.IN_USE.value] * len(norms)),
        non_finite={},
        identical=(),
        typical_norm=1.0,
        spread=0.0,
        signs={},
        indicators_or=Missing(""),
        new={},
    )
    expected = [0] * bins
    if norms:
        low, high = min(norms), max(norms)
        width = (high - low) / bins or 1.0
        for norm in norms:
            expected[min(bins - 1, int((norm - low) / width))] += 1
    assert values.histogram(bins) == expected
    in_order = sorted(norms)
    assert values.quantiles([0, 0.5, 1]) == (
        [in_order[0], in_order[round(0.5 * (len(norms) - 1))], in_order[-1]] if norms else []
    )


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_component_is_that_of_a_decomposition(scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(200, 32, generator=generator, dtype=torch.float64) + 0.5
    stored = (rows * scale).to(dtype)
    found = _first_component(stored)
    exact = torch.linalg.svd(stored.double() / scale).Vh[0]
    assert found.dtype is torch.float64
    assert float((found @ exact).abs()) == pytest.approx(1, abs=1e-9)


def test_zero_rows_have_no_component() -> None:
    assert not _first_component(torch.zeros(4, 3)).any()
