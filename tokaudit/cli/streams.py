"""Standard output and standard error: what they can show, and writing to them come what may.

What they can show is asked of ``sys.__stdout__``: ``sys.stdout`` collects while a command runs.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from tokaudit.cli.arguments import one_of
from tokaudit.errors import TokauditError, Unreadable
from tokaudit.text import inert, listed

if TYPE_CHECKING:
    from tokaudit.contract import Lock
    from tokaudit.reporters import View

# The words of the dynamic loader, of the C library, of torch's allocator, and of Python.
_NO_MEMORY = re.compile(
    r"failed to map segment|[Cc]annot allocate memory|can't allocate memory|cannot create thread"
    r"|can't start new thread"
)
COLOUR_CHOICES = ("auto", "always", "never")


def view(colour: str = "auto") -> View:
    """What standard output can show: its width, whether it takes colours, whether it takes more than ASCII.

    Raises UsageError where ``colour`` is not one of COLOUR_CHOICES.
    """
    from tokaudit.reporters import View

    one_of("--color", colour, COLOUR_CHOICES)
    return View(
        width=columns(),
        colour=_wants_colour() if colour == "auto" else colour == "always",
        unicode=_takes_unicode(),
    )


def columns() -> int:
    """How wide the terminal is. Python 3.10 passes on the zero of a terminal that does not know."""
    return shutil.get_terminal_size().columns or 80


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at the stream, through a terminal that moves its cursor."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def _wants_colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(sys.__stdout__)


def _takes_unicode() -> bool:
    """Python writes UTF-8 in the C locale too; a terminal that was declared so may not show it."""
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, names), "")
    encoding = sys.__stdout__.encoding if sys.__stdout__ else "ascii"
    return locale not in ("C", "POSIX") and codecs.lookup(encoding).name == "utf-8"


def write(text: str, written: Sequence[str] = ()) -> None:
    """Print a report. A reader that has gone (``| head``) has seen enough: no error.

    Raises TokauditError where the text cannot be written otherwise; it names what was ``written`` before.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _write_all(sys.stdout, text)
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        message = f"standard output cannot be written: {error.strerror}"
        if written:
            was = "was" if len(written) == 1 else "were"
            message = f"{listed(written)} {was} written, but {message}"
        raise TokauditError(message) from error


def _write_all(stream: TextIO, text: str) -> None:
    """Write without Python's buffer, and go on after a short write.

    Where a disk is full, the buffer would be tried again when Python ends, and a stream without a buffer
    (PYTHONUNBUFFERED) would lose the rest without an error.
    """
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, io.RawIOBase):
        stream.write(text)
        return
    rest = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while rest:
        written = raw.write(rest)
        if written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        rest = rest[written:]


def complain(lines: str) -> None:
    """Print to standard error, if it is there."""
    if not lines or sys.stderr is None:
        return
    with suppress(OSError):
        sys.stderr.write(lines)
        sys.stderr.flush()


def last_words(error: BaseException) -> str:
    """The line for what ended a run: ours to explain, or a bug."""
    if isinstance(error, TokauditError):
        return error_lines([error])
    return trace(error) + error_lines([internal(error)])


def trace(error: BaseException) -> str:
    """Where an internal error happened, for who asks for it."""
    if not os.environ.get("TOKAUDIT_DEBUG"):
        return ""
    import traceback

    return "".join(traceback.format_exception(error))


def internal(error: BaseException) -> Unreadable:
    """A bug, as the part of the input on which it leaves no verdict; or what this machine lacks for it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return Unreadable(
            "no-torch", "", "this needs torch, which is not installed", hint="pip install torch"
        )
    if lacks_memory(error):
        words = "the memory that this process may use does not suffice"
        hint = "is there a limit (ulimit -v, of the container)? --jobs 1 takes the least"
        return Unreadable("no-memory", "", words, hint=hint)
    hint = "please report it, with what TOKAUDIT_DEBUG=1 prints"
    return Unreadable("internal", "", f"internal error, {type(error).__name__}: {error}", hint=hint)


def lacks_memory(error: BaseException) -> bool:
    """Whether an exception says so, also one of a library that was not loaded, of torch, or of a thread."""
    kinds = (ImportError, OSError, RuntimeError)
    says_so = isinstance(error, kinds) and _NO_MEMORY.search(str(error)) is not None
    return says_so or isinstance(error, MemoryError)


def note_lines(notes: Sequence[str]) -> str:
    """A line for each note."""
    return "".join(f"tokaudit: note: {inert(note)}\n" for note in notes)


def error_lines(errors: Sequence[TokauditError]) -> str:
    """One line for the first error, whose hint may follow, and the number of the others."""
    if not errors:
        return ""
    first, *others = errors
    code = f"[{first.code}]" if isinstance(first, Unreadable) else ""
    where = f"{first.file}: " if isinstance(first, Unreadable) and first.file else ""
    rest = f" ... and {len(others)} more, see the report" if others else ""
    hint = f"  hint: {inert(first.hint)}\n" if first.hint else ""
    return f"tokaudit: error{inert(code)}: {inert(where + first.message)}{rest}\n{hint}"


def ignored_keys(lock: Lock | None) -> str:
    """A line for the keys of a lock that this version of tokaudit passes over."""
    if lock is None or not lock.ignored:
        return ""
    keys = inert(listed(lock.ignored, most=3))
    return f"tokaudit: note: {inert(lock.name)}: ignored {keys}, which a newer tokaudit wrote\n"
