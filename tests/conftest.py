"""Shared fixtures: where the files published by others lie."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell starts background jobs with SIGINT ignored, and so would every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROJECT = Path(__file__).resolve().parents[1]
SHARED = PROJECT.parent / "shared"


@pytest.fixture(scope="session")
def real() -> Path:
    """../shared/real: tokenizers and checkpoints as others published them; never part of the project."""
    folder = SHARED / "real"
    if not folder.is_dir():
        pytest.skip("../shared/real is not here: the files published by others are not part of the project")
    return folder
