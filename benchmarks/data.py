"""Time of counting token data: against `numpy.max` over the same memory map, and of two processes.

    python benchmarks/data.py [--work DIR] [--ids 400000000] [--runs 5]

The ids are uint16 and follow Zipf's law over the 50,257 tokens of GPT-2's vocabulary, nearly as those of text
do. Every ratio comes from one run of this script, in which the lines take turns, with the file in the page
cache:

- ``numpy.max`` of a fresh `numpy.memmap`, in one thread: it reads every id and keeps one number.
- ``numpy.bincount`` of the same in blocks: the counts alone, as people write it.
- ``counted in this process``: everything that tokaudit counts, in one thread, in this process.
- ``one process``, ``two processes``: the same as the command does it, with planning, starting processes,
  sending the counts and merging them.

What comes before (Python, torch and the tokenizer start in some 3 s) is not in these lines; the last line is
the whole command, once.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
from bench import HEAD, PROJECT, machine, measure, parser, row, run, scratch, tokaudit

from tokaudit.contract.data import DataOptions
from tokaudit.data import read
from tokaudit.data.engines import engine
from tokaudit.data.tally import Measure

VOCABULARY = 50_257
BLOCK = 1 << 20
MEASURE = Measure(rows=VOCABULARY, bins=VOCABULARY, pad=0, ends=(VOCABULARY - 1,))


def write_ids(file: Path, ids: int) -> None:
    """By the inverse of the cumulative distribution; 32 blocks are drawn and repeated."""
    shares = 1 / np.arange(1, VOCABULARY + 1)
    cumulated = np.cumsum(shares / shares.sum())
    drawn = np.searchsorted(cumulated, np.random.default_rng(0).random(min(ids, 32 * BLOCK)))
    block = np.minimum(drawn, VOCABULARY - 1).astype("uint16")
    with file.open("wb") as out:
        for first in range(0, ids, len(block)):
            block[: ids - first].tofile(out)


def largest(file: Path) -> None:
    np.max(np.memmap(file, dtype="uint16", mode="r"))


def bincount(file: Path) -> None:
    ids = np.memmap(file, dtype="uint16", mode="r")
    counts = np.zeros(VOCABULARY, dtype="int64")
    for first in range(0, len(ids), BLOCK):
        counts += np.bincount(ids[first : first + BLOCK], minlength=VOCABULARY)


def here(file: Path) -> None:
    planned, _ = read.plan_files([str(file)], dtype="uint16", required_rows=VOCABULARY)
    read.count_units(planned[str(file)], measure=MEASURE)


def processes(file: Path, jobs: int) -> None:
    options = DataOptions((str(file),), dtype="uint16", jobs=jobs)
    workers = engine(options)
    units = list(read._plans(workers, [str(file)], options, MEASURE, []))
    read.count(workers, units, MEASURE, options, [])


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--ids", type=int, default=400_000_000, help="how many ids of 2 bytes")
    call = options.parse_args()
    with scratch(call) as work:
        file = work / "train.bin"
        write_ids(file, call.ids)
        machine(f"NumPy {np.__version__}")
        print(f"{call.ids:,} ids of uint16, {2 * call.ids / 1e9:.1f} GB\n")
        print(f"  {'':34}{HEAD}")
        seconds = measure(
            {
                "numpy.max": partial(largest, file),
                "numpy.bincount": partial(bincount, file),
                "counted in this process": partial(here, file),
                "one process": partial(processes, file, 1),
                "two processes": partial(processes, file, 2),
            },
            call.runs,
        )
        for name, times in seconds.items():
            row(name, times, seconds["numpy.max"])
        one, two = min(seconds["one process"]), min(seconds["two processes"])
        print(f"\n  two processes against one: {one / two:.2f}x")
        began = time.perf_counter()
        tokenizer = PROJECT / "fixtures" / "tinylm"
        run(tokaudit("data", file, "--tokenizer", tokenizer, "--dtype", "uint16"), codes=(0, 1))
        print(f"  the whole command: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
