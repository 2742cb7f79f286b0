"""Live modules, batches and gradients (torch): what files cannot show.

`audit_module` looks at a module and its optimizer, `audit_batch` at one batch, `GradientLedger` at what
training steps do to each row. `TokauditCallback` (transformers), `TokauditLightningCallback` and `watch`
(hand-written loops) put the three into a run. Findings and reports are those of `tokaudit.check`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tokaudit.errors import RunStopped
    from tokaudit.training.batch import audit_batch
    from tokaudit.training.callbacks.lightning import TokauditLightningCallback
    from tokaudit.training.callbacks.loop import watch
    from tokaudit.training.callbacks.trainer import TokauditCallback
    from tokaudit.training.ledger import GradientLedger
    from tokaudit.training.module import audit_module

__all__ = [
    "GradientLedger",
    "RunStopped",
    "TokauditCallback",
    "TokauditLightningCallback",
    "audit_batch",
    "audit_module",
    "watch",
]

_HOME = {
    "GradientLedger": "tokaudit.training.ledger",
    "RunStopped": "tokaudit.errors",
    "TokauditCallback": "tokaudit.training.callbacks.trainer",
    "TokauditLightningCallback": "tokaudit.training.callbacks.lightning",
    "audit_batch": "tokaudit.training.batch",
    "audit_module": "tokaudit.training.module",
    "watch": "tokaudit.training.callbacks.loop",
}


def __getattr__(name: str) -> object:
    from tokaudit.lazily import found

    return found(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted(__all__)
