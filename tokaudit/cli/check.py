"""`tokaudit check`: audit model directories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.outcome import Outcome
from tokaudit.reporters import names

if TYPE_CHECKING:
    from tokaudit.contract import Lock
    from tokaudit.errors import Unreadable, UsageError
    from tokaudit.load import Opening
    from tokaudit.report import Report


def check(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", hidden=True, help="Model directories.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="PATH", help="Take the tokenizer from this directory."),
    ] = None,
    lock: Annotated[
        str | None,
        typer.Option("--lock", metavar="FILE", help="Compare with a lock that `tokaudit lock` made (TA5xx)."),
    ] = None,
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
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"One of: {', '.join(names())}.  [default: terminal]",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", "-o", metavar="FORMAT=FILE", help="Also write a report to a file; repeatable."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Print notes in full, and the skipped rules with their reasons."
        ),
    ] = False,
    color: Annotated[
        str | None,
        typer.Option("--color", metavar="WHEN", help="auto, always or never.  [default: auto]"),
    ] = None,
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
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Take settings from this file."),
    ] = None,
    isolated: Annotated[
        bool,
        typer.Option("--isolated", help="Take no settings from files and environment variables."),
    ] = False,
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
      tokaudit check models --output sarif=tokaudit.sarif --output junit=tokaudit.xml
      tokaudit check models --write-baseline baseline.json
      tokaudit check models --baseline baseline.json
      tokaudit check path/to/model --lock tokaudit.lock
      tokaudit check --lock tokaudit.lock --tokenizer path/in/container

    \b
    Exit codes:
      0  no finding at or above --fail-on
      1  findings
      2  no verdict: a wrong call, input that cannot be read, a report that cannot be written
    """
    from tokaudit.registry import targets

    if not paths and lock and tokenizer:
        paths, tokenizer, no_weights = [tokenizer], None, True  # a served tokenizer alone
    if not paths:
        raise _missing_path()
    found = targets(paths)
    beside = [tokenizer] if tokenizer is not None else []
    with ExitStack() as stack:
        opening = None
        if len(found.paths) == 1:  # before the imports: the tokenizer loads meanwhile
            opening = _opened(found.paths[0], tokenizer, stack)

        from dataclasses import replace

        from tokaudit.audit import select_rules
        from tokaudit.cli import outputs, streams
        from tokaudit.cli.auditing import Audit
        from tokaudit.cli.checkout import Checkout
        from tokaudit.cli.setting_aside import settled
        from tokaudit.cli.settings import settings
        from tokaudit.contract import Options
        from tokaudit.findings import Severity
        from tokaudit.report import Verdict
        from tokaudit.reporters import reporter

        _exclude("--quiet", quiet, "--verbose", verbose)
        _exclude("--strict", strict, "--fail-on", fail_on)
        _exclude("--baseline", baseline, "--write-baseline", write_baseline)
        chosen = settings(
            {
                "select": _names(select),
                "ignore": _names(ignore),
                "fail-on": "warning" if strict else fail_on,
                "format": format,
                "output": output or None,
                "tensor-parallel": tensor_parallel,
                "no-weights": no_weights,
                "deep": deep,
                "color": color,
                "baseline": baseline,
                "jobs": jobs,
                "timeout": timeout,
            },
            config=config,
            isolated=isolated,
            audited=[*found.roots, *beside],
        )
        choices, file = chosen.choices, chosen.file
        format = choices.format or "terminal"
        view = replace(
            streams.view(choices.color or "auto"),
            fail_on=choices.fail_on or Severity.ERROR,
            quiet=quiet,
            verbose=verbose,
            places=Checkout(tokenizer),
        )
        audited = [*found.paths, *beside]
        files = outputs.file_outputs(choices.output or (), audited)
        new_baseline = None
        if write_baseline is not None:
            new_baseline = outputs.file_outside(write_baseline, audited, "--write-baseline")
        audit = Audit(
            tokenizer,
            Options(
                tensor_parallel=choices.tensor_parallel,
                read_weights=not choices.no_weights,
                deep=bool(choices.deep),
                lock=_lock(lock),
            ),
            select_rules(choices.select or (), (*(choices.ignore or ()), *(file.off if file else ()))),
        )
        if opening is not None:
            reports = [audit.one(found.paths[0], opening)]
        else:
            reports = audit.many(found.paths, jobs=choices.jobs, seconds=choices.timeout)
        reports, failures = settled(reports, file, choices.baseline, new_baseline)
        failures += outputs.deliver(files, format, reports, view)
        mildest_first = list(Verdict)
        worst = max((report.verdict(view.fail_on) for report in reports), key=mildest_first.index)
        notes = [*chosen.notes, *(() if quiet else found.notes)]
        complaints = streams.error_lines([*failures, *_unreadable(reports)])
        return Outcome(
            reporter(format).render(reports, view),
            Verdict.NO_VERDICT if failures else worst,
            streams.note_lines(notes) + (complaints or streams.ignored_keys(audit.options.lock)),
        )


def _exclude(one: str, its_value: object, other: str, other_value: object) -> None:
    from tokaudit.errors import UsageError

    if its_value and other_value:
        raise UsageError(f"{one} and {other} exclude each other")


def _missing_path() -> UsageError:
    from tokaudit.errors import UsageError

    return UsageError("missing argument 'PATH'", hint="`tokaudit check --help` shows how to call it")


def _lock(path: str | None) -> Lock | None:
    if path is None:
        return None
    from tokaudit.locks.read import read

    return read(path)


def _names(values: Sequence[str] | None) -> list[str] | None:
    """``["TA1,TA2", "no-pad-token"]`` -> the three names; None where nothing was given."""
    from tokaudit.choices import separated

    return [name for value in values for name in separated(value)] if values else None


def _opened(path: str, tokenizer: str | None, stack: ExitStack) -> Opening | Unreadable:
    from tokaudit.errors import Unreadable
    from tokaudit.load import Opening

    try:
        return stack.enter_context(Opening(path, tokenizer))
    except Unreadable as error:
        return error


def _unreadable(reports: Sequence[Report]) -> list[Unreadable]:
    """Every part that could not be read; of several reports, with the target it belongs to."""
    from tokaudit.errors import Unreadable

    several = len(reports) > 1
    return [
        Unreadable(
            part.code,
            "/".join(filter(None, (report.target, part.file))) if several else part.file,
            part.message,
            hint=part.hint,
        )
        for report in reports
        for part in report.unreadable
    ]
