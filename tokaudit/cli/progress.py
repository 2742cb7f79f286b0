"""A line on standard error that says what takes so long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from tokaudit.cli import streams
from tokaudit.progress import Progress, Quiet
from tokaudit.text import inert

if TYPE_CHECKING:
    from threading import Event

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE = 1.0  # seconds until the line appears, and between two updates
ERASE = "\r\x1b[K"


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show ``doing`` and the seconds it took so far, once it takes long and where a person can see it."""
    if not streams.is_terminal(sys.stderr):
        yield
        return
    import threading

    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(sys.stderr, inert(doing), done), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _tick(stream: TextIO, doing: str, done: Event) -> None:
    seconds = 0.0
    while not done.wait(PATIENCE):
        seconds += PATIENCE
        room = max(0, streams.columns() - 12)
        _put(stream, f"{ERASE}{doing[:room]} {seconds:.0f} s")
    if seconds:
        _put(stream, ERASE)


@contextmanager
def counting(doing: str, total: int) -> Iterator[Count]:
    """The same for many things, without a thread, as processes are forked meanwhile: ``look`` updates it."""
    count = Count(doing, total)
    try:
        yield count
    finally:
        count.erase()


class Count:
    """How many things are ``done``. Whoever works on them calls ``look`` now and then."""

    def __init__(self, doing: str, total: int) -> None:
        self.done = 0
        self._doing = doing
        self._total = total
        self._stream = sys.stderr if streams.is_terminal(sys.stderr) else None
        self._next = time.monotonic() + PATIENCE
        self._shown = False

    def look(self) -> None:
        if self._stream is not None and time.monotonic() >= self._next:
            self._next += PATIENCE
            self._shown = True
            _put(self._stream, f"{ERASE}{self._doing}: {self.done} of {self._total} done")

    def erase(self) -> None:
        if self._stream is not None and self._shown:
            _put(self._stream, ERASE)


def _put(stream: TextIO, text: str) -> None:
    with suppress(OSError):
        stream.write(text)
        stream.flush()


@contextmanager
def copying(doing: str) -> Iterator[Progress]:
    """A bar for bytes that are written or read, where a person can see it."""
    if not streams.is_terminal(sys.stderr):
        yield Quiet()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    parts = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console.print(inert(doing), soft_wrap=True)
    with Bar(*parts, console=console, transient=True) as bar:
        yield _BarProgress(bar, bar.add_task("", total=None))


class _BarProgress:
    """Feeds a Rich progress bar."""

    def __init__(self, bar: Bar, task: TaskID) -> None:
        self.bar = bar
        self.task = task

    def start(self, total: int) -> None:
        self.bar.update(self.task, total=total)

    def advance(self, nbytes: int) -> None:
        self.bar.advance(self.task, nbytes)
