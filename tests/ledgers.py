"""Small models and training steps for the tests of the gradient ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tokaudit.training import GradientLedger


class Model(nn.Module):
    """Embedding, a body, and a head; tied or not. The lookup's options are those of nn.Embedding."""

    def __init__(
        self, rows: int = 40, hidden: int = 8, *, tied: bool = True, bias: bool = False, **lookup: Any
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rows * 1000 + hidden)
        self.embed = nn.Embedding(rows, hidden, **lookup)
        self.body = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, rows, bias=bias)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(self.embed(ids))))


def batch(step: int, *, rows: int = 40, shape: tuple[int, int] = (3, 6)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, rows, shape, generator=generator)


def loss_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(ids)[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 3,
    passes: int = 1,
    before_step: Callable[[], object] = lambda: None,
    batches: Callable[[int], torch.Tensor] = batch,
) -> None:
    """A plain loop: ``passes`` micro-batches for each step."""
    for step in range(steps):
        for micro in range(passes):
            loss_of(model, batches(step * passes + micro)).backward()
        before_step()
        optimizer.step()
        optimizer.zero_grad()


def paths(model: Model, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients [rows, hidden] of the input and of the output path of a tied model, by autograd itself.

    The same forward with two copies of the table, so that autograd keeps the paths apart.
    """
    table = model.embed.weight.detach()
    given, output = table.clone().requires_grad_(), table.clone().requires_grad_()
    hidden = torch.tanh(model.body(nn.functional.embedding(ids, given, model.embed.padding_idx)))
    logits = nn.functional.linear(hidden, output, model.head.bias)
    loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    through_input, through_output = torch.autograd.grad(loss, (given, output))
    return through_input, through_output


def norms(table: torch.Tensor) -> list[float]:
    return [float(norm) for norm in torch.linalg.vector_norm(table.double(), dim=1)]


def recorded(model: nn.Module, **options: Any) -> GradientLedger:
    """A ledger of three steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with GradientLedger(model, optimizer=optimizer, **options) as ledger:
        train(model, optimizer)
    return ledger
