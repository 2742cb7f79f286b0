"""What `tokaudit check` does with its PATHs: one is audited here, many each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tokaudit.audit import run
from tokaudit.cli import streams
from tokaudit.cli.progress import copying, counting, progress
from tokaudit.errors import TokauditError, Unreadable
from tokaudit.report import Report, Summary

if TYPE_CHECKING:
    from tokaudit.contract import Options
    from tokaudit.load import Opening
    from tokaudit.rule import Rule

# For each of many models: most take less than one, two large tied tables on a slow disk minutes.
SECONDS = 900


class Audit:
    """What is asked of each model."""

    def __init__(self, tokenizer: str | None, options: Options, rules: Sequence[type[Rule]]) -> None:
        self.tokenizer = tokenizer
        self.options = options
        self.rules = rules

    def one(self, path: str, opening: Opening | Unreadable) -> Report:
        """The report on one model, with signs of life; where nothing can be read, one that says only this."""
        if isinstance(opening, Unreadable):
            return _unaudited(path, opening)
        try:
            with self._watched(path) as options:
                return run(opening.contract(options), self.rules)
        except Unreadable as error:
            return _unaudited(path, error)

    @contextmanager
    def _watched(self, path: str) -> Iterator[Options]:
        """The options, with signs of life: seconds, or for token data the bytes that are read."""
        data = self.options.data
        if data is None:
            with progress(f"auditing {path}"):
                yield self.options
            return
        with copying(f"auditing {path}") as bar:
            yield replace(self.options, data=replace(data, progress=bar))

    def many(self, paths: Sequence[str], *, jobs: int | None, seconds: int | None) -> list[Report]:
        """The reports in the order of the paths, from ``jobs`` processes at a time (by default the cores).

        A model whose audit fails, dies or takes more than ``seconds`` has no verdict; the others have theirs.
        """
        from tokaudit.parallel import Lost, cores, each

        _get_ready(rows=self.options.deep, data=self.options.data is not None)
        reports: dict[int, Report] = {}
        with counting("auditing models", len(paths)) as counted:
            running = each(
                lambda item: self._alone(paths[item]),
                len(paths),
                jobs=jobs or cores(),
                seconds=seconds or SECONDS,
                look=counted.look,
            )
            with closing(running):
                for item, result in running:
                    counted.done += 1
                    if isinstance(result, Lost):
                        hint = f"audit it alone: tokaudit check {paths[item]}"
                        result = _unaudited(
                            paths[item], Unreadable("no-result", "", result.reason, hint=hint)
                        )
                    reports[item] = result
        return [reports[item] for item in range(len(paths))]

    def _alone(self, path: str) -> Report:
        """The same in a process that nobody else hears of: every failure is a report."""
        from tokaudit.load import Opening

        try:
            with Opening(path, self.tokenizer) as opening:
                return run(opening.contract(self._options_among_many(path)), self.rules)
        except Unreadable as error:
            return _unaudited(path, error)
        except TokauditError as error:
            return _unaudited(path, Unreadable("usage", "", error.message, hint=error.hint))
        except BaseException as error:  # the panic of a Rust extension is no Exception
            streams.complain(streams.trace(error))
            return _unaudited(path, streams.internal(error))

    def _options_among_many(self, path: str) -> Options:
        """Each process counts by itself, and a base is for those of the models that are adapters."""
        data = self.options.data
        is_adapter = os.path.lexists(os.path.join(path, "adapter_config.json"))
        return replace(
            self.options,
            data=data and replace(data, jobs=1),
            base=self.options.base if is_adapter else None,
        )


def _unaudited(path: str, error: Unreadable) -> Report:
    return Report(path, Summary(), (), (), (), (), (error,))


def _get_ready(*, rows: bool, data: bool) -> None:
    """Load what each process would otherwise load for itself, which takes longer than a small model."""
    import tokaudit.formats.template_steps
    import tokaudit.load.contract
    from tokaudit.families import records, tokenizer_classes

    records.by_class("")
    tokenizer_classes.class_defaults("")
    with suppress(ImportError):  # no torch: each report says so
        if rows:
            import tokaudit.values.read
        if data:
            import tokaudit.data.read  # noqa: F401
