"""Work on many items, each in a process of its own: where one dies or hangs, only its item is lost.

The processes are forked and end with their item. Each finds everything that was imported before, so starting
one takes a few milliseconds, and nothing that a strange file did to one of them reaches the next item. (The
pools of the standard library reuse their processes; when one is killed, ``multiprocessing.Pool`` waits for
ever and ``ProcessPoolExecutor`` gives up all other items.)
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from tokaudit.ending import SIGNALS
from tokaudit.isolation.child import die_with_parent

T = TypeVar("T")

_CHUNK = 1 << 16
_SECONDS_TO_DIE = 5.0
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class Lost:
    """An item without a result, and why in words."""

    reason: str


@dataclass(slots=True)
class _Child:
    """A process at work.

    ``answer`` is the end of a pipe that it closes when it is done, ``lifeline`` that of one whose closing
    ends it. The pipe of two processes would end the younger of them only.
    """

    item: int
    pid: int
    answer: int
    lifeline: int
    deadline: float
    received: bytearray = field(default_factory=bytearray)


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def each(
    work: Callable[[int], T], count: int, *, jobs: int, seconds: float, look: Callable[[], None]
) -> Generator[tuple[int, T | Lost], None, None]:
    """``work(0)`` to ``work(count - 1)``, as they are done, ``jobs`` at a time, each within ``seconds``.

    A result is pickled on its way. ``look`` is called about once a second, for signs of life. Closing the
    iterator, and any exception in this process (Ctrl-C), ends all processes.
    """
    return _Pool(work, count, seconds).run(jobs, look)


class _Pool(Generic[T]):
    def __init__(self, work: Callable[[int], T], count: int, seconds: float) -> None:
        self.work = work
        self.waiting = deque(range(count))
        self.seconds = seconds
        self.running: dict[int, _Child] = {}  # by the end of its pipe

    def run(self, jobs: int, look: Callable[[], None]) -> Generator[tuple[int, T | Lost], None, None]:
        try:
            with selectors.DefaultSelector() as selector:
                while self.waiting or self.running:
                    yield from self._fill(jobs, selector)
                    for key, _ in selector.select(self._patience()):
                        child = self.running[key.fd]
                        if not self._receive(child):
                            selector.unregister(key.fd)
                            yield child.item, self._result(child)
                    for child in self._late():
                        selector.unregister(child.answer)
                        self._end(child)
                        yield child.item, Lost(f"it took longer than {self.seconds:.0f} s")
                    look()
        finally:
            for child in list(self.running.values()):
                self._end(child)

    def _fill(self, jobs: int, selector: selectors.BaseSelector) -> Iterator[tuple[int, Lost]]:
        """Start as many as there may be; where the system starts no more, the others are waited for."""
        while self.waiting and len(self.running) < jobs:
            try:
                child = self._start(self.waiting[0])
            except OSError as error:
                if self.running:
                    return
                yield self.waiting.popleft(), Lost(f"no process can be started: {error.strerror}")
                continue
            self.waiting.popleft()
            selector.register(child.answer, selectors.EVENT_READ)

    def _start(self, item: int) -> _Child:
        """Raises OSError."""
        with ExitStack() as theirs, ExitStack() as ours:
            answer, end = os.pipe()
            ours.callback(os.close, answer)
            theirs.callback(os.close, end)
            watched, lifeline = os.pipe()
            ours.callback(os.close, lifeline)
            theirs.callback(os.close, watched)
            with _signals_held_back() as before:
                with warnings.catch_warnings():  # of threads, which none of the work here relies on
                    warnings.simplefilter("ignore", DeprecationWarning)
                    pid = os.fork()
                if pid == 0:
                    os.close(lifeline)
                    self._serve(item, end, watched, before)
                child = _Child(item, pid, answer, lifeline, time.monotonic() + self.seconds)
                self.running[answer] = child
                ours.pop_all()
        return child

    def _serve(self, item: int, end: int, watched: int, signals: set[int]) -> NoReturn:
        """The child. It never returns, so that nothing of the parent's is finished twice."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the parent, which ends its children
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            for sibling in self.running.values():
                os.close(sibling.answer)
                os.close(sibling.lifeline)
            die_with_parent(watched)
            with open(end, "wb") as pipe:
                pickle.dump(self.work(item), pipe, pickle.HIGHEST_PROTOCOL)
            code = 0
        finally:
            os._exit(code)

    def _patience(self) -> float:
        next_late = min((child.deadline for child in self.running.values()), default=0.0)
        return max(0.0, min(_SECONDS_BETWEEN_LOOKS, next_late - time.monotonic()))

    def _receive(self, child: _Child) -> bool:
        """Take what the child has sent; False at the end."""
        part = os.read(child.answer, _CHUNK)
        child.received += part
        return bool(part)

    def _result(self, child: _Child) -> T | Lost:
        status = self._end(child, kill=False)
        if status != 0:
            return Lost(_death(status))
        try:
            # A child of ours sent it, which ran nothing but our code: nowhere else does tokaudit unpickle.
            result: T = pickle.loads(child.received)
        except (EOFError, pickle.UnpicklingError):
            return Lost("its process ended without a result")
        return result

    def _late(self) -> list[_Child]:
        now = time.monotonic()
        return [child for child in self.running.values() if child.deadline <= now]

    def _end(self, child: _Child, *, kill: bool = True) -> int | None:
        """Reap a child, by force where it does not end by itself; its exit status, None where it stays.

        One that waits for a disk that does not answer stays until the disk does.
        """
        del self.running[child.answer]
        os.close(child.answer)
        status = None if kill else _reaped(child.pid)
        if status is None:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            status = _reaped(child.pid)
        os.close(child.lifeline)
        return status


def _reaped(pid: int) -> int | None:
    """The exit status of a process that is ending: negative for a signal, None if it does not end."""
    deadline = time.monotonic() + _SECONDS_TO_DIE
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def _death(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, perhaps by the system for lack of memory"
    if status is None:
        return "its process does not end"
    if status < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"its process was ended by {names.get(-status, f'signal {-status}')}"
    return f"its process ended with status {status}"


@contextmanager
def _signals_held_back() -> Iterator[set[int]]:
    """So that none arrives between the start of a child and its entry in the list of those to end.

    Yields those that were held back already.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield set(before)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
