"""`tokaudit data`: audit token data against a tokenizer."""

from __future__ import annotations

from typing import Annotated

import typer

from tokaudit.cli.options import (
    ColorOrSettings,
    Config,
    Dtype,
    Engine,
    FailOn,
    Format,
    Isolated,
    Output,
    Quiet,
    Strict,
)
from tokaudit.cli.outcome import Outcome


def data(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", hidden=True, help="Files, directories or patterns.")
    ],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", metavar="DIR", help="The tokenizer that the data was made with.")
    ],
    dtype: Dtype = None,
    engine: Engine = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", help="Count in so many processes.  [default: all cores]"),
    ] = None,
    fail_on: FailOn = None,
    strict: Strict = False,
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print notes in full.")] = False,
    color: ColorOrSettings = None,
    config: Config = None,
    isolated: Isolated = False,
) -> Outcome:
    """Audit token data: ids, dtypes and labels against a tokenizer.

    PATH is a file of ids, a directory of such files or one that Hugging Face `datasets` saved, or a pattern
    in quotes. Formats: .npy, .npz, raw .bin, Megatron's .bin and .idx, .parquet, .arrow, .jsonl,
    .safetensors. No checkpoint is needed; `tokaudit check DIR --data PATH` audits one with its data.

    \b
    Examples:
      tokaudit data train.bin --tokenizer path/to/tokenizer
      tokaudit data "tokens/*.npy" --tokenizer path/to/model --dtype uint16
      tokaudit data saved_dataset --tokenizer path/to/model --format json
      tokaudit data /shared/tokens --tokenizer path/to/model --engine ray

    \b
    Exit codes:
      0  no finding at or above --fail-on
      1  findings
      2  no verdict: a wrong call, unreadable input, an unwritable report
    """
    from contextlib import ExitStack

    from tokaudit.cli.check import opened
    from tokaudit.registry import Targets

    with ExitStack() as stack:
        opening = opened(tokenizer, None, stack)

        from tokaudit.cli.checking import checked
        from tokaudit.data.rules import CODES

        options = {
            "select": list(CODES),
            "fail-on": fail_on,
            "format": format,
            "output": output or None,
            "no-weights": True,
            "deep": False,
            "color": color,
            "jobs": jobs,
            "data": paths,
            "dtype": dtype,
            "engine": engine,
        }
        return checked(
            Targets((tokenizer,), (tokenizer,)),
            opening,
            options,
            tokenizer=None,
            lock=None,
            base=None,
            optimizer=None,
            write_baseline=None,
            config=config,
            isolated=isolated,
            strict=strict,
            quiet=quiet,
            verbose=verbose,
        )
