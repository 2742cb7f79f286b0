"""`GradientLedger` with what training loops are made of: each composes, or is refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ledgers import Model, batch, loss_of, norms, paths, recorded, train
from torch import nn
from torch.utils.checkpoint import checkpoint

from tokaudit.contract.ledger import Residual, TableLedger
from tokaudit.errors import UsageError
from tokaudit.findings import Severity
from tokaudit.training import GradientLedger

PROJECT = Path(__file__).resolve().parents[1]


def near(values: object, rel: float = 1e-4) -> object:
    return pytest.approx(values, rel=rel, abs=1e-6)


def adds_up(table: TableLedger) -> bool:
    return isinstance(table.residual_or, Residual) and table.residual_or.rows == 0


def first(ledger: GradientLedger) -> TableLedger:
    table = ledger.facts.tables[0]
    assert adds_up(table), table.residual_or
    return table


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr)


def one_step(model: Model) -> tuple[list[float], list[float]]:
    """Norms by path of the first step of `train`."""
    through_input, through_output = paths(model, batch(0))
    return norms(through_input), norms(through_output)


# --- factors --------------------------------------------------------------------------------------------


def test_clipping_shows_as_the_gradient_that_the_optimizer_gets() -> None:
    model = Model()
    through_input, through_output = one_step(model)
    parameters = list(model.parameters())
    loss_of(model, batch(0)).backward()
    factor = 0.01 / float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    model.zero_grad()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        train(
            model, optimizer, steps=1, before_step=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        )
    table = first(ledger)
    assert list(table.input_gradients) == near([factor * norm for norm in through_input], rel=1e-3)
    assert list(table.output_gradients) == near([factor * norm for norm in through_output], rel=1e-3)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale_first", [False, True])
def test_gradients_are_unscaled_as_the_scaler_does(unscale_first: bool, fused: bool) -> None:
    model = Model()
    through_input, through_output = one_step(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        scaler.scale(loss_of(model, batch(0))).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    table = first(ledger)
    assert list(table.input_gradients) == near(through_input)
    assert list(table.output_gradients) == near(through_output)


def test_a_step_that_the_scaler_skips_is_none() -> None:
    model = Model()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        scaler.scale(loss_of(model, batch(0)) * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch(0))).backward()
        scaler.step(optimizer)
    assert ledger.facts.steps == 1
    assert list(first(ledger).input_gradients) == near(one_step(Model())[0])


# --- types ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tied", [True, False])
def test_autocast_adds_up_within_the_roundings_of_its_type(tied: bool, dtype: torch.dtype) -> None:
    model, plain = Model(tied=tied), recorded(Model(tied=tied))
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(3):
            with torch.autocast("cpu", dtype=dtype):
                loss = loss_of(model, batch(step))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    for table, usual in zip(ledger.facts.tables, plain.facts.tables, strict=True):
        assert adds_up(table)
        largest = max(usual.output_gradients) or max(usual.input_gradients)
        assert list(table.output_gradients) == pytest.approx(list(usual.output_gradients), abs=0.03 * largest)
        assert list(table.input_gradients) == pytest.approx(list(usual.input_gradients), abs=0.03 * largest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_tables_of_other_types_add_up(dtype: torch.dtype) -> None:
    assert adds_up(recorded(Model().to(dtype)).facts.tables[0])


def test_a_table_of_16_bits_adds_up_where_one_token_comes_a_thousand_times() -> None:
    model = Model().to(torch.bfloat16)
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        train(model, optimizer, batches=lambda step: torch.where(batch(step, shape=(20, 60)) < 36, 3, 7))
    assert adds_up(ledger.facts.tables[0])


# --- options of the lookup --------------------------------------------------------------------------------


def test_padding_idx_stops_the_input_path_of_that_row_and_not_the_output_path() -> None:
    ledger = recorded(Model(padding_idx=2), pad_id=2)
    table = first(ledger)
    assert ledger.facts.visits[2] > 0
    assert table.input_gradients[2] == 0
    assert table.output_gradients[2] > 0


def test_scale_grad_by_freq_is_taken_into_account() -> None:
    assert adds_up(recorded(Model(scale_grad_by_freq=True)).facts.tables[0])
    assert adds_up(recorded(Model(scale_grad_by_freq=True, tied=False)).facts.tables[0])


def test_sparse_gradients_are_the_dense_ones() -> None:
    sparse, dense = recorded(Model(sparse=True, tied=False)), recorded(Model(tied=False))
    assert list(first(sparse).input_gradients) == near(list(first(dense).input_gradients))
    assert adds_up(recorded(Model(sparse=True)).facts.tables[0])


def test_max_norm_counts_as_movement() -> None:
    model = Model(max_norm=0.5)
    table = first(recorded(model))
    assert max(table.updates) > 0.5


def test_a_scale_behind_the_lookup_is_in_its_gradient() -> None:
    class Scaled(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 8.0

    model = Model()
    model.embed = Scaled(40, 8)
    model.head.weight = model.embed.weight
    assert adds_up(recorded(model).facts.tables[0])


# --- rows that are held -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at_the_step", [False, True])
def test_rows_whose_gradient_is_set_to_zero_got_none(at_the_step: bool) -> None:
    model = Model()
    optimizer = sgd(model)
    old = torch.arange(40) < 30

    def mask() -> None:
        assert model.embed.weight.grad is not None
        model.embed.weight.grad[old] = 0

    if not at_the_step:
        model.embed.weight.register_hook(lambda gradient: gradient.masked_fill(old.unsqueeze(1), 0))  # type: ignore[no-untyped-call]
    with GradientLedger(model, optimizer=optimizer) as ledger:
        train(model, optimizer, before_step=mask if at_the_step else lambda: None)
    table = first(ledger)
    assert table.masked == 30
    assert not any(table.input_gradients[:30])
    assert not any(table.output_gradients[:30])
    assert not any(table.updates[:30])
    assert all(table.updates[30:])


# --- passes -----------------------------------------------------------------------------------------------


class Checkpointed(Model):
    """Everything, the lookup and the head included, is computed twice."""

    reentrant = False

    def forward(self, ids: torch.Tensor) -> Any:
        forward = super().forward
        if not self.reentrant:
            return checkpoint(forward, ids, use_reentrant=False)
        embedded = self.embed(ids)
        hidden = checkpoint(lambda x: torch.tanh(self.body(x)), embedded, use_reentrant=True)
        return self.head(hidden)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_counts_each_position_once(reentrant: bool) -> None:
    model = Checkpointed()
    model.reentrant = reentrant
    ledger, plain = recorded(model), recorded(Model())
    assert ledger.facts.visits == plain.facts.visits
    assert list(first(ledger).input_gradients) == near(list(first(plain).input_gradients))
    assert list(first(ledger).output_gradients) == near(list(first(plain).output_gradients))


def test_forward_passes_without_gradients_are_no_visits() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        train(model, optimizer)
        with torch.no_grad():
            model(batch(99))
        model(batch(99))  # no backward pass follows
    assert ledger.facts.visits == recorded(Model()).facts.visits


def test_gradients_made_within_the_step_are_those_of_the_step() -> None:
    model = Model()
    optimizer = sgd(model)

    def closure() -> float:
        optimizer.zero_grad()
        loss = loss_of(model, batch(0))
        loss.backward()
        return float(loss.detach())

    with GradientLedger(model, optimizer=optimizer) as ledger:
        optimizer.step(closure)
    assert list(first(ledger).input_gradients) == near(one_step(Model())[0])


def test_a_second_step_on_gradients_that_were_kept_counts_them_again() -> None:
    model = Model()
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        loss_of(model, batch(0)).backward()
        optimizer.step()
        loss_of(model, batch(1)).backward()  # adds to the first
        optimizer.step()
    assert adds_up(ledger.facts.tables[0])


# --- wrappers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_runs_uncompiled_within_the_window(in_place: bool) -> None:
    model = Model()
    called: Any = model
    if in_place:
        model.compile(backend="eager")
    else:
        called = torch.compile(model, backend="eager")
    called(batch(0))  # compiled before the window
    optimizer = sgd(model)
    with GradientLedger(called, optimizer=optimizer) as ledger:
        train(called, optimizer)
    plain = recorded(Model())
    assert ledger.facts.visits == plain.facts.visits
    assert list(first(ledger).output_gradients) == near(list(first(plain).output_gradients))
    called(batch(0))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # between versions of peft and transformers
def test_an_adapter_that_trains_tokens_is_refused() -> None:
    peft = pytest.importorskip("peft")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    tuned = peft.get_peft_model(
        model, peft.LoraConfig(target_modules=["q_proj"], trainable_token_indices=[38, 39])
    )
    with pytest.raises(UsageError, match="by a parametrization or an adapter"):
        GradientLedger(tuned)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_tables_that_an_adapter_saves_whole_are_followed() -> None:
    peft = pytest.importorskip("peft")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=False,
    )
    saved = ["embed_tokens", "lm_head"]
    model = peft.get_peft_model(
        LlamaForCausalLM(config), peft.LoraConfig(target_modules=["q_proj"], modules_to_save=saved)
    )
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(2):
            model(input_ids=batch(step), labels=batch(step)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    names = [table.name for table in ledger.facts.tables]
    assert names == ["model.embed_tokens.weight", "lm_head.weight"]
    for table in ledger.facts.tables:
        assert adds_up(table)
        assert any(table.updates)


def test_a_wrapped_optimizer_is_followed_where_it_steps() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Model()
    model, optimizer = accelerator.prepare(model, sgd(model))
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(4):
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, batch(step)))
                optimizer.step()
                optimizer.zero_grad()
    assert (ledger.facts.steps, ledger.facts.passes) == (2, 4)
    assert adds_up(ledger.facts.tables[0])


SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SHAPED = {"num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PAIR = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
FAMILIES = [
    ("LlamaForCausalLM", SMALL | SHAPED | {"tie_word_embeddings": True}),
    ("LlamaForCausalLM", SMALL | SHAPED | {"tie_word_embeddings": False}),
    ("Gemma3ForCausalLM", SMALL | SHAPED | {"final_logit_softcapping": 30.0}),  # scales what it looks up
    ("GraniteForCausalLM", SMALL | {"logits_scaling": 4.0, "pad_token_id": 0, "tie_word_embeddings": True}),
    ("BertForMaskedLM", SMALL),  # an output bias
    ("BartForConditionalGeneration", PAIR),  # encoder and decoder look up in one table
    ("T5ForConditionalGeneration", T5 | {"decoder_start_token_id": 0}),
    ("OPTForCausalLM", SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 8}),  # narrower than the model
]


@pytest.mark.parametrize(("architecture", "options"), FAMILIES)
def test_the_paths_add_up_in_models_of_transformers(architecture: str, options: dict[str, Any]) -> None:
    import transformers

    kind = getattr(transformers, architecture)
    model = kind(kind.config_class(**options))
    optimizer = sgd(model, lr=0.01)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        for step in range(2):
            ids = batch(step).clamp(min=3)
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    sides = 2 if model.config.is_encoder_decoder else 1
    assert sum(ledger.facts.visits) == 2 * sides * batch(0).numel()
    for table in ledger.facts.tables:
        assert adds_up(table), table.residual_or
        assert any(table.input_gradients) is table.looked_up
        assert any(table.output_gradients) is table.gives_logits


@pytest.mark.parametrize(("start", "severity"), [(0, Severity.NOTE), (2, Severity.WARNING)])
def test_a_pad_token_that_begins_what_a_decoder_reads_is_read_rightly(start: int, severity: Severity) -> None:
    """With another beginning, the pad row is read at padding that is not masked, and that is what it says."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(**T5, decoder_start_token_id=start, pad_token_id=0))
    optimizer = sgd(model)
    ids = batch(0).clamp(min=3)
    if start:
        ids[0, -1] = 0
    with GradientLedger(model, optimizer=optimizer, pad_id=0) as ledger:
        model(input_ids=ids, labels=batch(1).clamp(min=3)).loss.backward()
        optimizer.step()
    (finding,) = [finding for finding in ledger.report().findings if finding.rule == "TA932"]
    assert finding.severity is severity
    assert "through the input path" in finding.message


