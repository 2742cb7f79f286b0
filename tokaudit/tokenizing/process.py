"""The parent's side of the isolated process: starting it, asking it, and its certain end.

The `tokenizers` library aborts, panics, hangs or takes gigabytes on some malformed files of a few hundred
bytes, so it never runs in the process that audits. The child (worker.py) gets the opened file and no path,
has limits on memory, processor time and wall time, and cannot outlive its parent: it is armed to die when
the pipe closes whose other end only the parent holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, TypeVar

from tokaudit.errors import Unreadable
from tokaudit.text import size
from tokaudit.tokenizing.failures import Kind, NotAsked, TokenizerFailure, death, failure

T = TypeVar("T")

_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
_LENGTH_BYTES = 8
_CHUNK = 65_536
_STDERR_BYTES = 65_536
_SECONDS_TO_DIE = 5.0
_SECONDS_BETWEEN_WATCHES = 0.5
_REPORTED: dict[str, Kind] = {"rejected": "rejected", "panicked": "panicked", "memory": "memory"}

# macOS takes RLIMIT_AS and ignores it: there the parent watches the child's memory while it waits.
_KERNEL_LIMITS_MEMORY = sys.platform != "darwin"

# One thread: more gain nothing at these sizes and each takes address space. RUST_BACKTRACE keeps the
# captured stderr short.
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}


class HasFileno(Protocol):
    """An open file, as ``tokaudit.sources`` gives it."""

    def fileno(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What the child may use on a tokenizer.json of up to 64 MiB.

    A larger file gets more of everything but ``reply_bytes``, in proportion, up to four times as much at
    256 MiB. (Measured: 128k tokens in 4 MB take 0.2 s and 90 MB; 10 million in 208 MB take 13 s and 2.7 GB.)
    """

    load_seconds: float = 20.0  # wall time from the start until the file is loaded
    answer_seconds: float = 20.0  # wall time of each later answer
    cpu_seconds: int = 60  # processor time in all
    memory_bytes: int = 2**30  # address space
    reply_bytes: int = 2**26  # the longest answer that is read

    def scaled(self, nbytes: int) -> Limits:
        """The limits for a file of that size."""
        factor = min(max(1.0, nbytes / 2**26), 4.0)
        return replace(
            self,
            load_seconds=self.load_seconds * factor,
            answer_seconds=self.answer_seconds * factor,
            cpu_seconds=int(self.cpu_seconds * factor),
            memory_bytes=int(self.memory_bytes * factor),
        )


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the library made of the file.

    ``effective`` are the ids of the added tokens as the library numbers them; base tokens keep the ids that
    the file declares. ``base_tokens`` counts the base vocabulary, ``tokens`` everything.
    """

    version: str
    effective: Mapping[str, int]
    base_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of a text, and those among them that are the unknown token."""

    tokens: int
    unknown: int


def start(document: int | HasFileno, *, limits: Limits | None = None) -> TokenizerProcess:
    """Start the child on an opened tokenizer.json and return at once: it loads while the caller goes on.

    ``document`` is a file or its descriptor; it may be closed afterwards, and its offset is left alone.
    Raises Unreadable ("no-process") where the system cannot start one.
    """
    fd = document if isinstance(document, int) else document.fileno()
    limits = (limits or Limits()).scaled(os.fstat(fd).st_size)
    memory = limits.memory_bytes if _KERNEL_LIMITS_MEMORY else 0
    try:
        with ExitStack() as inherited:
            watched, lifeline = os.pipe()
            inherited.callback(os.close, watched)
            try:
                fds = [_above_stdio(fd, inherited), _above_stdio(watched, inherited)]
                process = subprocess.Popen(
                    [sys.executable, "-I", _WORKER, *map(str, (*fds, memory, limits.cpu_seconds))],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=fds,
                    start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
                    cwd="/",
                    env={**os.environ, **_ENVIRONMENT},
                )
            except BaseException:
                os.close(lifeline)
                raise
    except OSError as error:
        raise Unreadable(
            "no-process",
            "tokenizer.json",
            f"no process can be started to load it: {error.strerror}",
            hint="the tokenizers library runs apart: is the limit on processes or memory reached?",
        ) from error
    return TokenizerProcess(process, lifeline, limits)


