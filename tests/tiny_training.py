"""What tests of training runs train: fixtures/tinylm and batches of its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TINYLM = FIXTURES / "tinylm"
IGNORE = -100
Batch = dict[str, torch.Tensor]


def load_model(path: Path = TINYLM) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def load_tokenizer(path: Path = TINYLM) -> Any:
    return transformers.AutoTokenizer.from_pretrained(path)


def stories() -> list[str]:
    """Paragraphs of the text that tinylm was trained on, each with an end."""
    text = (FIXTURES / "tinylm_text.txt").read_text(encoding="utf-8")
    paragraphs = [part for part in text.strip().split("\n\n") if not part.startswith("user: ")]
    return [paragraph.replace("\n", " ") + "</s>" for paragraph in paragraphs]


def encoded(tokenizer: Any, texts: Sequence[str], length: int = 48) -> Batch:
    """The texts, cut and padded to the right, with labels as a causal model wants them."""
    made = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=length)
    ids, mask = made["input_ids"], made["attention_mask"]
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, IGNORE)}


def sentences() -> list[str]:
    """Sentences of the stories, of many lengths, each with an end."""
    found = [sentence for story in stories() for sentence in story.removesuffix("</s>").split(". ")]
    return [sentence.rstrip(".") + ".</s>" for sentence in found if sentence]


def batches(tokenizer: Any, texts: Sequence[str], size: int = 4) -> Iterator[Batch]:
    for start in range(0, len(texts) - size + 1, size):
        yield encoded(tokenizer, texts[start : start + size])


def adamw(model: nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
