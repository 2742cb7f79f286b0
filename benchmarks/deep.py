"""Time and memory of `tokaudit check --deep` on two large tables, against reading them and plain norms.

    python benchmarks/deep.py [--work DIR] [--rows 129024] [--runs 5]

The tables are bf16 of 4096 columns, 2.1 GB together by default, beside a tokenizer of 128,000 tokens. Every
ratio comes from one run of this script, in which the commands take turns, with the files in the page cache:

- ``read`` reads the bytes once, in order, in one thread.
- ``norms`` is a fresh Python that loads each table whole with safetensors and takes
  ``torch.linalg.vector_norm`` of it: it computes nothing else, and holds a table in memory.
- ``check --deep`` finds no added tokens beyond the base vocabulary of the synthetic tokenizer, so that it
  looks up no neighbours. Meanwhile every token is tried (TA409) in the tokenizer's process, which takes a
  core; what the rows cost is the line "rows".

"rows, in one process" is all of TA6xx after Python, torch and the tokenizer have started: the passes, equal
rows, indicators, classes. Needs Linux and 3 GB of disk; what it writes is removed at the end.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from bench import HEAD, Command, machine, measure, parser, peak_memory, row, run, scratch, tokaudit
from check import read_once
from checkpoint import Shape, Tables, build, synthesise_tokenizer

from tokaudit.contract import Contract
from tokaudit.load import load

HIDDEN = 4096
TABLES = ("model.embed_tokens.weight", "lm_head.weight")

NORMS = """
import sys, torch
from safetensors import safe_open
for file in sys.argv[2:]:
    with safe_open(file, "pt") as tensors:
        for name in sys.argv[1].split(","):
            if name in tensors.keys():
                torch.linalg.vector_norm(tensors.get_tensor(name), dim=1)
"""


def norms(model: Path) -> Command:
    """Each table whole in memory, and the norm of each row."""
    files = sorted(map(str, model.glob("*.safetensors")))
    return (sys.executable, "-I", "-c", NORMS, ",".join(TABLES), *files)


def only_torch() -> Command:
    return (sys.executable, "-I", "-c", "import torch")


def read_rows(model: Path, contract: Contract) -> None:
    """All that `--deep` does with the rows of both tables."""
    from tokaudit.sources import open_source
    from tokaudit.values.read import read_values

    read_values(contract, open_source(model))


def whole_norms(model: Path) -> None:
    """As the command `norms`, in this process."""
    import torch
    from safetensors import safe_open

    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in set(TABLES) & set(tensors.keys()):
                torch.linalg.vector_norm(tensors.get_tensor(name), dim=1)


def main() -> None:
    options = parser(__doc__, runs=5)
    options.add_argument("--rows", type=int, default=129_024, help="of each table")
    call = options.parse_args()
    with scratch(call) as work:
        tokenizer = work / "tokenizer.json"
        synthesise_tokenizer(tokenizer)
        made = build(work / "model", tokenizer, Shape(call.rows, 0, HIDDEN), Tables.UNTIED)
        spans = [made.spans[name] for name in TABLES]
        machine()
        print(f"two tables of {call.rows:,} x {HIDDEN}, {sum(span.nbytes for span in spans) / 1e9:.1f} GB")
        commands = {
            "norms of whole tensors (b)": norms(made.path),
            "start of Python and torch": only_torch(),
            "check": tokaudit("check", made.path),
            "check --deep": tokaudit("check", made.path, "--deep"),
        }
        seconds = measure(
            {
                "read once (a)": partial(read_once, spans),
                "norms, in one process": partial(whole_norms, made.path),
                "rows, in one process": partial(read_rows, made.path, load(made.path)),
                **{name: partial(run, command) for name, command in commands.items()},
            },
            call.runs,
        )
        for title, floor in (
            ("against reading (a)", "read once (a)"),
            ("against norms (b)", "norms of whole tensors (b)"),
        ):
            print(f"\n{title:36}{HEAD}{'itself':>17}{'child':>9}")
            for name, times in seconds.items():
                peak = peak_memory(commands[name]) if name in commands and title.endswith("(b)") else None
                row(name, times, seconds[floor], peak)


if __name__ == "__main__":
    main()
