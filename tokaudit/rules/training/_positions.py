"""How the rules about a batch name a position in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokaudit.text import named

if TYPE_CHECKING:
    from tokaudit.contract.batch import Positions


def id_at(positions: Positions) -> str:
    """``7 "the" at input_ids[2, 17]``; without the text where no tokenizer tells it."""
    return f"{id_text(positions)} at {positions.place}"


def id_text(positions: Positions) -> str:
    return str(positions.id) if positions.content is None else named(positions.id, positions.content)
