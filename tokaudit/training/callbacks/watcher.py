"""One training run under watch: the module at its start, its first batches, a window of its steps."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tokaudit.contract.data import IGNORED
from tokaudit.contract.ledger import Ledger
from tokaudit.errors import RunStopped, TokauditError, UsageError
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report
from tokaudit.text import counted, inert
from tokaudit.training.batch import audit_against
from tokaudit.training.expectations import Expectations, expectations
from tokaudit.training.ledger import GradientLedger
from tokaudit.training.module import audit_module
from tokaudit.training.tables import Named
from tokaudit.training.unwrapping import bare_optimizer

LOGGER = logging.getLogger("tokaudit.training")
_LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.NOTE: logging.INFO}


@dataclass(frozen=True, kw_only=True)
class Watching:
    """What is watched, and when a run stops.

    ``first_batches`` is how many batches are audited. ``window`` are the optimizer steps that the ledger
    records, the first and the one past the last, counted from the start of the watch; (0, 0) for none.
    ``new_ids`` are the tokens that the ledger tells from old ones, ``ledger_path`` is where it is saved.
    ``stop_on`` is the severity ("error", "warning", "note") of findings that stop the run, None for none.
    ``as_mapping`` makes the mapping that `audit_batch` reads of a batch that is none. The others are those of
    `audit_batch`, `audit_module` and `GradientLedger`.
    """

    first_batches: int = 5
    window: tuple[int, int] = (0, 50)
    stop_on: str | None = None
    new_ids: Iterable[int] = ()
    ledger_path: str | os.PathLike[str] | None = None
    as_mapping: Callable[[Any], Mapping[str, object]] | None = None
    tokenizer: Any = None
    pad_id: int | None = None
    eos_id: int | Iterable[int] | None = None
    ignore_id: int = IGNORED
    input: Named = None
    output: Named = None

    def __post_init__(self) -> None:
        words = [severity.word for severity in Severity]
        if self.stop_on is not None and self.stop_on not in words:
            raise UsageError(f"stop_on must be {', '.join(words)} or None, not {self.stop_on!r}")
        first, past = self.window
        if not 0 <= first <= past:
            raise UsageError(
                f"window={self.window!r}", hint="the first step and the one past the last: (0, 50)"
            )

    def stops_at(self, report: Report) -> bool:
        return self.stop_on is not None and any(
            finding.severity >= Severity[self.stop_on.upper()] for finding in report.findings
        )


class Watcher:
    """Watches one run. A framework's callback tells it what happens; it says what it found to the logger.

    ``reports`` are all reports so far: of the module, of each batch, of the ledger. ``metrics`` are numbers
    for the framework's log. ``ledger`` holds the window once it has begun.
    """

    def __init__(self, watching: Watching) -> None:
        self.watching = watching
        self.reports: list[Report] = []
        self.metrics: dict[str, float] = {}
        self.ledger: Ledger | None = None
        self._steps = self._batches = 0
        self._logged: dict[str, float] = {}
        self._said: set[tuple[str, str, str]] = set()
        self._open: GradientLedger | None = None
        self._window = ExitStack()
        self._waits = watching.window[0] < watching.window[1]
        self._expected: Expectations | None = None
        self._counting: torch.utils.hooks.RemovableHandle | None = None

    def begin(self, model: nn.Module, optimizer: Any = None, tokenizer: Any = None) -> None:
        """Audit the module, and open the ledger where its window begins here.

        ``optimizer`` is the optimizer or a list; what wraps one (accelerate, Lightning) is taken off.
        Raises RunStopped.
        """
        watching = self.watching
        tables = {"input": watching.input, "output": watching.output}
        given = optimizer if isinstance(optimizer, list) else [optimizer]
        optimizers = [held for held in map(bare_optimizer, given) if isinstance(held, torch.optim.Optimizer)]
        self._model, self._optimizers = model, optimizers
        self._tokenizer = tokenizer if watching.tokenizer is None else watching.tokenizer
        self._expected = expectations(
            model,
            pad_id=watching.pad_id,
            eos_id=watching.eos_id,
            tokenizer=self._tokenizer,
            ignore_id=watching.ignore_id,
            **tables,
        )
        self._stop_for(self._note(audit_module(model, self._tokenizer, optimizers or None, **tables)))
        if optimizers and self._waits:
            self._counting = optimizers[0].register_step_post_hook(self._count)
        self.between()

    @property
    def wants_batches(self) -> bool:
        return self._batches < self.watching.first_batches

    def batch(self, batch: Any) -> None:
        """Audit a batch before it is trained on, while any are wanted. Raises RunStopped."""
        if self._expected is None or not self.wants_batches:
            return
        read = self.watching.as_mapping
        mapping = batch if read is None else read(batch)
        name = f"batch {self._batches}"
        self._batches += 1
        if not isinstance(mapping, Mapping):
            self._batches = self.watching.first_batches
            LOGGER.warning("batches are not audited: %s is no mapping; give as_mapping", type(batch).__name__)
            return
        self._stop_for(self._note(audit_against(self._expected, mapping, name)))

    def between(self) -> Report | None:
        """Between two steps: open or close the ledger. The report that stops the run, if there is one."""
        first, past = self.watching.window
        if self._open is not None and self._steps >= past:
            report = self._close()
            return report if self.watching.stops_at(report) else None
        if self._waits and self._steps >= first:
            self._waits = False
            self._begin_ledger()
        return None

    def end(self) -> Report | None:
        """The end of the steps: what the ledger holds is reported, however short its window was.

        The report that stops the run, if there is one.
        """
        if self._open is None:
            if self._waits:
                LOGGER.warning("no ledger was kept: the run ended before step %d", self.watching.window[0])
            return None
        report = self._close()
        return report if self.watching.stops_at(report) else None

    def abandon(self) -> None:
        """Leave nothing behind in model and optimizer, and report nothing more."""
        self._window.close()
        self._open = None
        if self._counting is not None:
            self._counting.remove()
            self._counting = None

    def news(self) -> dict[str, float]:
        """The metrics that changed since they were asked for."""
        news = {name: value for name, value in self.metrics.items() if self._logged.get(name) != value}
        self._logged.update(news)
        return news

    def stopped(self, report: Report) -> RunStopped:
        """The error for a run that stops because of this report."""
        worst = report.findings[0]
        more = len(report.findings) - 1
        words = f"{worst.rule} {worst.slug}: {inert(worst.message)}"
        rest = f", and {counted(more, 'more finding')}" if more else ""
        return RunStopped(
            f"the run was stopped (stop_on={self.watching.stop_on!r}): {report.target}: {words}{rest}",
            report,
            hint=inert(worst.fix),
        )

    # --- the ledger -----------------------------------------------------------------------------------------

    def _count(self, *_: object) -> None:
        self._steps += 1

    def _begin_ledger(self) -> None:
        if not self._optimizers:
            LOGGER.warning("no ledger is kept: it needs the optimizer, one of torch")
            return
        watching = self.watching
        try:
            ledger = GradientLedger(
                self._model,
                self._tokenizer,
                new_ids=watching.new_ids,
                pad_id=None if self._expected is None else self._expected.pad_id,
                input=watching.input,
                output=watching.output,
                optimizer=self._optimizers[0],
            )
            with ExitStack() as window:
                if compiling():
                    window.enter_context(torch.compiler.set_stance("force_eager"))
                self._open = window.enter_context(ledger)
                self._window = window.pop_all()
        except TokauditError as error:
            LOGGER.warning("no ledger is kept: %s (%s)", inert(error.message), inert(error.hint))

    def _close(self) -> Report:
        assert self._open is not None
        kept = self._open
        self.abandon()
        self.ledger = kept.facts
        self._save(kept)
        LOGGER.info("the ledger of %s:\n%s", counted(kept.steps, "step"), kept)
        self.metrics.update(_numbers(self.ledger))
        return self._note(kept.report())

    def _save(self, ledger: GradientLedger) -> None:
        """A run is worth more than the file: that it cannot be written is said, and training goes on."""
        if self.watching.ledger_path is not None:
            try:
                ledger.save(self.watching.ledger_path)
            except TokauditError as error:
                LOGGER.error("the ledger is not saved: %s (%s)", error.message, error.hint)

    # --- saying it ------------------------------------------------------------------------------------------

    def _note(self, report: Report) -> Report:
        self.reports.append(report)
        for severity in Severity:
            name = f"tokaudit/{severity.word}s"
            self.metrics[name] = self.metrics.get(name, 0) + report.count(severity)
        for finding in report.findings:
            self._say(report.target, finding)
        for part in report.unreadable:
            LOGGER.error("%s: %s", report.target, inert(part.message))
        return report

    def _say(self, target: str, finding: Finding) -> None:
        """Once for each thing that is wrong: the next batches have the same."""
        kind = target.split(" ")[0], finding.rule, finding.subject
        level = logging.DEBUG if kind in self._said else _LEVELS[finding.severity]
        self._said.add(kind)
        words = inert(finding.message), inert(finding.fix)
        LOGGER.log(level, "%s: %s %s: %s (%s)", target, finding.rule, finding.slug, *words)

    def _stop_for(self, report: Report) -> None:
        if self.watching.stops_at(report):
            self.abandon()
            raise self.stopped(report)


class Watched:
    """What a run that is, or was, watched can be asked."""

    _watcher: Watcher

    @property
    def reports(self) -> list[Report]:
        """Of the module, of each batch that was audited, and of the ledger."""
        return self._watcher.reports

    @property
    def metrics(self) -> dict[str, float]:
        """Counts of findings, and numbers of the ledger."""
        return self._watcher.metrics

    @property
    def ledger(self) -> Ledger | None:
        """The window of steps, once it has ended."""
        return self._watcher.ledger


def compiling() -> bool:
    """Whether anything may be compiled: a framework may hold a compiled wrapper that no callback is shown.

    Not asked of torch, which would load its compiler to answer.
    """
    return "torch._dynamo" in sys.modules


def _numbers(ledger: Ledger) -> dict[str, float]:
    """What of a ledger fits a chart."""
    numbers = {
        "tokaudit/ledger_steps": float(ledger.steps),
        "tokaudit/ids_visited": float(sum(count > 0 for count in ledger.visits)),
        "tokaudit/new_ids_not_visited": float(len(ledger.new_ids) - len(ledger.visited_new)),
    }
    if ledger.pad_id is not None:
        row = ledger.row(ledger.pad_id)
        numbers["tokaudit/pad_update"] = max(row.input_update or 0.0, row.output_update or 0.0)
    return numbers
