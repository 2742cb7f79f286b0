"""Time of `tokaudit lock`, `check --lock`, `hash` and `diff` beside `tokaudit check`.

    python benchmarks/lock.py [--work DIR] [--tokenizer FILE] [--gb 0.5] [--runs 9]

Every ratio comes from one run of this script, in which the commands take turns, with the files in the page
cache. `diff` reads two models; its ratio is to two checks, one after the other. Needs room for ``--gb``; what
it writes is removed at the end.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from bench import HEAD, checkpoint, machine, measure, parser, row, run, scratch, tokaudit, tokenizer_of
from checkpoint import Tables, rows_for


def main() -> None:
    call = parser(__doc__, runs=9, gb=0.5).parse_args()
    with scratch(call) as work:
        tokenizer = tokenizer_of(call, work)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed tokaudit is compiled once
        machine()
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
    print(f"  {'':34}{HEAD}")
    for name, taken in seconds.items():
        row(name, taken, peer)


if __name__ == "__main__":
    main()
