"""``python -m tokaudit``."""

import sys

# `-m` puts the current directory first on sys.path, so that a model directory's own json.py would be imported
# (isolated mode and `-P` do not). The package itself is found by now, wherever it lies.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from tokaudit.cli import run

run()
