"""What a command leaves for `main` to print and to turn into an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokaudit.report import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """``output`` is for standard output, ``complaint`` for standard error ("" for none).

    ``verdict`` is None for a command that judges nothing.
    """

    output: str
    verdict: Verdict | None = None
    complaint: str = ""
