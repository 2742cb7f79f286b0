"""Time and memory of `tokaudit resize` on a checkpoint of several GB, against `cp -r` and transformers.

    python benchmarks/resize.py [--work DIR] [--tokenizer FILE] [--gb 5.6] [--runs 3]

The checkpoint is an untied bf16 Llama with two tables of some 129,000 x 4096, in shards. Three commands take
turns, each with two new tokens, and each until its result is on the disk:

- ``cp -r`` of the directory, and ``sync``.
- ``tokaudit resize``, which syncs what it writes, audits it, and compares every byte with the source.
- transformers: load model and tokenizer, ``add_tokens``, ``resize_token_embeddings``, ``save_pretrained`` of
  both, and ``sync``. It proves nothing.

A first round does not count; the source is in the page cache, what the rounds write is removed between them.
The peak is the largest resident memory of the process or of a child of it, as the kernel reports it.
Needs Linux, torch, transformers, 7 GB of memory and room for twice ``--gb``; all of it is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import (
    HEAD,
    PROJECT,
    Command,
    checkpoint,
    fail,
    machine,
    parser,
    scratch,
    times,
    tokaudit,
    tokenizer_of,
)
from checkpoint import Checkpoint, Tables, rows_for

TOKENS = ("<|tool_call|>", "lighthouse keeper")

TRANSFORMERS = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source, out, *tokens = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
tokenizer = AutoTokenizer.from_pretrained(source)
tokenizer.add_tokens(tokens)
model.resize_token_embeddings(max(len(tokenizer), model.get_input_embeddings().weight.shape[0]))
model.save_pretrained(out)
tokenizer.save_pretrained(out)
"""


@dataclass
class Measured:
    """Seconds of each run until everything was on the disk, and the peak of resident memory in bytes."""

    command: Command
    seconds: list[float] = field(default_factory=list)
    peak: int = 0


def commands(source: Path, out: Path) -> dict[str, Measured]:
    resize = [f"--add-token={token}" for token in TOKENS]
    return {
        "cp -r": Measured(("cp", "-r", str(source), str(out))),
        "tokaudit resize": Measured(tokaudit("resize", source, out, *resize)),
        "transformers": Measured((sys.executable, "-c", TRANSFORMERS, str(source), str(out), *TOKENS)),
    }


def run(measured: Measured, out: Path, *, counts: bool) -> None:
    """Run the command once, from a quiet disk to a quiet disk."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    started = time.perf_counter()
    process = subprocess.Popen(
        measured.command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    os.sync()
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        fail(measured.command, process.returncode)
    measured.peak = max(measured.peak, usage.ru_maxrss * 1024)
    if counts:
        measured.seconds.append(seconds)


def report(made: Checkpoint, found: dict[str, Measured]) -> None:
    floor, ours = found["cp -r"], found["tokaudit resize"]
    print(f"\nuntied, {made.nbytes / 1e9:.1f} GB in {made.shards} shards")
    print(f"  {'':20}{HEAD}{'peak':>16}")
    for name, each in found.items():
        print(f"  {name:20}{times(each.seconds, floor.seconds)}{each.peak / 1e6:10.0f} MB")
    peer = found["transformers"]
    faster = median(peer.seconds) / median(ours.seconds)
    print(f"\nagainst transformers: {faster:.1f}x as fast, {peer.peak / ours.peak:.1f}x as lean")


def main() -> None:
    call = parser(__doc__, runs=3, gb=5.6).parse_args()
    with scratch(call) as work:
        tokenizer = tokenizer_of(call, work)
        machine()
        print(f"{rows_for(tokenizer):,} rows; {call.runs} interleaved runs of each command, warm cache")
        with checkpoint(work, tokenizer, int(call.gb * 1e9), Tables.UNTIED) as made:
            out = work / "out"
            found = commands(made.path, out)
            for turn in range(call.runs + 1):
                for measured in found.values():
                    run(measured, out, counts=turn > 0)
            shutil.rmtree(out)
            report(made, found)


if __name__ == "__main__":
    main()
