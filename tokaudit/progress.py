"""Signs of life from long work: what is told of the bytes that it reads or writes."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Follows the bytes of a run. Any thread may call it."""

    def start(self, total: int) -> None:
        """``total`` bytes are to be read or written."""

    def advance(self, nbytes: int) -> None:
        """So many more of them were."""


class Quiet:
    """The progress of a caller that wants none."""

    def start(self, total: int) -> None:
        pass

    def advance(self, nbytes: int) -> None:
        pass
