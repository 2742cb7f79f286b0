"""What `audit_batch` costs on a CPU, against one training step of fixtures/tinylm on the same batch.

    python benchmarks/batch.py [--runs 5]

Audit and step take turns on batches of several shapes, half padding in every second row; tinylm is far
smaller than any model in use, so that its step is the hardest peer. "for many" is `audit_against`, which
callbacks use: what the model expects is found out once. "bounds alone" is the least that any check has to
do: the smallest and the largest id, `ids.aminmax()`, read once.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from tokaudit.training.batch import audit_against, audit_batch
from tokaudit.training.expectations import expectations

TINYLM = Path(__file__).resolve().parents[1] / "fixtures" / "tinylm"
SHAPES = ((8, 512), (16, 1024))


def sample(sequences: int, length: int) -> dict[str, torch.Tensor]:
    """Ids, mask and labels as a causal model wants them."""
    ids = torch.randint(6, 500, (sequences, length))
    ids[1::2, length // 2 :] = 0
    mask = (ids != 0).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    model = transformers.AutoModelForCausalLM.from_pretrained(TINYLM, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    expected = expectations(model)

    def step(batch: dict[str, torch.Tensor]) -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} threads,"
    )
    print(f"load average {os.getloadavg()[0]:.1f}; best of {runs} runs in turns\n")
    print("| batch | training step | `audit_batch` | for many | bounds alone |")
    print("| --- | --- | --- | --- | --- |")
    for sequences, length in SHAPES:
        batch = sample(sequences, length)
        works: list[Callable[[], object]] = [
            lambda batch=batch: step(batch),  # type: ignore[misc]
            lambda batch=batch: audit_batch(batch, model),  # type: ignore[misc]
            lambda batch=batch: audit_against(expected, batch),  # type: ignore[misc]
            lambda batch=batch: [int(end) for end in batch["input_ids"].aminmax()],  # type: ignore[misc]
        ]
        times = [
            min(column)
            for column in zip(*([timed(work) for work in works] for _ in range(runs)), strict=True)
        ]
        cells = [f"{best * 1e3:.2f} ms, {100 * best / times[0]:.2f} %" for best in times]
        print(f"| {sequences} x {length} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
