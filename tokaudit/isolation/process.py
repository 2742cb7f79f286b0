"""The parent's side of an isolated process: starting it, asking it, and its certain end.

What reads a stranger's file with a library that may abort, hang or take gigabytes never runs in the process
that audits. The child gets the opened file and no path, has limits on memory, processor time and wall time,
and cannot outlive its parent: it is armed to die when the pipe closes whose other end only the parent holds.
child.py is its side.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from tokaudit.errors import UsageError
from tokaudit.isolation.child import LENGTH_BYTES
from tokaudit.isolation.failures import Fail, Kind, ProcessFailure, death
from tokaudit.text import shown, size

T = TypeVar("T")

_CHUNK = 65_536
_STDERR_BYTES = 65_536
_SECONDS_TO_DIE = 5.0
_SECONDS_BETWEEN_WATCHES = 0.5
_REPORTED: dict[str, Kind] = {"rejected": "rejected", "panicked": "panicked", "memory": "memory"}

# macOS takes RLIMIT_AS and ignores it: there the parent watches the child's memory while it waits.
_KERNEL_LIMITS_MEMORY = sys.platform != "darwin"


class HasFileno(Protocol):
    """An open file, as ``tokaudit.sources`` gives it."""

    def fileno(self) -> int: ...


L = TypeVar("L", bound="Limits")
P = TypeVar("P", bound="IsolatedProcess")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the child may use."""

    load_seconds: float = 20.0  # wall time from the start until the first answer
    answer_seconds: float = 20.0  # wall time of each later answer
    cpu_seconds: int = 60  # processor time in all
    memory_bytes: int = 2**30  # address space
    reply_bytes: int = 2**26  # the longest answer that is read

    def times(self: L, factor: float) -> L:
        """So many times as much of everything but ``reply_bytes``."""
        return replace(
            self,
            load_seconds=self.load_seconds * factor,
            answer_seconds=self.answer_seconds * factor,
            cpu_seconds=max(1, int(self.cpu_seconds * factor)),
            memory_bytes=int(self.memory_bytes * factor),
        )


def patience() -> float:
    """How many times the usual limits the user allows, on a slow machine: TOKAUDIT_PATIENCE.

    Raises UsageError for a value that is no number from 1 to 1000.
    """
    stated = os.environ.get("TOKAUDIT_PATIENCE") or "1"
    with suppress(ValueError):
        if 1 <= float(stated) <= 1000:
            return float(stated)
    raise UsageError(f"TOKAUDIT_PATIENCE is {shown(stated)}", hint="give a number from 1 to 1000")


class Spawned(NamedTuple):
    """A child that was started: ``lifeline`` is the descriptor whose closing ends it."""

    process: subprocess.Popen[bytes]
    lifeline: int


def spawn(
    worker: str, document: int, limits: Limits, environment: Mapping[str, str] | None = None
) -> Spawned:
    """Start ``python -I WORKER DOCUMENT LIFELINE MEMORY CPU`` and return at once.

    ``document`` is the descriptor of an opened file; it may be closed afterwards, and its offset is left
    alone. Raises OSError where the system cannot start a process.
    """
    memory = limits.memory_bytes if _KERNEL_LIMITS_MEMORY else 0
    with ExitStack() as inherited:
        watched, lifeline = os.pipe()
        inherited.callback(os.close, watched)
        try:
            fds = [_above_stdio(document, inherited), _above_stdio(watched, inherited)]
            process = subprocess.Popen(
                [sys.executable, "-I", worker, *map(str, (*fds, memory, limits.cpu_seconds))],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=fds,
                start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
                cwd="/",
                env={**os.environ, **(environment or {})},
            )
        except BaseException:
            os.close(lifeline)
            raise
    return Spawned(process, lifeline)


