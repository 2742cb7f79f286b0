"""What `tokaudit check` does once the first tokenizer is being loaded: this module imports all the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tokaudit.audit import select_rules
from tokaudit.cli import outputs, streams
from tokaudit.cli.arguments import exclude
from tokaudit.cli.auditing import Audit
from tokaudit.cli.checkout import Checkout
from tokaudit.cli.outcome import Outcome
from tokaudit.cli.setting_aside import SettingAside
from tokaudit.cli.settings import settings
from tokaudit.contract import Options
from tokaudit.errors import Unreadable
from tokaudit.findings import Severity
from tokaudit.report import Report, Verdict, worst_verdict
from tokaudit.reporters import SHOWING_TOKENS, reporter

if TYPE_CHECKING:
    from tokaudit.choices import Choices
    from tokaudit.contract import Lock
    from tokaudit.contract.data import DataOptions
    from tokaudit.load import Opening
    from tokaudit.registry import Targets


def checked(
    targets: Targets,
    opening: Opening | Unreadable | None,
    options: Mapping[str, object],
    *,
    tokenizer: str | None,
    lock: str | None,
    base: str | None,
    optimizer: str | None,
    write_baseline: str | None,
    config: str | None,
    isolated: bool,
    strict: bool,
    quiet: bool,
    verbose: bool,
) -> Outcome:
    """Audit the targets. ``opening`` is that of the only one.

    ``options`` are those that the environment and files may state, too, by their keys, with None for what was
    not given. Raises UsageError, and Unreadable for a lock or a baseline, before anything is audited.
    """
    exclude("--quiet", quiet, "--verbose", verbose)
    exclude("--strict", strict, "--fail-on", options["fail-on"] is not None)
    exclude("--baseline", options.get("baseline") is not None, "--write-baseline", write_baseline is not None)
    exclude("--isolated", isolated, "--config", config is not None)
    if strict:
        options = {**options, "fail-on": "warning"}
    data = options["data"]
    beside = [path for path in (tokenizer, base, optimizer) if path is not None]
    beside += data if isinstance(data, list) else []
    choices, file, notes = settings(
        options, config=config, isolated=isolated, audited=[*targets.roots, *beside]
    )
    view = replace(
        streams.view(choices.color or "auto"),
        fail_on=choices.fail_on or Severity.ERROR,
        quiet=quiet,
        verbose=verbose,
        places=Checkout(tokenizer),
    )
    format = choices.format or "terminal"
    audited = [*targets.paths, *beside]
    files = outputs.file_outputs(choices.output or (), audited)
    aside = SettingAside(file, choices.baseline, write_baseline, audited)
    off = file.off if file is not None else ()
    audit = Audit(
        tokenizer,
        replace(_options(choices, lock), base=base, optimizer=optimizer),
        select_rules(choices.select or (), (*(choices.ignore or ()), *off)),
    )
    if opening is not None:
        reports = [audit.one(targets.paths[0], opening)]
    else:
        reports = audit.many(targets.paths, jobs=choices.jobs, seconds=choices.timeout)
    reports, failures = aside.settled(reports)
    written = [str(aside.write)] if aside.write is not None and not failures else []
    delivered, undelivered = outputs.deliver(files, format, reports, view)
    failures += undelivered
    notes += () if quiet else targets.notes
    complaint = streams.error_lines([*failures, *_unreadable(reports)])
    return Outcome(
        reporter(format).render(reports, view),
        Verdict.NO_VERDICT if failures else worst_verdict(reports, view.fail_on),
        streams.note_lines(notes) + (complaint or streams.ignored_keys(audit.options.lock)),
        [*written, *delivered],
    )


def _options(choices: Choices, lock: str | None) -> Options:
    return Options(
        tensor_parallel=choices.tensor_parallel,
        read_weights=not choices.no_weights,
        deep=bool(choices.deep),
        lock=_lock(lock),
        data=_data(choices),
        tokens=not SHOWING_TOKENS.isdisjoint(_formats(choices)),
    )


def _data(choices: Choices) -> DataOptions | None:
    if not choices.data:
        return None
    from tokaudit.contract.data import DataOptions

    return DataOptions(choices.data, choices.dtype, choices.engine or "local", choices.jobs)


def _formats(choices: Choices) -> set[str]:
    """Those that a report is asked for in."""
    files = {output.partition("=")[0] for output in choices.output or ()}
    return files | {choices.format or ""}


def _lock(path: str | None) -> Lock | None:
    if path is None:
        return None
    from tokaudit.locks.read import read

    return read(path)


def _unreadable(reports: Sequence[Report]) -> list[Unreadable]:
    """Every part that could not be read; of several reports, with the target it belongs to."""
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
