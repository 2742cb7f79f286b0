"""``python -m tokaudit``."""

import os
import sys

# `-m` puts the current directory first on sys.path, so that a model directory's own json.py would be imported
# (isolated mode and `-P` do not). The package itself is found by now, wherever it lies.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from tokaudit.cli import main

# All that a run leaves was written and flushed by `main`. Taking down torch and a million objects one by one
# would last as long as reading a table; the kernel frees them at once.
os._exit(main())