def _message(request: Mapping[str, object]) -> bytes:
    body = json.dumps(request).encode()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _above_stdio(fd: int, stack: ExitStack) -> int:
    """A copy that the child's stdin, stdout and stderr do not cover, even if the parent's were closed."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    stack.callback(os.close, copy)
    return copy


class IsolatedProcess:
    """The child on one file; a context manager, so that it never stays behind.

    Every question raises what ``fail`` makes of a failure. Once the child is lost, each later question raises
    the same. For use by one thread at a time.
    """

    def __init__(self, spawned: Spawned, limits: Limits, fail: Fail) -> None:
        process = spawned.process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._requests = process.stdin
        self._answers = process.stdout
        self._errors = process.stderr
        os.set_blocking(self._requests.fileno(), False)
        os.set_blocking(self._errors.fileno(), False)
        self._lifeline = spawned.lifeline
        self._limits = limits
        self._load_deadline = time.monotonic() + limits.load_seconds
        self._stderr = bytearray()
        self._lost: ProcessFailure | None = None
        self._fail = fail

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and reap it. Calling it again does nothing."""
        if self._requests.closed:
            return
        self._lost = self._lost or self._fail("died", "it was ended")
        try:
            self._process.kill()
            self._process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            pass  # it waits for a disk that does not answer: the kernel ends it when the disk does
        finally:
            os.close(self._lifeline)
            for stream in (self._requests, self._answers, self._errors):
                stream.close()

    def _first(self, read: Callable[[object], T]) -> T:
        """Wait for the answer that needs no question: what the child made of the file."""
        try:
            return self._ask(b"", self._load_deadline, read)
        except ProcessFailure as error:
            self._lose(error)
            raise

    def _question(
        self, request: Mapping[str, object], read: Callable[[object], T], attachment: bytes = b""
    ) -> T:
        message = _message(request) + attachment
        return self._ask(message, time.monotonic() + self._limits.answer_seconds, read)

    def _begin(self, request: Mapping[str, object]) -> None:
        """Put a short question whose answer `_finish` takes; no other one may come in between."""
        if self._lost is None:
            self._send(memoryview(_message(request)))

    def _finish(self, read: Callable[[object], T]) -> T:
        """Wait for the answer to what was begun: as long as for that of a question that is put now."""
        return self._ask(b"", time.monotonic() + self._limits.answer_seconds, read)

    def _ask(self, message: bytes, deadline: float, read: Callable[[object], T]) -> T:
        """Send the message and read the next answer; whatever goes wrong ends the child, a refusal aside."""
        if self._lost is not None:
            raise self._lost
        try:
            reply = self._exchange(message, deadline)
            try:
                return read(self._answer(reply))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise self._fail("died", "its answer is malformed") from None
        except ProcessFailure as error:
            if error.kind != "rejected":
                self._lose(error)
            raise
        except BaseException:
            self.close()
            raise

    def _lose(self, error: ProcessFailure) -> None:
        self._lost = error
        self.close()

    def _exchange(self, message: bytes, deadline: float) -> bytes:
        unsent = memoryview(message)
        reply = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            selector.register(self._errors, selectors.EVENT_READ)
            if unsent:
                selector.register(self._requests, selectors.EVENT_WRITE)
            while not self._complete(reply):
                for stream in self._ready(selector, deadline):
                    if stream is self._answers:
                        part = os.read(self._answers.fileno(), _CHUNK)
                        if not part:
                            raise self._death()
                        reply += part
                    elif stream is self._errors:
                        if not self._keep_errors():
                            selector.unregister(self._errors)
                    else:
                        unsent = self._send(unsent)
                        if not unsent:
                            selector.unregister(self._requests)
        return bytes(reply[LENGTH_BYTES:])

    def _complete(self, reply: bytearray) -> bool:
        if len(reply) < LENGTH_BYTES:
            return False
        length = int.from_bytes(reply[:LENGTH_BYTES], "big")
        if length > self._limits.reply_bytes:
            raise self._fail("died", f"its answer has {length} bytes, more than {self._limits.reply_bytes}")
        return len(reply) >= LENGTH_BYTES + length

    def _ready(self, selector: selectors.BaseSelector, deadline: float) -> list[object]:
        """The streams that can be read or written without waiting.

        An answer that is there already is taken after the deadline, too: the parent may have come late.
        """
        while True:
            left = deadline - time.monotonic()
            wait = left if _KERNEL_LIMITS_MEMORY else min(left, _SECONDS_BETWEEN_WATCHES)
            ready: list[object] = [key.fileobj for key, _ in selector.select(max(0.0, wait))]
            if self._answers in ready or (ready and left > 0):
                return ready
            if left <= 0:
                raise self._fail("timeout", "the limit on wall time was reached")
            self._watch_memory()

    def _watch_memory(self) -> None:
        command = ["/bin/ps", "-o", "rss=", "-p", str(self._process.pid)]
        kibibytes = subprocess.run(command, capture_output=True, check=False).stdout.strip()
        if kibibytes.isdigit() and int(kibibytes) * 1024 > self._limits.memory_bytes:
            raise self._fail("memory", f"more than {size(self._limits.memory_bytes)}")

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._requests.fileno(), unsent[:_CHUNK]) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:
            return unsent[:0]  # the child is gone: reading its answers tells

    def _keep_errors(self) -> bool:
        """Take what there is on stderr, the first part of it to keep; False at its end."""
        try:
            part = os.read(self._errors.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        self._stderr += part[: _STDERR_BYTES - len(self._stderr)]
        return bool(part)

    def _death(self) -> ProcessFailure:
        """Why the child closed its answers: it ended, and its stderr may tell more."""
        try:
            returncode = self._process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return self._fail("died", "it closed its answers")
        while self._keep_errors():
            pass
        return self._fail(*death(returncode, self._stderr.decode("utf-8", "replace")))

    def _answer(self, reply: bytes) -> object:
        """The value of an answer. Raises the failure that it reports, or ValueError and the like."""
        found = json.loads(reply)
        if "failure" in found:
            kind, cause = found["failure"]
            raise self._fail(_REPORTED[kind], str(cause))
        return found["answer"]
