"""Time of `tokaudit lock`, `check --lock`, `hash` and `diff` beside `tokaudit check`.

    python benchmarks/lock.py [--work DIR] [--tokenizer FILE] [--gb 0.5] [--runs 9]

Every ratio comes from one run of this script, in which the commands take turns, with the files in the page
cache. `diff` reads two models; its ratio is to two checks, one after the other. Needs room for ``--gb``; what
it writes is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from functools import partial
from pathlib import Path

from check import REAL_TOKENIZER, Command, checkpoint, measure, row, run
from checkpoint import Tables, rows_for, synthesise_tokenizer


def tokaudit(*arguments: str | Path) -> Command:
    return (sys.executable, "-m", "tokaudit", *map(str, arguments))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a lock costs beside a check.")
    parser.add_argument("--work", type=Path, help="where to build; default: the temporary directory")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json; default: one of 128k tokens")
    parser.add_argument("--gb", type=float, default=0.5, help="size of the weights in 10^9 bytes")
    parser.add_argument("--runs", type=int, default=9, help="how often each command is timed")
    call = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=call.work, prefix="tokaudit-benchmark-") as folder:
        work = Path(folder).resolve()
        tokenizer = call.tokenizer or REAL_TOKENIZER
        if not tokenizer.exists() and call.tokenizer is None:
            tokenizer = work / "tokenizer.json"
            synthesise_tokenizer(tokenizer)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed tokaudit is compiled once
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")
        print(f"{rows_for(tokenizer):,} rows; {call.runs} interleaved runs of each command, warm cache")
        with checkpoint(work, tokenizer, int(call.gb * 1e9), Tables.UNTIED) as made:
            compare(made.path, work / "tokaudit.lock", call.runs)


def compare(model: Path, lock: Path, runs: int) -> None:
    """Print the best and the median time of each command, with its ratio to those of `check`."""
    run(tokaudit("lock", model, "-o", lock))
    commands = {
        "check (the peer)": tokaudit("check", model),
        "check --lock": tokaudit("check", model, "--lock", lock),
        "lock": tokaudit("lock", model, "-o", lock),
        "hash": tokaudit("hash", model),
        "diff of the model and its lock": tokaudit("diff", model, lock),
        "diff of the model and itself": tokaudit("diff", model, model),
    }
    seconds = measure({name: partial(run, command) for name, command in commands.items()}, runs)
    peer, *_ = seconds.values()
    print(f"  {'':34}{'best':>8}{'median':>15}")
    for name, taken in seconds.items():
        row(name, taken, peer)


if __name__ == "__main__":
    main()
