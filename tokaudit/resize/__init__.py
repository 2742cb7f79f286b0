"""Growing a vocabulary: plan.py says what will be done, write.py does it, run.py proves it.

    >>> from tokaudit.resize import NewToken, Request, plan_resize, resize
    >>> request = Request(tokens=(NewToken("<|tool|>", special=True),))
    >>> plan_resize("model", request).rows_after
    320
    >>> result = resize("model", "grown", request)

Planning needs no torch; it is imported with `resize`.
"""

from __future__ import annotations

import warnings

# torch warns where NumPy is missing; nothing here needs it.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tokaudit.resize.plan import Plan
    from tokaudit.resize.prepare import plan_resize
    from tokaudit.resize.request import NewToken, Refused, Request
    from tokaudit.resize.run import Result, resize

__all__ = ["NewToken", "Plan", "Refused", "Request", "Result", "plan_resize", "resize"]

_HOME = {
    "NewToken": "request",
    "Plan": "plan",
    "Refused": "request",
    "Request": "request",
    "Result": "run",
    "plan_resize": "prepare",
    "resize": "run",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
