"""Growing a vocabulary: plan.py says what will be done, write.py does it, run.py proves it.

Only this package (and values/ and training/) imports torch.
"""

from tokaudit.resize.plan import NewToken, Plan, Refused, Request
from tokaudit.resize.run import Result, plan_resize, resize

__all__ = ["NewToken", "Plan", "Refused", "Request", "Result", "plan_resize", "resize"]
