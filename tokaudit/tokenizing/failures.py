"""What can go wrong in the isolated process, and how its death is read."""

from __future__ import annotations

import re
import signal
from typing import Literal

from tokaudit.errors import FactMissing, TokauditError
from tokaudit.text import inert

Kind = Literal["rejected", "panicked", "aborted", "timeout", "memory", "died"]

LONGEST_CAUSE = 200
_OPENINGS: dict[Kind, str] = {
    "rejected": "the tokenizers library rejects it",
    "panicked": "the tokenizers library panics on it",
    "aborted": "the tokenizers library aborts on it",
    "timeout": "the tokenizers library takes too long on it",
    "memory": "the tokenizers library takes too much memory on it",
    "died": "the process that runs the tokenizers library failed",
}


class TokenizerFailure(TokauditError):
    """The library refused the file, or its process died or ran into a limit.

    ``message`` is one safe line. ``kind`` is "rejected" (the library raised), "panicked", "aborted" (a
    signal), "timeout", "memory", or "died" (anything else: no library, a broken answer).
    """

    def __init__(self, reason: str, kind: Kind) -> None:
        super().__init__(reason)
        self.kind: Kind = kind


class NotAsked(FactMissing):
    """The question was not put to the library: its answer would cost too much."""


def failure(kind: Kind, cause: str) -> TokenizerFailure:
    """A failure with its cause, which may be the library's own words about the file: cut and made inert."""
    words = inert(" ".join(cause.split()))
    if len(words) > LONGEST_CAUSE:
        words = words[:LONGEST_CAUSE] + "\u2026"
    return TokenizerFailure(f"{_OPENINGS[kind]}: {words}" if words else _OPENINGS[kind], kind)


def death(returncode: int, stderr: str) -> TokenizerFailure:
    """What an exit status (negative: a signal) and the captured stderr amount to."""
    allocation = re.search(r"memory allocation of \d+ bytes failed|MemoryError", stderr)
    if allocation:
        return failure("memory", allocation[0])
    if returncode == -signal.SIGXCPU:
        return failure("timeout", "the limit on processor time was reached")
    if returncode == -signal.SIGKILL:
        return failure("died", "it was killed, perhaps by the system for lack of memory")
    if returncode < 0:
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", stderr)
        name = signal.Signals(-returncode).name
        return failure("aborted", f"{name}, {panic[1]}" if panic else name)
    return failure("died", (stderr.strip().splitlines() or [f"exit status {returncode}"])[-1])
