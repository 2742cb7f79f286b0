"""Time and memory of `tokaudit check` on checkpoints of several GB, against what it cannot avoid.

    python benchmarks/check.py [--work DIR] [--tokenizer FILE] [--gb 4.5] [--runs 7]

The floor of a check is one fresh Python that loads the tokenizer; the floor of comparing two tied tables is
reading both. Every ratio comes from one run of this script, in which the commands take turns, with the files
in the page cache. `check` works in two processes at once: where other work fills the cores, its ratio grows.
Needs Linux, and room for twice ``--gb``; what it writes is removed at the end.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from bench import (
    HEAD,
    Command,
    checkpoint,
    machine,
    measure,
    parser,
    peak_memory,
    row,
    run,
    scratch,
    tokaudit,
    tokenizer_of,
)
from checkpoint import Checkpoint, Span, Tables, rows_for

READ_BYTES = 1 << 20


def load_tokenizer(model: Path) -> Command:
    load = "import sys; from tokenizers import Tokenizer; Tokenizer.from_file(sys.argv[1])"
    return (sys.executable, "-I", "-c", load, str(model / "tokenizer.json"))


def read_once(spans: list[Span]) -> None:
    """Read the tables' bytes in order, into one small buffer."""
    buffer = bytearray(READ_BYTES)
    for span in spans:
        descriptor = os.open(span.file, os.O_RDONLY)
        try:
            done = 0
            while done < span.nbytes:
                window = memoryview(buffer)[: span.nbytes - done]
                done += os.preadv(descriptor, [window], span.start + done)
        finally:
            os.close(descriptor)


def heading(made: Checkpoint, kind: str) -> None:
    print(f"\n{kind}: {made.nbytes / 1e9:.1f} GB in {made.shards} shards")
    print(f"  {'':34}{HEAD}{'itself':>17}{'child':>9}")


def against_tokenizer(made: Checkpoint, runs: int) -> None:
    """Print what `check` takes beside a fresh Python that only loads the tokenizer."""
    commands = {
        "load the tokenizer (the floor)": load_tokenizer(made.path),
        "check --no-weights": tokaudit("check", made.path, "--no-weights"),
        "check": tokaudit("check", made.path),
    }
    seconds = measure({name: partial(run, command) for name, command in commands.items()}, runs)
    heading(made, "untied")
    floor, *_ = seconds.values()
    for name, command in commands.items():
        row(name, seconds[name], floor, peak_memory(command))


def against_reading(made: Checkpoint, runs: int) -> None:
    """Print what `check` takes beside one reading of both stored tables."""
    tables = [made.spans["model.embed_tokens.weight"], made.spans["lm_head.weight"]]
    reading = f"read both tables ({sum(span.nbytes for span in tables) / 1e9:.1f} GB) once"
    commands = {
        "check --no-weights": tokaudit("check", made.path, "--no-weights"),
        "check": tokaudit("check", made.path),
    }
    actions = {name: partial(run, command) for name, command in commands.items()}
    seconds = measure({reading: partial(read_once, tables), **actions}, runs)
    heading(made, "tied, both tables stored")
    row(reading, seconds[reading], seconds[reading])
    for name, command in commands.items():
        row(name, seconds[name], seconds[reading], peak_memory(command))


def main() -> None:
    call = parser(__doc__, runs=7, gb=4.5).parse_args()
    nbytes = int(call.gb * 1e9)
    with scratch(call) as work:
        tokenizer = tokenizer_of(call, work)
        machine()
        print(f"{rows_for(tokenizer):,} rows; {call.runs} interleaved runs of each command, warm cache")
        for size in (nbytes, 2 * nbytes):
            with checkpoint(work, tokenizer, size, Tables.UNTIED) as made:
                against_tokenizer(made, call.runs)
        with checkpoint(work, tokenizer, nbytes, Tables.BOTH) as made:
            against_reading(made, call.runs)


if __name__ == "__main__":
    main()
