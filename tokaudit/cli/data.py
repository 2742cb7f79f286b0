"""`tokaudit data`: audit token data against a tokenizer."""

from __future__ import annotations

from typing import Annotated

import typer

from tokaudit.cli.outcome import Outcome
from tokaudit.reporters import names


def data(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", hidden=True, help="Files, directories or patterns.")
    ],
    tokenizer: Annotated[
        str, typer.Option("--tokenizer", metavar="DIR", help="The tokenizer that the data was made with.")
    ],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="NAME", help="Of raw files, as uint16.  [default: deduced]"),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="What counts: local or ray.  [default: local]"),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", help="Count in so many processes.  [default: all cores]"),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            metavar="LEVEL",
            help="note, warning or error: exit 1 from this level on.  [default: error]",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="The same as --fail-on warning.")] = False,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help=f"One of: {', '.join(names())}.  [default: terminal]"
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", metavar="FORMAT=FILE", help="Also write a report to a file; repeatable."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print notes in full.")] = False,
    color: Annotated[
        str | None,
        typer.Option("--color", metavar="WHEN", help="auto, always or never.  [default: auto]"),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Take settings from this file.")
    ] = None,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Take no settings from files and environment variables.")
    ] = False,
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
      2  no verdict: a wrong call, input that cannot be read, a report that cannot be written
    """
    from contextlib import ExitStack

    from tokaudit.cli.check import opened
    from tokaudit.errors import UsageError
    from tokaudit.registry import Targets

    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if strict and fail_on is not None:
        raise UsageError("--strict and --fail-on exclude each other")
    if isolated and config is not None:
        raise UsageError("--isolated and --config exclude each other")
    with ExitStack() as stack:
        opening = opened(tokenizer, None, stack)

        from tokaudit.cli.checking import checked
        from tokaudit.data.rules import CODES

        options = {
            "select": list(CODES),
            "fail-on": "warning" if strict else fail_on,
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
            quiet=quiet,
            verbose=verbose,
        )
