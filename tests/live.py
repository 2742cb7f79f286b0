"""Small models in memory, with their tables tied in every way or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

ROWS, HIDDEN = 320, 16


class Plain(nn.Module):
    """An input table, something between, and an output; untied."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ROWS, HIDDEN, **options)
        self.mixer = nn.Linear(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, ROWS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.mixer(self.embedding(ids)))


def plain(**options: Any) -> Plain:
    torch.manual_seed(0)
    return Plain(**options)


def tied(**options: Any) -> Plain:
    model = plain(**options)
    model.head.weight = model.embedding.weight
    return model


class ReadsAnother(nn.Module):
    """A parametrization that gives another module's table, whatever it is given."""

    def __init__(self, source: nn.Embedding, factor: float = 1.0) -> None:
        super().__init__()
        self.source = [source]  # in a list: not a module of its own
        self.factor = factor

    def forward(self, own: torch.Tensor) -> torch.Tensor:
        return self.source[0].weight * self.factor


def parametrized() -> Plain:
    model = plain()
    nn.utils.parametrize.register_parametrization(
        model.head, "weight", ReadsAnother(model.embedding), unsafe=True
    )
    return model


def viewed(rows: int = ROWS) -> Plain:
    """The output reads a view of the input table: all of it, or its first rows."""
    model = plain()
    del model.head.weight
    model.head.weight = model.embedding.weight[:rows]
    return model


def llama(*, tie: bool = True, **fields: Any) -> LlamaForCausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    small = {
        "vocab_size": ROWS,
        "hidden_size": HIDDEN,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return LlamaForCausalLM(LlamaConfig(**{**small, "tie_word_embeddings": tie, **fields}))
