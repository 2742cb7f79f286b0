"""`tokaudit check`: audit model directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.outcome import Outcome
from tokaudit.reporters import names

if TYPE_CHECKING:
    from tokaudit.contract import Lock, Options
    from tokaudit.errors import Unreadable, UsageError
    from tokaudit.findings import Severity
    from tokaudit.load import Opening
    from tokaudit.report import Report
    from tokaudit.rule import Rule


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
        bool,
        typer.Option("--no-weights", help="Open no weights file; what needs one is skipped."),
    ] = False,
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
        bool,
        typer.Option("--deep", help="Take longer: try every token of a large vocabulary (TA409)."),
    ] = False,
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
        str,
        typer.Option("--format", "-f", metavar="FORMAT", help=f"One of: {', '.join(names())}."),
    ] = "terminal",
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
        str,
        typer.Option("--color", metavar="WHEN", help="auto, always or never."),
    ] = "auto",
) -> Outcome:
    """Audit model directories.

    PATH is a directory with a model as Hugging Face lays it out, or with one side of it: a tokenizer, or
    weights. A snapshot in the Hugging Face cache will do. Nothing in it is run, unpickled, rendered or
    changed.

    \b
    Examples:
      tokaudit check path/to/model
      tokaudit check path/to/weights --tokenizer path/to/tokenizer
      tokaudit check models/* --strict --quiet
      tokaudit check path/to/model --select TA2,TA101 --format json
      tokaudit check models/* --output sarif=tokaudit.sarif --output junit=tokaudit.xml
      tokaudit check path/to/model --lock tokaudit.lock
      tokaudit check --lock tokaudit.lock --tokenizer path/in/container

    \b
    Exit codes:
      0  no finding at or above --fail-on
      1  findings
      2  no verdict: a wrong call, input that cannot be read, a report that cannot be written
    """
    from dataclasses import replace

    if not paths and lock and tokenizer:
        paths, tokenizer, no_weights = [tokenizer], None, True  # a served tokenizer alone
    if not paths:
        raise _missing_path()
    ahead = _Ahead(paths, tokenizer)  # before the imports: the first tokenizer loads meanwhile

    from tokaudit.audit import select_rules
    from tokaudit.cli import outputs, streams
    from tokaudit.cli.checkout import Checkout
    from tokaudit.contract import Options
    from tokaudit.errors import UsageError
    from tokaudit.report import Verdict
    from tokaudit.reporters import reporter

    with ahead:
        if quiet and verbose:
            raise UsageError("--quiet and --verbose exclude each other")
        if tensor_parallel is not None and tensor_parallel < 1:
            raise UsageError(f"--tensor-parallel must be at least 1, not {tensor_parallel}")
        threshold = _threshold(fail_on, strict=strict)
        view = replace(
            streams.view(color), fail_on=threshold, quiet=quiet, verbose=verbose, places=Checkout(tokenizer)
        )
        chosen = reporter(format)
        files = outputs.file_outputs(output or (), [*paths, *filter(None, [tokenizer])])
        rules = select_rules(_names(select), _names(ignore))
        options = Options(
            tensor_parallel=tensor_parallel, read_weights=not no_weights, deep=deep, lock=_lock(lock)
        )
        reports = [_audit(path, opening, options, rules) for path, opening in ahead]
        mildest_first = list(Verdict)
        worst = max((report.verdict(threshold) for report in reports), key=mildest_first.index)
        failures = outputs.deliver(files, format, reports, view)
        return Outcome(
            chosen.render(reports, view),
            Verdict.NO_VERDICT if failures else worst,
            streams.error_lines([*failures, *_unreadable(reports)]) or streams.ignored_keys(options.lock),
        )


def _missing_path() -> UsageError:
    from tokaudit.errors import UsageError

    return UsageError("missing argument 'PATH'", hint="`tokaudit check --help` shows how to call it")


def _lock(path: str | None) -> Lock | None:
    if path is None:
        return None
    from tokaudit.locks.read import read

    return read(path)


def _threshold(fail_on: str | None, *, strict: bool) -> Severity:
    from tokaudit.errors import UsageError
    from tokaudit.findings import Severity

    if strict and fail_on is not None:
        raise UsageError("--strict and --fail-on exclude each other")
    level = "warning" if strict else fail_on or "error"
    for severity in Severity:
        if severity.word == level:
            return severity
    raise UsageError(f"--fail-on must be note, warning or error, not {level!r}")


def _names(values: Iterable[str] | None) -> tuple[str, ...]:
    """``["TA1,TA2", "no-pad-token"]`` -> the three names."""
    return tuple(name.strip() for value in values or () for name in value.split(",") if name.strip())


class _Ahead:
    """The openings of the PATHs, each made while the one before it is audited. A context manager.

    The isolated process of a tokenizer takes as long as everything else together, so it starts early.
    """

    def __init__(self, paths: Sequence[str], tokenizer: str | None) -> None:
        self.paths = paths
        self.tokenizer = tokenizer
        self.stack = ExitStack()
        self.next = self._open(paths[0])

    def _open(self, path: str) -> Opening | Unreadable:
        from tokaudit.errors import Unreadable
        from tokaudit.load import Opening

        try:
            return self.stack.enter_context(Opening(path, self.tokenizer))
        except Unreadable as error:
            return error

    def __enter__(self) -> _Ahead:
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def __iter__(self) -> Iterator[tuple[str, Opening | Unreadable]]:
        for path, following in zip(self.paths, [*self.paths[1:], None], strict=True):
            opening = self.next
            if following is not None:
                self.next = self._open(following)
            yield path, opening


def _audit(path: str, opening: Opening | Unreadable, options: Options, rules: Sequence[type[Rule]]) -> Report:
    """The report on one PATH; where nothing of it can be audited, one that says only this."""
    from tokaudit.audit import run
    from tokaudit.cli.progress import progress
    from tokaudit.errors import Unreadable
    from tokaudit.report import Report, Summary

    if isinstance(opening, Unreadable):
        return Report(path, Summary(), (), (), (), (), (opening,))
    try:
        with progress(f"auditing {path}"), opening:
            return run(opening.contract(options), rules)
    except Unreadable as error:
        return Report(path, Summary(), (), (), (), (), (error,))


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
