"""Shared fixtures: where the files published by others lie."""

from __future__ import annotations

from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
SHARED = PROJECT.parent / "shared"


@pytest.fixture(scope="session")
def real() -> Path:
    """../shared/real: tokenizers and checkpoints as others published them; never part of the project."""
    folder = SHARED / "real"
    if not folder.is_dir():
        pytest.skip("../shared/real is not here: the files published by others are not part of the project")
    return folder
