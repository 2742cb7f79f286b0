"""Token data: files of ids are found, each is planned as units, and units are counted side by side (torch).

Everything that a stranger's file says is read in a process of its own; where that one dies, only its unit is
lost.
"""

from __future__ import annotations

import warnings

# torch warns where NumPy is missing; nothing here needs it.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
