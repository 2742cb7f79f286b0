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
    "NewToken": "tokaudit.resize.request",
    "Plan": "tokaudit.resize.plan",
    "Refused": "tokaudit.resize.request",
    "Request": "tokaudit.resize.request",
    "Result": "tokaudit.resize.run",
    "plan_resize": "tokaudit.resize.prepare",
    "resize": "tokaudit.resize.run",
}


def __getattr__(name: str) -> object:
    from tokaudit.lazily import found

    return found(__name__, _HOME, name)
