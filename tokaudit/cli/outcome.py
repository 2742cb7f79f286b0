"""What a command leaves for `main` to print and to turn into an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokaudit.errors import TokauditError
    from tokaudit.report import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """``output`` is for standard output, ``complaint`` for standard error ("" for none).

    ``verdict`` is None for a command that judges nothing. ``written`` are the files that are there already:
    where ``output`` cannot be printed, they are named.
    """

    output: str
    verdict: Verdict | None = None
    complaint: str = ""
    written: Sequence[str] = ()


def as_far_as_read(output: str, errors: Sequence[TokauditError]) -> Outcome:
    """What a command shows; with errors it is not all: exit code 2, and a line."""
    if not errors:
        return Outcome(output)
    from tokaudit.cli import streams
    from tokaudit.report import Verdict

    return Outcome(output, Verdict.NO_VERDICT, streams.error_lines(errors))
