"""A few threads for work that the interpreter's lock does not hold up; the first failure stops them all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from tokaudit.atomic import uninterrupted
from tokaudit.progress import Progress

T = TypeVar("T")

# More than processors: while files are synced, others are compared and digested.
THREADS = min(8, 3 * (os.cpu_count() or 1))


class Stopped(Exception):
    """The run is over, by a failure elsewhere or by a signal: nobody waits for this work any more."""


class Workers:
    """A context manager. Leaving it with an exception ends what runs at its next step, and waits for that.

    It is a Progress too: work that reports its bytes can be stopped between two of them.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tokaudit")
        self._stopped = threading.Event()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._stopped.set()
        late: BaseException | None = None
        while True:
            try:
                # Nobody may go on writing after this. Joining a thread is no use once it was interrupted:
                # Python then takes the thread for ended.
                with uninterrupted():
                    self._pool.shutdown(wait=True, cancel_futures=self._stopped.is_set())
                break
            except BaseException as signalled:  # Ctrl-C, again
                self._stopped.set()
                late = signalled
        if late is not None:
            raise late

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        with uninterrupted():  # else the pool may not know of a thread that has just started, nor wait for it
            return self._pool.submit(self._run, work, *arguments)

    def _run(self, work: Callable[..., T], *arguments: object) -> T:
        self._check()
        return work(*arguments)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped

    def start(self, total: int) -> None:
        self._progress.start(total)

    def advance(self, nbytes: int) -> None:
        self._check()
        self._progress.advance(nbytes)


def wait(futures: Iterable[Future[T]]) -> list[T]:
    """The results in order of submission; the first failure is raised as soon as it happens."""
    futures = list(futures)
    for done in as_completed(futures):
        done.result()
    return [future.result() for future in futures]
