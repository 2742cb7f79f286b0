"""A real training run on fixtures/tinylm: tokens are added, trained and followed; then each mistake is made.

The sound run comes first. Each mistake after it is that run with one thing wrong, and is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import TINYLM, Batch, adamw, batches, load_model, load_tokenizer, sentences
from torch import nn

from tokaudit.contract.ledger import Ledger
from tokaudit.findings import Severity
from tokaudit.report import Report
from tokaudit.resize import NewToken, Request, resize
from tokaudit.training import watch
from tokaudit.training.callbacks.loop import Watch

NEW = ("<|river|>", "<|hill|>")
NEVER = "<|never|>"
STEPS = 12


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Steps this small only wait for each other on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tinylm with three tokens more."""
    out = tmp_path_factory.mktemp("run") / "grown"
    tokens = tuple(NewToken(text, special=True) for text in (*NEW, NEVER))
    resize(TINYLM, out, Request(tokens=tokens))
    return out


@pytest.fixture(scope="module")
def tokenizer(grown: Path) -> Any:
    return load_tokenizer(grown)


@pytest.fixture(scope="module")
def new_ids(tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer.convert_tokens_to_ids(list(NEW))
    return ids


@pytest.fixture(scope="module")
def data(tokenizer: Any) -> list[Batch]:
    """Sentences of many lengths that say river and hill with the new tokens."""
    texts = [f"{NEW[number % 2]} {text}" for number, text in enumerate(sentences())]
    found = list(batches(tokenizer, texts, size=6))
    return [found[number % len(found)] for number in range(STEPS)]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: list[Batch],
    tokenizer: Any,
    new_ids: list[int],
    trains: bool = True,
) -> Watch[Batch]:
    """The run: every batch audited, every step in the ledger."""
    model.train()
    watched = watch(
        model, data, optimizer, tokenizer, new_ids=new_ids, first_batches=STEPS, window=(0, STEPS)
    )
    for batch in watched:
        if trains:
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return watched


def codes(watched: Watch[Batch], at_least: Severity = Severity.WARNING) -> set[str]:
    """The rules that found something worth a warning, in any report of the run."""
    return {
        finding.rule
        for report in watched.reports
        for finding in report.findings
        if finding.severity >= at_least
    }


@pytest.fixture(scope="module")
def sound(grown: Path, tokenizer: Any, data: list[Batch], new_ids: list[int]) -> Watch[Batch]:
    model = load_model(grown)
    return train(model, adamw(model), data, tokenizer, new_ids)


@pytest.fixture(scope="module")
def ledger(sound: Watch[Batch]) -> Ledger:
    assert sound.ledger is not None
    return sound.ledger


# --- the sound run ---------------------------------------------------------------------------------------


def test_nothing_worth_a_warning_is_found_in_a_sound_run(sound: Watch[Batch]) -> None:
    assert codes(sound) == set()
    assert len(sound.reports) == 1 + STEPS + 1
    assert not any(report.unreadable for report in sound.reports)


def test_new_rows_are_visited_and_move(ledger: Ledger, new_ids: list[int]) -> None:
    assert ledger.steps == STEPS
    for id in new_ids:
        row = ledger.row(id)
        assert row.new
        assert row.visits > 0
        assert row.input_gradient > 0
        assert row.output_gradient > 0
        assert row.input_update is not None
        assert row.input_update > 0


def test_the_pad_row_moves_through_the_output_path_alone(ledger: Ledger, tokenizer: Any) -> None:
    pad = ledger.row(tokenizer.pad_token_id)
    assert pad.pad
    assert pad.visits > 0
    assert pad.input_gradient == 0
    assert pad.output_gradient > 0
    assert pad.input_update is not None
    assert pad.input_update > 0


def test_a_new_token_that_is_in_no_text_moves_through_the_output_path_alone(
    ledger: Ledger, tokenizer: Any
) -> None:
    row = ledger.row(tokenizer.convert_tokens_to_ids(NEVER))
    assert (row.visits, row.input_gradient) == (0, 0)
    assert row.output_gradient > 0


def test_the_ledgers_table_shows_new_rows_and_the_pad_row(sound: Watch[Batch], ledger: Ledger) -> None:
    from tokaudit.reporters import View
    from tokaudit.reporters._ledger import as_text

    table = as_text(ledger, View(width=120))
    for text in (*NEW, "<pad>"):
        assert text in table
    notes = {finding.rule: finding.message for finding in sound.reports[-1].findings}
    assert 'the pad row 0 "<pad>" of model.embed_tokens.weight moved' in notes["TA932"]
    assert "through the output path" in notes["TA932"]
    assert "through the input path" not in notes["TA932"]


def test_the_run_learns(grown: Path, tokenizer: Any, data: list[Batch]) -> None:
    """So that what the ledger saw was training."""
    model = load_model(grown)
    optimizer = adamw(model)

    def loss() -> float:
        with torch.no_grad():
            return sum(float(model(**batch).loss) for batch in data[:4])

    before = loss()
    for batch in data:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss() < 0.9 * before


# --- the same run with one mistake -----------------------------------------------------------------------

