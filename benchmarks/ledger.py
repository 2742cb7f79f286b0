"""What a gradient ledger costs: training steps with and without it, in turns, in one process for each.

    python benchmarks/ledger.py [--rows 32000] [--hidden 512] [--tokens 2048] [--layers 4] [--runs 7]

The model is a table (tied, or not with --untied), some layers of the shape of a transformer's, and the
logits; its batch is of --tokens positions. A run is one optimizer step (AdamW) of each kind, in an order that
changes. With --passes N a step has N micro-batches. Ratios are of wall time and of processor time, which
other work on the machine disturbs less; with --threads 1 no thread waits for another one meanwhile.

Peak memory is that of a process of its own for each kind, and the difference is told in copies of the table.
Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext

import torch
from bench import parser
from torch import nn

from tokaudit.training import GradientLedger


class Model(nn.Module):
    def __init__(self, rows: int, hidden: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(rows, hidden)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(hidden, hidden // 64, 4 * hidden, dropout=0.0, batch_first=True)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(hidden, rows, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(ids)))


class Loop:
    """One step after the other, with a ledger that is open or without."""

    def __init__(self, options: argparse.Namespace, *, watched: bool) -> None:
        torch.manual_seed(0)
        self.options = options
        self.model = Model(options.rows, options.hidden, options.layers, not options.untied)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.window = GradientLedger(self.model, optimizer=self.optimizer) if watched else nullcontext()

    def step(self) -> None:
        shape = (max(1, self.options.tokens // 256), min(256, self.options.tokens))
        for _ in range(self.options.passes):
            ids = torch.randint(0, self.options.rows, shape)
            logits = self.model(ids)
            nn.functional.cross_entropy(logits.flatten(0, 1), ids.roll(-1, 1).flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def peak(options: argparse.Namespace, *, watched: bool) -> int:
    """The peak memory of two steps, in bytes, in this process; its own start not counted."""
    loop = Loop(options, watched=watched)
    with loop.window:
        for _ in range(2):
            loop.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def times(options: argparse.Namespace) -> list[list[tuple[float, float]]]:
    """Wall and processor seconds of each step, plain and watched; the two loops take turns."""
    loops = [Loop(options, watched=watched) for watched in (False, True)]
    found: list[list[tuple[float, float]]] = [[], []]
    for run in range(options.runs + 1):
        for kind in (0, 1) if run % 2 else (1, 0):
            with loops[kind].window:
                begin, processor = time.perf_counter(), time.process_time()
                loops[kind].step()
                found[kind].append((time.perf_counter() - begin, time.process_time() - processor))
    return [steps[1:] for steps in found]


def in_another_process(*, watched: bool) -> int:
    command = [sys.executable, __file__, *sys.argv[1:], "--peak", "watched" if watched else "plain"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return int(json.loads(result.stdout))


def main() -> None:
    made = parser(__doc__, runs=7, writes=False)
    for name, default in (("rows", 32000), ("hidden", 512), ("tokens", 2048), ("layers", 4)):
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--passes", type=int, default=1, help="backward passes of a step")
    made.add_argument("--threads", type=int, help="default: what torch takes")
    made.add_argument("--untied", action="store_true")
    made.add_argument("--peak", choices=("plain", "watched"), help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.peak:
        print(json.dumps(peak(options, watched=options.peak == "watched")))
        return
    memory = [in_another_process(watched=watched) for watched in (False, True)]
    table = 4 * options.rows * options.hidden
    kind = "untied" if options.untied else "tied"
    passes = f", {options.passes} passes a step" if options.passes > 1 else ""
    print(
        f"{kind} {options.rows} x {options.hidden}, {options.tokens} tokens, {options.layers} layers{passes}"
    )
    print(f"{'':<8} {'best':>9} {'median':>9} {'processor':>9} {'peak':>9}")
    measured = [summary(steps) for steps in times(options)]
    for name, seconds, peak_ in zip(("plain", "ledger"), measured, memory, strict=True):
        print(f"{name:<8}", *(f"{second:>8.2f}s" for second in seconds), f"{peak_ / 2**20:>6.0f}MiB")
    ratios = [watched / plain for plain, watched in zip(*measured, strict=True)]
    more = (memory[1] - memory[0]) / table
    print(f"{'ratio':<8}", *(f"{ratio:>8.3f}x" for ratio in ratios), f"  {more:+.2f} copies of the table")


def summary(steps: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The best and the median wall time, and the best processor time."""
    wall, processor = zip(*steps, strict=True)
    return min(wall), statistics.median(wall), min(processor)


if __name__ == "__main__":
    main()