def test_an_encoder_without_logits_has_an_input_path_alone() -> None:
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(**SMALL))
    optimizer = sgd(model)
    with GradientLedger(model, optimizer=optimizer) as ledger:
        model(input_ids=batch(0), labels=torch.tensor([0, 1, 1])).loss.backward()
        optimizer.step()
    table = first(ledger)
    assert any(table.input_gradients)
    assert not any(table.output_gradients)


SHARDED = """
import sys
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from ledgers import Model
from tokaudit.errors import UsageError
from tokaudit.training import GradientLedger

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = fully_shard(Model(), mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
try:
    GradientLedger(model)
except UsageError as error:
    print(error)
dist.destroy_process_group()
"""


def test_a_sharded_model_is_refused(tmp_path: Path) -> None:
    result = python(SHARDED, str(tmp_path / "meeting"))
    said, _ = result.communicate(timeout=120)
    assert said == "embed.weight is a DTensor: no process holds whole rows of gradients\n"


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=PROJECT / "tests",
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


RANKS = """
import json, sys
import torch, torch.distributed as dist
from ledgers import Model, batch, train
from tokaudit.training import GradientLedger

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
model = Model()
wrapped = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
with GradientLedger(wrapped, optimizer=optimizer) as ledger:
    train(wrapped, optimizer, steps=2, batches=lambda step: batch(10 * rank + step))
table = ledger.facts.tables[0]
print(json.dumps([list(table.input_gradients), list(table.output_gradients), table.residual_or.rows]))
dist.destroy_process_group()
"""


def test_each_process_of_ddp_has_the_gradients_of_its_own_batches(tmp_path: Path) -> None:
    started = [python(RANKS, str(rank), str(tmp_path / "meeting")) for rank in range(2)]
    for rank, process in enumerate(started):
        said, _ = process.communicate(timeout=120)
        through_input, through_output, beyond = json.loads(said.splitlines()[-1])
        both = [paths(Model(), batch(10 * rank + step)) for step in range(2)]
        assert beyond == 0
        assert through_input == near([a + b for a, b in zip(*(norms(one) for one, _ in both), strict=True)])
        assert through_output == near([a + b for a, b in zip(*(norms(two) for _, two in both), strict=True)])