Change = Callable[[Batch], Batch]


def moved(batch: Batch) -> Batch:
    end = torch.full((len(batch["labels"]), 1), -100)
    return {**batch, "labels": torch.cat([batch["labels"][:, 1:], end], 1)}


def pad_not_masked(batch: Batch) -> Batch:
    return {**batch, "labels": batch["input_ids"].clone()}


def eos_masked(batch: Batch) -> Batch:
    return {**batch, "labels": batch["labels"].masked_fill(batch["input_ids"] == 2, -100)}


def pad_attended(batch: Batch) -> Batch:
    return {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}


@pytest.mark.parametrize(
    ("mistake", "caught"),
    [(moved, "TA925"), (pad_not_masked, "TA924"), (eos_masked, "TA926"), (pad_attended, "TA923")],
)
def test_a_mistake_in_the_batches_is_caught(
    grown: Path, tokenizer: Any, data: list[Batch], new_ids: list[int], mistake: Change, caught: str
) -> None:
    model = load_model(grown)
    watched = train(model, adamw(model), [mistake(batch) for batch in data], tokenizer, new_ids)
    assert caught in codes(watched)
    assert {code for code in codes(watched) if code.startswith("TA92")} == {caught}


def out_of_range(batch: Batch) -> Batch:
    ids = batch["input_ids"].clone()
    ids[0, 3] = 512
    return {**batch, "input_ids": ids}


def float_ids(batch: Batch) -> Batch:
    return {**batch, "input_ids": batch["input_ids"].float()}


@pytest.mark.parametrize(
    ("mistake", "caught", "raised"), [(out_of_range, "TA921", IndexError), (float_ids, "TA922", RuntimeError)]
)
def test_a_batch_that_training_would_fail_on_is_caught_before(
    grown: Path,
    tokenizer: Any,
    data: list[Batch],
    new_ids: list[int],
    mistake: Change,
    caught: str,
    raised: type[Exception],
) -> None:
    model = load_model(grown)
    broken = [mistake(batch) for batch in data[:1]]
    with pytest.raises(raised):
        model(**broken[0])
    watched = train(model, adamw(model), broken, tokenizer, new_ids, trains=False)
    assert codes(watched, Severity.ERROR) == {caught}


def tied_late(model: Any) -> torch.optim.Optimizer:
    """Tied after the optimizer was made, to a parameter that it does not know."""
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    optimizer = adamw(model)
    model.lm_head.weight = model.model.embed_tokens.weight = nn.Parameter(
        model.lm_head.weight.detach().clone()
    )
    return optimizer


def never_tied(model: Any) -> torch.optim.Optimizer:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return adamw(model)


def wrong_padding_index(model: Any) -> torch.optim.Optimizer:
    model.model.embed_tokens.padding_idx = 7
    return adamw(model)


def sparse(model: Any) -> torch.optim.Optimizer:
    model.model.embed_tokens.sparse = True
    return adamw(model)


def untied_and_sparse(model: Any) -> torch.optim.Optimizer:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.model.embed_tokens.sparse = True
    return adamw(model)


def renormalised(model: Any) -> torch.optim.Optimizer:
    model.model.embed_tokens.max_norm = 0.1
    return adamw(model)


@pytest.mark.parametrize(
    ("mistake", "caught"),
    [
        (tied_late, "TA912"),
        (never_tied, "TA911"),
        (wrong_padding_index, "TA913"),
        (sparse, "TA914"),
        (untied_and_sparse, "TA914"),
        (renormalised, "TA915"),
    ],
)
def test_a_mistake_in_the_module_is_caught_before_the_first_step(
    grown: Path,
    tokenizer: Any,
    data: list[Batch],
    new_ids: list[int],
    mistake: Callable[[Any], torch.optim.Optimizer],
    caught: str,
) -> None:
    model = load_model(grown)
    optimizer = mistake(model)
    watched = train(model, optimizer, data[:1], tokenizer, new_ids, trains=False)
    assert caught in found(watched.reports[0])


def found(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity >= Severity.WARNING}


def test_a_new_token_that_no_batch_holds_is_caught(
    grown: Path, tokenizer: Any, data: list[Batch], new_ids: list[int]
) -> None:
    model = load_model(grown)
    never = tokenizer.convert_tokens_to_ids(NEVER)
    watched = train(model, adamw(model), data, tokenizer, [*new_ids, never])
    assert codes(watched) == {"TA931"}
    finding = next(f for f in watched.reports[-1].findings if f.rule == "TA931")
    assert f'{never} "{NEVER}"' in finding.message
    assert watched.metrics["tokaudit/new_ids_not_visited"] == 1


def test_an_old_tokenizer_that_splits_the_new_tokens_is_caught(
    grown: Path, tokenizer: Any, new_ids: list[int]
) -> None:
    old = load_tokenizer()
    texts = [f"{NEW[number % 2]} {text}" for number, text in enumerate(sentences())]
    model = load_model(grown)
    watched = train(model, adamw(model), list(batches(old, texts, size=6))[:2], tokenizer, new_ids)
    assert codes(watched) == {"TA931"}
