"""What `audit_batch` costs on a CPU, against one training step of fixtures/tinylm on the same batch.

    python benchmarks/batch.py [--runs 5]

Audit and step take turns on batches of several shapes, half padding in every second row; tinylm is far
smaller than any model in use, so that its step is the hardest peer. "for many" is `audit_against`, which
callbacks use: what the model expects is found out once. "bounds alone" is the least that any check has to
do: the smallest and the largest id, `ids.aminmax()`, read once.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
import transformers
from bench import machine, measure, parser

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


def bounds(batch: dict[str, torch.Tensor]) -> list[int]:
    return [int(end) for end in batch["input_ids"].aminmax()]


def main() -> None:
    runs = parser(__doc__, runs=5, writes=False).parse_args().runs
    model = transformers.AutoModelForCausalLM.from_pretrained(TINYLM, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    expected = expectations(model)

    def step(batch: dict[str, torch.Tensor]) -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    machine(f"torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"best of {runs} runs in turns\n")
    print("| batch | training step | `audit_batch` | for many | bounds alone |")
    print("| --- | --- | --- | --- | --- |")
    for sequences, length in SHAPES:
        batch = sample(sequences, length)
        seconds = measure(
            {
                "step": partial(step, batch),
                "audit_batch": partial(audit_batch, batch, model),
                "for many": partial(audit_against, expected, batch),
                "bounds": partial(bounds, batch),
            },
            runs,
        )
        best = [min(each) for each in seconds.values()]
        cells = [f"{each * 1e3:.2f} ms, {100 * each / best[0]:.2f} %" for each in best]
        print(f"| {sequences} x {length} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
