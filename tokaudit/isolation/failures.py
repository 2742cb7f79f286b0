"""What can go wrong in an isolated process, and how its death is read."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Literal

from tokaudit.errors import TokauditError
from tokaudit.text import inert

Kind = Literal["rejected", "panicked", "aborted", "timeout", "memory", "died"]

LONGEST_CAUSE = 200


class ProcessFailure(TokauditError):
    """The file was refused, or the process died or ran into a limit.

    ``message`` is one safe line. ``kind`` is "rejected" (the child raised), "panicked", "aborted" (a signal),
    "timeout", "memory", or "died" (anything else: no library, a broken answer).
    """

    def __init__(self, reason: str, kind: Kind) -> None:
        super().__init__(reason)
        self.kind: Kind = kind


Fail = Callable[[Kind, str], ProcessFailure]  # the failure of a kind, and its cause in words of the child


def one_line(opening: str, cause: str) -> str:
    """Both as one line. The cause may be a library's own words about the file: it is cut and made inert."""
    words = inert(" ".join(cause.split()))
    if len(words) > LONGEST_CAUSE:
        words = words[:LONGEST_CAUSE] + "\u2026"
    return f"{opening}: {words}" if words else opening


def death(returncode: int, stderr: str) -> tuple[Kind, str]:
    """What an exit status (negative: a signal) and the captured stderr amount to."""
    allocation = re.search(r"memory allocation of \d+ bytes failed|MemoryError", stderr)
    if allocation:
        return "memory", allocation[0]
    if returncode == -signal.SIGXCPU:
        return "timeout", "the limit on processor time was reached"
    if returncode == -signal.SIGKILL:
        return "died", "it was killed, perhaps by the system for lack of memory"
    if returncode < 0:
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", stderr)
        name = signal.Signals(-returncode).name
        return "aborted", f"{name}, {panic[1]}" if panic else name
    return "died", (stderr.strip().splitlines() or [f"exit status {returncode}"])[-1]
