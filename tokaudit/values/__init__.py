"""The values of the tables (torch): read once, in chunks, by as many threads as there are processors."""

from __future__ import annotations

import warnings

# torch warns where NumPy is missing; nothing here needs it.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