def _above_stdio(fd: int, stack: ExitStack) -> int:
    """A copy that the child's stdin, stdout and stderr do not cover, even if the parent's were closed."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    stack.callback(os.close, copy)
    return copy


class TokenizerProcess:
    """The child on one tokenizer.json; a context manager, so that it never stays behind.

    Each question waits for the load first and raises TokenizerFailure. Once the child is lost, every later
    question raises the same failure. For use by one thread at a time.
    """

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._requests = process.stdin
        self._answers = process.stdout
        self._errors = process.stderr
        os.set_blocking(self._requests.fileno(), False)
        os.set_blocking(self._errors.fileno(), False)
        self._lifeline = lifeline
        self._limits = limits
        self._load_deadline = time.monotonic() + limits.load_seconds
        self._stderr = bytearray()
        self._loaded: LoadResult | None = None
        self._lost: TokenizerFailure | None = None

    def __enter__(self) -> TokenizerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def loaded(self) -> LoadResult:
        """Wait until the file is loaded."""
        if self._loaded is None:
            try:
                self._loaded = self._ask(b"", self._load_deadline, _load_result)
            except TokenizerFailure as error:
                self._lose(error)
                raise
        return self._loaded

    def encode(self, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """The ids of each text: added tokens are matched; padding, truncation and post-processor are off.

        A text that the library refuses is missing from the answer.
        """
        return self._encodings("encode", texts)

    def encode_with_special(self, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """The same, with the tokens that the post-processor puts around a text."""
        return self._encodings("encode_with_special", texts)

    def count(self, texts: Sequence[str]) -> tuple[Counted, ...]:
        """How many tokens ``encode`` makes of each text, and how many of them are the unknown one.

        Raises TokenizerFailure ("rejected") for a text that the library refuses.
        """

        def read(answer: object) -> tuple[Counted, ...]:
            if not isinstance(answer, list) or len(answer) != len(texts):
                raise TypeError
            return tuple(Counted(*_ids(counts)) for counts in answer)

        return self._question({"count": list(texts)}, read)

    def decode(self, sequences: Iterable[Sequence[int]]) -> tuple[str, ...]:
        """The text of each list of ids, special tokens included; ids that no token has are left out."""
        asked = [[id for id in ids if 0 <= id < 1 << 32] for ids in sequences]

        def read(answer: object) -> tuple[str, ...]:
            if not isinstance(answer, list) or not all(isinstance(text, str) for text in answer):
                raise TypeError
            return tuple(text for _, text in zip(asked, answer, strict=True))

        return self._question({"decode": asked}, read)

    def rebuild(self, document: bytes, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """``encode`` the texts with another tokenizer.json, which is loaded for this question only.

        A document that the library rejects leaves the child as it was.
        """
        return self._encodings("encode", texts, document)

    def unreachable(self, *, most_tokens: int | None) -> tuple[int, ...]:
        """Ids of the base tokens that their own text never encodes to, in order.

        Left out are added tokens, byte-fallback tokens (<0x0A>), and tokens of a single byte or of no whole
        character. Raises NotAsked where the base vocabulary has more than ``most_tokens``; None is no limit.
        """
        base_tokens = self.loaded().base_tokens
        if most_tokens is not None and base_tokens > most_tokens:
            raise NotAsked(f"{base_tokens} tokens are too many to try one by one")
        return self._question({"unreachable": True}, _ids)

    def close(self) -> None:
        """End the child and reap it. Calling it again does nothing."""
        if self._requests.closed:
            return
        self._lost = self._lost or failure("died", "it was ended")
        try:
            self._process.kill()
            self._process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            pass  # it waits for a disk that does not answer: the kernel ends it when the disk does
        finally:
            os.close(self._lifeline)
            for stream in (self._requests, self._answers, self._errors):
                stream.close()

    def _encodings(
        self, how: str, texts: Iterable[str], document: bytes | None = None
    ) -> Mapping[str, tuple[int, ...]]:
        asked = list(dict.fromkeys(texts))

        def read(answer: object) -> Mapping[str, tuple[int, ...]]:
            if not isinstance(answer, list):
                raise TypeError
            pairs = zip(asked, answer, strict=True)
            return {text: _ids(found) for text, found in pairs if found is not None}

        rebuild = {} if document is None else {"rebuild": len(document)}
        return self._question({how: asked, **rebuild}, read, document or b"")

    def _question(
        self, request: Mapping[str, object], read: Callable[[object], T], attachment: bytes = b""
    ) -> T:
        self.loaded()
        body = json.dumps(request).encode()
        message = len(body).to_bytes(_LENGTH_BYTES, "big") + body + attachment
        return self._ask(message, time.monotonic() + self._limits.answer_seconds, read)

    def _ask(self, message: bytes, deadline: float, read: Callable[[object], T]) -> T:
        """Send the message and read the next answer; whatever goes wrong ends the child, a refusal aside."""
        if self._lost is not None:
            raise self._lost
        try:
            reply = self._exchange(message, deadline)
            try:
                return read(_answer(reply))
            except (ValueError, TypeError, KeyError, RecursionError):
                raise failure("died", "its answer is malformed") from None
        except TokenizerFailure as error:
            if error.kind != "rejected":
                self._lose(error)
            raise
        except BaseException:
            self.close()
            raise

    def _lose(self, error: TokenizerFailure) -> None:
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
        return bytes(reply[_LENGTH_BYTES:])

    def _complete(self, reply: bytearray) -> bool:
        if len(reply) < _LENGTH_BYTES:
            return False
        length = int.from_bytes(reply[:_LENGTH_BYTES], "big")
        if length > self._limits.reply_bytes:
            raise failure("died", f"its answer has {length} bytes, more than {self._limits.reply_bytes}")
        return len(reply) >= _LENGTH_BYTES + length

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
                raise failure("timeout", "the limit on wall time was reached")
            self._watch_memory()

    def _watch_memory(self) -> None:
        command = ["/bin/ps", "-o", "rss=", "-p", str(self._process.pid)]
        kibibytes = subprocess.run(command, capture_output=True, check=False).stdout.strip()
        if kibibytes.isdigit() and int(kibibytes) * 1024 > self._limits.memory_bytes:
            raise failure("memory", f"more than {size(self._limits.memory_bytes)}")

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

    def _death(self) -> TokenizerFailure:
        """Why the child closed its answers: it ended, and its stderr may tell more."""
        try:
            returncode = self._process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return failure("died", "it closed its answers")
        while self._keep_errors():
            pass
        return death(returncode, self._stderr.decode("utf-8", "replace"))


def _answer(reply: bytes) -> object:
    """The value of an answer. Raises the failure that it reports, or ValueError and the like."""
    found = json.loads(reply)
    if "failure" in found:
        kind, cause = found["failure"]
        raise failure(_REPORTED[kind], str(cause))
    return found["answer"]


def _load_result(answer: object) -> LoadResult:
    match answer:
        case {"version": str(version), "base_tokens": int(base), "tokens": int(tokens), "added": list(added)}:
            if all(type(content) is str and type(id) is int for content, id in added):
                return LoadResult(version, dict(added), base, tokens)
    raise TypeError


def _ids(answer: object) -> tuple[int, ...]:
    if not isinstance(answer, list) or not all(type(id) is int for id in answer):
        raise TypeError
    return tuple(answer)
