"""The audit within a run: hand-written loops, the Trainer of transformers, Lightning."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_training import FIXTURES, Batch, adamw, batches, encoded, load_model, load_tokenizer, sentences
from torch import nn

from tokaudit.errors import RunStopped, UsageError
from tokaudit.training import TokauditCallback, watch

LOGGER = "tokaudit.training"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Steps this small only wait for each other on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer()


@pytest.fixture
def model() -> Any:
    return load_model()


@pytest.fixture(scope="module")
def data(tokenizer: Any) -> list[Batch]:
    return list(batches(tokenizer, sentences()))[:8]


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, loop: Iterator[Any] | Any) -> int:
    """Train on every batch; how many there were."""
    count = 0
    for batch in loop:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        count += 1
    return count


def shifted(batch: Batch) -> Batch:
    end = torch.full((len(batch["labels"]), 1), -100)
    return {**batch, "labels": torch.cat([batch["labels"][:, 1:], end], 1)}


def hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """How many hooks are on the model, its parameters and its optimizer."""
    modules = [
        *(module._forward_pre_hooks for module in model.modules()),
        *(module._forward_hooks for module in model.modules()),
        *(module._backward_hooks for module in model.modules()),
    ]
    tables = [getattr(p, "_post_accumulate_grad_hooks", None) or {} for p in model.parameters()]
    return sum(
        map(
            len,
            [*modules, *tables, optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks],
        )
    )


# --- hand-written loops ----------------------------------------------------------------------------------


def test_a_sound_run_is_watched_and_trains_as_without(model: Any, tokenizer: Any, data: list[Batch]) -> None:
    plain = load_model()
    optimizer, other = adamw(model), adamw(plain)
    watched = watch(model, data, optimizer, tokenizer, first_batches=3, window=(0, 5), stop_on="error")
    assert steps(model, optimizer, watched) == steps(plain, other, data) == 8
    assert [report.target for report in watched.reports] == [
        "LlamaForCausalLM",
        *("batch 0", "batch 1", "batch 2"),
        "LlamaForCausalLM",
    ]
    assert not any(report.findings for report in watched.reports[1:4])
    assert watched.ledger is not None
    assert watched.ledger.steps == 5
    assert watched.metrics["tokaudit/errors"] == 0
    assert watched.metrics["tokaudit/ledger_steps"] == 5
    assert hooks(model, optimizer) == 0
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(left, right)


def test_batches_are_handed_out_as_they_are(model: Any, data: list[Batch]) -> None:
    assert all(left is right for left, right in zip(watch(model, data, first_batches=2), data, strict=True))


def test_a_window_that_begins_later_records_its_steps_only(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    optimizer = adamw(model)
    watched = watch(model, data, optimizer, tokenizer, first_batches=0, window=(2, 5))
    steps(model, optimizer, watched)
    assert watched.ledger is not None
    assert watched.ledger.steps == 3
    seen = torch.cat([batch["input_ids"].flatten() for batch in data[2:5]])
    assert sum(watched.ledger.visits) == len(seen)


def test_steps_are_those_of_the_optimizer_and_not_batches(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    optimizer = adamw(model)
    watched = watch(model, data, optimizer, tokenizer, window=(1, 3))
    for number, batch in enumerate(watched):
        model(**batch).loss.backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert watched.ledger is not None
    assert (watched.ledger.steps, watched.ledger.passes) == (2, 4)


def test_a_ledger_whose_window_is_not_over_ends_with_the_loop(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    optimizer = adamw(model)
    path = tmp_path / "run.ledger"
    watched = watch(model, data, optimizer, tokenizer, window=(0, 500), ledger_path=path)
    for batch in watched:
        model(**batch).loss.backward()
        optimizer.step()
        break
    del batch
    assert hooks(model, optimizer) == 0
    steps(model, optimizer, watched)
    assert watched.ledger is not None
    assert path.exists()


def test_a_ledger_that_cannot_be_saved_does_not_end_the_run(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = adamw(model)
    watched = watch(
        model, data, optimizer, tokenizer, window=(0, 1), ledger_path=tmp_path / "missing" / "run.ledger"
    )
    assert steps(model, optimizer, watched) == 8
    assert "the ledger is not saved" in caplog.text


def test_tables_that_no_ledger_can_follow_are_named_and_trained_all_the_same(
    model: Any, tokenizer: Any, data: list[Batch], caplog: pytest.LogCaptureFixture
) -> None:
    model.get_input_embeddings().weight.requires_grad_(False)
    optimizer = adamw(model)
    watched = watch(model, data, optimizer, tokenizer)
    assert steps(model, optimizer, watched) == 8
    assert watched.ledger is None
    assert "no ledger is kept: none of the tables takes a gradient" in caplog.text


def test_a_window_in_a_later_pass_over_the_batches_is_kept(
    model: Any, tokenizer: Any, data: list[Batch], caplog: pytest.LogCaptureFixture
) -> None:
    optimizer = adamw(model)
    watched = watch(model, data[:4], optimizer, tokenizer, window=(5, 7))
    steps(model, optimizer, watched)
    assert watched.ledger is None
    assert "no ledger was kept: the run ended before step 5" in caplog.text
    steps(model, optimizer, watched)
    assert watched.ledger is not None
    assert watched.ledger.steps == 2
    assert [report.target for report in watched.reports].count("LlamaForCausalLM") == 2


def test_without_a_window_nothing_is_left_on_the_optimizer(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    optimizer = adamw(model)
    before = hooks(model, optimizer)
    steps(model, optimizer, watch(model, data, optimizer, tokenizer, window=(0, 0)))
    assert hooks(model, optimizer) == before


def test_without_an_optimizer_there_is_no_ledger_and_the_log_says_so(
    model: Any, data: list[Batch], caplog: pytest.LogCaptureFixture
) -> None:
    watched = watch(model, data)
    list(watched)
    assert watched.ledger is None
    assert "no ledger is kept: it needs the optimizer, one of torch" in caplog.text


def test_findings_are_logged_once_at_the_level_of_their_severity(
    model: Any, tokenizer: Any, data: list[Batch], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    list(watch(model, map(shifted, data), None, tokenizer, first_batches=4))
    records = [record for record in caplog.records if "TA925" in record.getMessage()]
    assert [record.levelno for record in records] == [logging.ERROR]
    assert records[0].getMessage().startswith("batch 0: TA925 batch-labels-shifted: the labels were moved")


def test_texts_of_tokens_are_logged_inert(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Hostile:
        pad_token_id, eos_token_id = 0, 2

        def __len__(self) -> int:
            return 512

        def get_vocab(self) -> dict[str, int]:
            return {}

        def convert_ids_to_tokens(self, id: int) -> str:
            return "\x1b[31m::error"

        def save_pretrained(self, folder: Path) -> None:
            """Has no files."""

    ids = torch.tensor([[5, 6, 0, 0, 0]])
    list(watch(model, [{"input_ids": ids, "labels": ids}], None, Hostile()))
    assert "TA924" in caplog.text
    assert "\x1b" not in caplog.text
    assert "::error" not in caplog.text


def test_a_run_stops_before_the_batch_that_it_would_fail_on(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    broken = {**data[1], "input_ids": data[1]["input_ids"].clone()}
    broken["input_ids"][1, 2] = 9999
    optimizer = adamw(model)
    watched = watch(model, [data[0], broken, data[2]], optimizer, tokenizer, stop_on="error")
    seen = []
    with pytest.raises(
        RunStopped, match=r"the run was stopped \(stop_on='error'\): batch 1: TA921"
    ) as stopped:
        for batch in watched:
            seen.append(batch)
            model(**batch).loss.backward()
            optimizer.step()
    assert seen == [data[0]]
    assert stopped.value.report is watched.reports[-1]
    assert "tokaudit resize" in stopped.value.hint
    assert hooks(model, optimizer) == 0


def test_a_run_that_is_not_to_stop_goes_on(model: Any, tokenizer: Any, data: list[Batch]) -> None:
    moved = [shifted(batch) for batch in data]
    assert len(list(watch(model, moved, None, tokenizer))) == 8
    unmasked = [{**batch, "labels": batch["input_ids"]} for batch in data]
    assert len(list(watch(model, unmasked, None, tokenizer, stop_on="error"))) == 8
    with pytest.raises(RunStopped, match="TA924"):
        list(watch(model, unmasked, None, tokenizer, stop_on="warning"))


def test_a_module_that_is_broken_stops_the_run_before_its_first_batch(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    optimizer = adamw(model)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    seen: list[Batch] = []
    with pytest.raises(RunStopped, match="LlamaForCausalLM: TA9") as stopped:
        seen.extend(watch(model, data, optimizer, tokenizer, stop_on="error"))
    assert seen == []
    assert any(finding.rule.startswith("TA91") for finding in stopped.value.report.findings)


def test_the_ledgers_findings_stop_a_loop_after_its_window(
    model: Any, tokenizer: Any, data: list[Batch]
) -> None:
    optimizer = adamw(model)
    watched = watch(
        model, data, optimizer, tokenizer, new_ids=[505], first_batches=0, window=(0, 2), stop_on="warning"
    )
    with pytest.raises(RunStopped, match="TA93"):
        steps(model, optimizer, watched)
    assert watched.ledger is not None
    assert watched.ledger.steps == 2
    assert watched.metrics["tokaudit/new_ids_not_visited"] == 1


def test_batches_that_are_no_mappings_are_read_as_one_says(
    model: Any, tokenizer: Any, data: list[Batch], caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(batch["input_ids"], shifted(batch)["labels"]) for batch in data]
    watched = watch(
        model, pairs, None, tokenizer, as_mapping=lambda pair: {"input_ids": pair[0], "labels": pair[1]}
    )
    list(watched)
    assert "TA925" in [finding.rule for report in watched.reports for finding in report.findings]
    list(watch(model, pairs, None, tokenizer))
    assert "batches are not audited: tuple is no mapping; give as_mapping" in caplog.text


@pytest.mark.parametrize("wrong", [{"stop_on": "fatal"}, {"window": (5, 2)}, {"window": (-1, 2)}])
def test_settings_that_make_no_sense_are_wrong_usage(model: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        watch(model, [], **wrong)


# --- the Trainer of transformers -------------------------------------------------------------------------


class Rows(torch.utils.data.Dataset[Batch]):
    """Sequences one by one, as a dataset of the Trainer has them."""

    def __init__(self, batches: list[Batch]) -> None:
        self.rows = [
            {name: tensor[row] for name, tensor in batch.items()} for batch in batches for row in range(2)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Batch:
        return self.rows[index]


def trainer(
    model: Any, tokenizer: Any, data: list[Batch], callback: Any, out: Path, **options: Any
) -> transformers.Trainer:
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        use_cpu=True,
        max_steps=options.pop("max_steps", 4),
        per_device_train_batch_size=1,
        learning_rate=1e-3,
        logging_steps=options.pop("logging_steps", 1),
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **options,
    )
    return transformers.Trainer(
        model,
        arguments,
        train_dataset=Rows(data),
        eval_dataset=Rows(data[:1]),
        processing_class=tokenizer,
        callbacks=[callback],
        data_collator=transformers.default_data_collator,
    )


def test_the_trainer_is_watched_and_its_log_has_the_numbers(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    callback = TokauditCallback(first_batches=2, window=(1, 3), stop_on="error")
    run = trainer(model, tokenizer, data, callback, tmp_path)
    run.train()
    assert [report.target for report in callback.reports] == [
        "LlamaForCausalLM",
        *("batch 0", "batch 1"),
        "LlamaForCausalLM",
    ]
    assert [ref.code for ref in callback.reports[1].checked][:2] == ["TA921", "TA922"]
    assert len(callback.reports[1].checked) == 7
    assert callback.ledger is not None
    assert callback.ledger.steps == 2
    logged = {name: value for line in run.state.log_history for name, value in line.items()}
    assert logged["tokaudit/errors"] == 0
    assert logged["tokaudit/ledger_steps"] == 2
    assert hooks(model, run.optimizer.optimizer) == 0


def test_the_trainer_stops_before_a_batch_that_it_would_fail_on(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    broken = [{**batch, "labels": batch["labels"].masked_fill(batch["labels"] == 2, 4000)} for batch in data]
    callback = TokauditCallback(stop_on="error")
    run = trainer(model, tokenizer, broken, callback, tmp_path)
    with pytest.raises(RunStopped, match="batch 0: TA921"):
        run.train()
    assert run.state.global_step == 0
    assert hooks(model, run.optimizer.optimizer) == 0


def test_the_ledgers_findings_end_the_trainers_run(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    callback = TokauditCallback(first_batches=0, window=(0, 2), new_ids=[505], stop_on="warning")
    run = trainer(model, tokenizer, data, callback, tmp_path)
    run.train()
    assert run.state.global_step == 2
    assert any(finding.rule.startswith("TA93") for finding in callback.reports[-1].findings)


def test_steps_of_the_trainer_are_counted_with_accumulated_gradients(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    callback = TokauditCallback(first_batches=3, window=(1, 3))
    trainer(model, tokenizer, data, callback, tmp_path, gradient_accumulation_steps=2).train()
    assert callback.ledger is not None
    assert (callback.ledger.steps, callback.ledger.passes) == (2, 4)
    assert [report.target for report in callback.reports].count("batch 2") == 1


def test_evaluation_passes_no_batch_to_the_audit(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    callback = TokauditCallback(first_batches=50, window=(0, 0))
    run = trainer(model, tokenizer, data, callback, tmp_path, eval_strategy="steps", eval_steps=1)
    run.train()
    assert len(callback.reports) == 1 + 4


def test_labels_that_the_trainer_keeps_are_skipped_and_said_to_be(
    model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
) -> None:
    callback = TokauditCallback(first_batches=1, window=(0, 0))
    trainer(model, tokenizer, data, callback, tmp_path, label_smoothing_factor=0.1, max_steps=1).train()
    assert "the batch has no labels" in [skip.reason for skip in callback.reports[1].skipped]


def test_a_compiled_model_is_watched(model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path) -> None:
    callback = TokauditCallback(first_batches=2, window=(0, 2), stop_on="error")
    options = {"torch_compile": True, "torch_compile_backend": "eager"}
    trainer(model, tokenizer, data, callback, tmp_path, **options).train()
    assert [report.target for report in callback.reports][1:3] == ["batch 0", "batch 1"]
    assert callback.ledger is not None
    assert callback.ledger.steps == 2


def test_arguments_by_position_are_named(model: Any, tokenizer: Any, data: list[Batch]) -> None:
    callback = TokauditCallback(first_batches=1, window=(0, 0))
    callback.on_train_begin(None, None, None, model=model.train(), processing_class=tokenizer)
    model(data[0]["input_ids"], data[0]["attention_mask"], labels=data[0]["labels"])
    assert len(callback.reports[1].checked) == 7
    callback.on_train_end(None, None, None)


# --- Lightning -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lightning() -> Any:
    return pytest.importorskip("lightning.pytorch", reason="lightning is not installed (extra lightning)")


def wrapped(lightning: Any, model: nn.Module) -> Any:
    class Wrapped(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Batch, index: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adamw(self.model)

    return Wrapped()


def fit(
    lightning: Any, model: nn.Module, data: list[Batch], out: Path, *callbacks: Any, **options: Any
) -> Any:
    run = lightning.Trainer(
        accelerator="cpu",
        max_steps=4,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
        **options,
    )
    loader = torch.utils.data.DataLoader(data, batch_size=None)  # type: ignore[arg-type]
    run.fit(wrapped(lightning, model), loader)
    return run


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
class TestLightning:
    def test_a_fit_is_watched_and_logs_its_numbers(
        self, lightning: Any, model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
    ) -> None:
        from tokaudit.training import TokauditLightningCallback

        callback = TokauditLightningCallback(
            tokenizer=tokenizer, first_batches=2, window=(1, 3), stop_on="error"
        )
        run = fit(lightning, model, data, tmp_path, callback)
        assert [report.target for report in callback.reports] == [
            "LlamaForCausalLM",
            *("batch 0", "batch 1"),
            "LlamaForCausalLM",
        ]
        assert len(callback.reports[1].checked) == 7
        assert callback.ledger is not None
        assert callback.ledger.steps == 2
        assert run.callback_metrics["tokaudit/ledger_steps"] == 2
        assert hooks(model, run.optimizers[0]) == 0

    def test_a_fit_stops_before_a_batch_that_it_would_fail_on(
        self, lightning: Any, model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
    ) -> None:
        from tokaudit.training import TokauditLightningCallback

        broken = {**data[1], "input_ids": data[1]["input_ids"] + 500}
        callback = TokauditLightningCallback("model", tokenizer=tokenizer, stop_on="error")
        with pytest.raises(RunStopped, match="batch 1: TA921"):
            fit(lightning, model, [data[0], broken], tmp_path, callback)

    def test_the_ledgers_findings_end_a_fit(
        self, lightning: Any, model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
    ) -> None:
        from tokaudit.training import TokauditLightningCallback

        callback = TokauditLightningCallback(
            tokenizer=tokenizer, first_batches=0, window=(0, 2), new_ids=[505], stop_on="warning"
        )
        run = fit(lightning, model, data, tmp_path, callback)
        assert run.global_step == 2

    def test_accumulated_gradients_count_as_one_step(
        self, lightning: Any, model: Any, tokenizer: Any, data: list[Batch], tmp_path: Path
    ) -> None:
        from tokaudit.training import TokauditLightningCallback

        callback = TokauditLightningCallback(tokenizer=tokenizer, window=(1, 3))
        fit(lightning, model, data, tmp_path, callback, accumulate_grad_batches=2)
        assert callback.ledger is not None
        assert (callback.ledger.steps, callback.ledger.passes) == (2, 4)


# --- the documentation -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_examples_of_the_documentation_run(
    lightning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (FIXTURES.parent / "docs" / "training.md").read_text(encoding="utf-8")
    section = text[text.index("## Callbacks") :]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    (tmp_path / "fixtures").symlink_to(FIXTURES)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "docs/training.md", "exec"), names)
    assert names["batches"].metrics["tokaudit/errors"] == 0
    assert [report.target for report in names["batches"].reports[1:3]] == ["batch 0", "batch 1"]
    assert all(not report.findings for report in names["batches"].reports[1:3])


def test_a_batch_of_the_fixtures_is_what_the_tests_take_it_for(tokenizer: Any) -> None:
    batch = encoded(tokenizer, ["A river.</s>", "The valley lies between two hills.</s>"])
    assert (batch["labels"] == -100).sum() == (batch["input_ids"] == tokenizer.pad_token_id).sum() > 0
    assert (batch["labels"] == tokenizer.eos_token_id).sum() == 2
