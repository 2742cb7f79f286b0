"""The command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
RUN = "import sys; from tokaudit.cli import main; sys.exit(main())"


def environment(**changes: str) -> dict[str, str]:
    """That of the tests without what tokaudit looks at, in UTF-8 and 80 columns wide."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "LC_", "TOKAUDIT_"))
    }
    return {**kept, "PYTHONPATH": str(PROJECT), "LC_ALL": "C.UTF-8", "COLUMNS": "80", **changes}


def tokaudit(
    *arguments: str | Path, cwd: Path, script: str = RUN, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run it; ``script`` may play another part of tokaudit first."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
