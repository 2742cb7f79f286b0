"""What the rules about training steps have in common: which rows, and how they are named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokaudit.errors import FactMissing
from tokaudit.text import counted, listed

if TYPE_CHECKING:
    from tokaudit.contract.ledger import Ledger, TableLedger


def new_ids(ledger: Ledger) -> tuple[int, ...]:
    """Raises FactMissing where the ledger was not told which ids are new."""
    if not ledger.new_ids:
        raise FactMissing("the ledger was told of no new ids")
    return ledger.new_ids


def trained(ledger: Ledger) -> Iterator[TableLedger]:
    return (table for table in ledger.tables if table.trained)


def names(ledger: Ledger, ids: Sequence[int]) -> str:
    """``320 "[PAD]", 321 "<x>" and 7 more``."""
    return listed([ledger.named(id) for id in ids[:5]], total=len(ids))


def window(ledger: Ledger) -> str:
    return f"in {counted(ledger.steps, 'step')}"
