"""optimizer.pt goes along: a real optimizer loads it and steps on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import FIXTURES, build
from resizing import both_copies, untied
from safetensors.torch import load_file
from transformers import Adafactor, AutoModelForCausalLM, LlamaForCausalLM

from tokaudit.resize import NewToken, Refused, Request, resize

TINYLM = FIXTURES / "tinylm"
ASKED = Request(tokens=(NewToken("<|tool|>"), NewToken("<|call|>")), rows=600, optimizer=True)

Make = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "AdamW amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "Adafactor": lambda parameters: Adafactor(parameters, lr=1e-3, relative_step=False),
    "Adafactor with momentum": lambda parameters: Adafactor(
        parameters, lr=1e-3, relative_step=False, beta1=0.9
    ),
    "torch's Adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-3),
}


def grouped(model: LlamaForCausalLM) -> list[dict[str, Any]]:
    """Two groups, as transformers' Trainer makes them: with weight decay and without."""
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if "norm" not in name], "weight_decay": 0.1},
        {"params": [p for name, p in named if "norm" in name], "weight_decay": 0.0},
    ]


def train(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, ids: list[int]) -> None:
    batch = torch.tensor([ids])
    model(batch, labels=batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def checkpoint(out: Path, make: Make, *, tied: bool) -> Path:
    """A Trainer checkpoint after two steps."""
    model = AutoModelForCausalLM.from_pretrained(TINYLM, dtype=torch.float32)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 1.5)
    optimizer = make(grouped(model))  # type: ignore[arg-type]
    for _ in range(2):
        train(model, optimizer, list(range(3, 40)))
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((TINYLM / name).read_bytes())
    torch.save(optimizer.state_dict(), out / "optimizer.pt")
    return out


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_steps_on_after_the_resize(name: str, tied: bool, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", OPTIMIZERS[name], tied=tied)
    result = resize(source, tmp_path / "out", ASKED)
    assert "optimizer.pt" not in {left.name for left in result.left_behind}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    optimizer = OPTIMIZERS[name](grouped(model))  # type: ignore[arg-type]
    optimizer.load_state_dict(torch.load(tmp_path / "out" / "optimizer.pt", weights_only=True))
    before = model.get_input_embeddings().weight.detach().clone()
    train(model, optimizer, [3, *(token.id for token in result.plan.added), 4])
    for token in result.plan.added:
        assert not torch.equal(model.get_input_embeddings().weight[token.id], before[token.id])


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_old_moments_stay_and_new_ones_are_zero(tied: bool, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", OPTIMIZERS["AdamW"], tied=tied)
    resize(source, tmp_path / "out", ASKED)
    old = torch.load(source / "optimizer.pt", weights_only=True)
    new = torch.load(tmp_path / "out" / "optimizer.pt", weights_only=True)
    assert new["param_groups"] == old["param_groups"]
    grown = 0
    for number, moments in old["state"].items():
        for name, value in moments.items():
            found = new["state"][number][name]
            if value.shape == (512, 64):
                grown += 1
                assert found.shape == (600, 64)
                kept = [id for id in range(512) if id not in (500, 501)]  # these two were padding
                assert torch.equal(found[kept], value[kept])
                assert not found[[500, 501, *range(512, 600)]].any()
                assert value[:500].any()
            else:
                assert torch.equal(found, value)
    assert grown == (2 if tied else 4)


def test_two_stored_copies_of_a_tied_table_are_one_parameter(tmp_path: Path) -> None:
    source = build(both_copies(), tmp_path / "source")
    moments = {"exp_avg": torch.ones(320, 8), "exp_avg_sq": torch.ones(320, 8), "step": torch.tensor(1.0)}
    torch.save({"state": {0: moments}, "param_groups": []}, source / "optimizer.pt")
    resize(source, tmp_path / "out", Request(rows=330, optimizer=True))
    state = torch.load(tmp_path / "out" / "optimizer.pt", weights_only=True)["state"][0]
    assert state["exp_avg"].sum() == 320 * 8
    assert state["exp_avg"].shape == (330, 8)


class Pickled:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("pwned",)


TABLE = torch.zeros(320, 8)
DEEP_KEY = b"\x80\x02}(" + b")" + b"\x85" * 2_000_000 + b"K\x01u."  # hashing it overflows the stack


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"state": {0: {"exp_avg": TABLE}}}, "1 states of shape [320, 8], for 2 tables"),
        ({"state": {n: {"exp_avg": TABLE} for n in range(3)}}, "3 states"),
        ({"state": {}}, "0 states"),
        ([1, 2], "no optimizer state"),
        ({"state": {n: {"state1": TABLE.byte()} for n in (0, 1)}}, "keeps 'state1'"),
        ({"state": {n: {"exp_avg": TABLE, "master_param": TABLE} for n in (0, 1)}}, "keeps 'master_param'"),
        ({"state": {0: Pickled()}}, "asks for posix.mkdir"),
        (b"no zip file", "cannot be read without running it"),
        (b"\x80\x02N.", "cannot be read as plain tensors"),  # sound, and not what torch writes
        (DEEP_KEY, "reading it ends the process that does"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    content: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = build(untied(), tmp_path / "source")
    if isinstance(content, bytes):
        (source / "optimizer.pt").write_bytes(content)
    else:
        torch.save(content, source / "optimizer.pt")
    with pytest.raises(Refused) as refusal:
        resize(source, tmp_path / "out", Request(rows=330, optimizer=True))
    assert says in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1
    assert "--optimizer" in refusal.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_without_the_option_the_state_is_left_behind_and_it_is_said(tmp_path: Path) -> None:
    source = build(untied(), tmp_path / "source")
    torch.save({}, source / "optimizer.pt")
    (source / "scheduler.pt").write_bytes(b"x")
    result = resize(source, tmp_path / "out", Request(rows=330))
    assert [left.name for left in result.left_behind] == ["optimizer.pt"]
    assert not (tmp_path / "out" / "optimizer.pt").exists()
    assert (tmp_path / "out" / "scheduler.pt").read_bytes() == b"x"


def test_an_optimizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = build(untied(), tmp_path / "source")
    with pytest.raises(Refused, match=r"there is no optimizer\.pt"):
        resize(source, tmp_path / "out", Request(rows=330, optimizer=True))


def test_the_weights_grow_as_without_the_optimizer(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", OPTIMIZERS["AdamW"], tied=False)
    resize(source, tmp_path / "with", ASKED)
    resize(source, tmp_path / "without", Request(tokens=ASKED.tokens, rows=600))
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("with", "without"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
