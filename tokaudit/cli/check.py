"""`tokaudit check`: audit model directories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

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
    Tokenizer,
)
from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.errors import Unreadable
    from tokaudit.load import Opening


def check(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", hidden=True, help="Model directories.")
    ] = None,
    tokenizer: Tokenizer = None,
    lock: Annotated[
        str | None,
        typer.Option("--lock", metavar="FILE", help="Compare with a lock that `tokaudit lock` made (TA5xx)."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="PATH", help="The model that an adapter is for (TA8xx)."),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            "--optimizer", metavar="PATH", help="Also audit the state of an optimizer, a file or directory."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", metavar="PATH", help="Also audit token data (TA9xx): files, directories, patterns."
        ),
    ] = None,
    dtype: Dtype = None,
    engine: Engine = None,
    no_weights: Annotated[
        bool | None,
        typer.Option("--no-weights/--weights", help="Open no weights file; what needs one is skipped."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select", metavar="RULES", help="Check these rules only: codes, slugs, or TA2 for all TA2xx."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="RULES", help="Leave these rules out."),
    ] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option("--tensor-parallel", metavar="N", help="Devices that the rows are to be divided among."),
    ] = None,
    deep: Annotated[
        bool | None,
        typer.Option("--deep/--no-deep", help="Read every row (TA6xx), try every token (TA409)."),
    ] = None,
    fail_on: FailOn = None,
    strict: Strict = False,
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Print notes in full, and the skipped rules with their reasons."
        ),
    ] = False,
    color: ColorOrSettings = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", help="Audit so many models at once.  [default: all cores]"),
    ] = None,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="Give up one of several models after that.  [default: 900]"
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="FILE", help="Set aside the findings that this file accepts."),
    ] = None,
    write_baseline: Annotated[
        str | None,
        typer.Option("--write-baseline", metavar="FILE", help="Accept today's findings: write that file."),
    ] = None,
    config: Config = None,
    isolated: Isolated = False,
) -> Outcome:
    """Audit model directories.

    PATH is a directory with a model as Hugging Face lays it out, or with one side of it: a tokenizer, or
    weights. A snapshot in the Hugging Face cache will do. A directory without a model stands for all models
    below it, and a pattern in quotes for what it matches. Nothing in them is run, unpickled, rendered or
    changed. Defaults of options stand in tokaudit.toml or [tool.tokaudit] of pyproject.toml.

    \b
    Examples:
      tokaudit check path/to/model
      tokaudit check path/to/weights --tokenizer path/to/tokenizer
      tokaudit check models/* --strict --quiet
      tokaudit check path/to/model --select TA2,TA101 --format json
      tokaudit check models --output sarif=a.sarif --output junit=a.xml
      tokaudit check models --write-baseline baseline.json
      tokaudit check models --baseline baseline.json
      tokaudit check path/to/model --lock tokaudit.lock
      tokaudit check --lock tokaudit.lock --tokenizer path/in/container
      tokaudit check path/to/adapter --base path/to/model
      tokaudit check checkpoint-500 --optimizer checkpoint-500/optimizer.pt
      tokaudit check path/to/model --data "tokens/*.bin"

    \b
    Exit codes:
      0  no finding at or above --fail-on
      1  findings
      2  no verdict: a wrong call, unreadable input, an unwritable report
    """
    from tokaudit.errors import UsageError
    from tokaudit.registry import targets

    if not paths and lock and tokenizer:
        paths, tokenizer, no_weights = [tokenizer], None, True  # a served tokenizer alone
    if not paths:
        raise UsageError("missing argument 'PATH'", hint="`tokaudit check --help` shows how to call it")
    found = targets(paths)
    with ExitStack() as stack:
        # Before the rest is imported: the tokenizer loads meanwhile.
        opening = opened(found.paths[0], tokenizer, stack) if len(found.paths) == 1 else None

        from tokaudit.cli.checking import checked

        options = {
            "select": _names(select),
            "ignore": _names(ignore),
            "fail-on": fail_on,
            "format": format,
            "output": output or None,
            "tensor-parallel": tensor_parallel,
            "no-weights": no_weights,
            "deep": deep,
            "color": color,
            "baseline": baseline,
            "jobs": jobs,
            "timeout": timeout,
            "data": data or None,
            "dtype": dtype,
            "engine": engine,
        }
        return checked(
            found,
            opening,
            options,
            tokenizer=tokenizer,
            lock=lock,
            base=base,
            optimizer=optimizer,
            write_baseline=write_baseline,
            config=config,
            isolated=isolated,
            strict=strict,
            quiet=quiet,
            verbose=verbose,
        )


def _names(values: Sequence[str] | None) -> list[str] | None:
    """``["TA1,TA2", "no-pad-token"]`` -> the three names; None where nothing was given."""
    from tokaudit.choices import separated

    return [name for value in values for name in separated(value)] if values else None


def opened(path: str, tokenizer: str | None, stack: ExitStack) -> Opening | Unreadable:
    from tokaudit.errors import Unreadable
    from tokaudit.load import Opening

    try:
        return stack.enter_context(Opening(path, tokenizer))
    except Unreadable as error:
        return error
