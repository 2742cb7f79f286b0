"""The isolated process that runs the Hugging Face `tokenizers` library on untrusted files."""

from __future__ import annotations

from tokaudit.tokenizing.failures import NotAsked, TokenizerFailure
from tokaudit.tokenizing.process import Limits, LoadResult, TokenizerProcess, start
from tokaudit.tokenizing.renumber import effective_ids

__all__ = [
    "Limits",
    "LoadResult",
    "NotAsked",
    "TokenizerFailure",
    "TokenizerProcess",
    "effective_ids",
    "start",
]
