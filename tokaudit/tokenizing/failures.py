"""How failures of the process that runs the `tokenizers` library are worded."""

from __future__ import annotations

from tokaudit.errors import FactMissing
from tokaudit.isolation.failures import Kind, ProcessFailure, one_line

_OPENINGS: dict[Kind, str] = {
    "rejected": "the tokenizers library rejects it",
    "panicked": "the tokenizers library panics on it",
    "aborted": "the tokenizers library aborts on it",
    "timeout": "the tokenizers library takes too long on it",
    "memory": "the tokenizers library takes too much memory on it",
    "died": "the process that runs the tokenizers library failed",
}


class TokenizerFailure(ProcessFailure):
    """The library refused the file, or its process died or ran into a limit."""


class NotAsked(FactMissing):
    """The question was not put to the library: its answer would cost too much."""


def failure(kind: Kind, cause: str) -> TokenizerFailure:
    """A failure with its cause."""
    return TokenizerFailure(one_line(_OPENINGS[kind], cause), kind)
