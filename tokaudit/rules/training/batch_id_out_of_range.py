from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._positions import id_at
from tokaudit.text import counted

if TYPE_CHECKING:
    from tokaudit.contract.batch import IdRange


class BatchIdOutOfRange(Rule):
    """Ids in a batch select no row.

    ## What it finds

    Ids that are negative or not below the number of rows they select from: `input_ids` and
    `decoder_input_ids` of the input embeddings, `labels` (but for the one that is ignored, -100) of the
    output embeddings, `position_ids` and `token_type_ids` of tables of positions and segments, where the
    model has them; labels of a classifier against its number of classes. Sequences that are longer than a
    table of positions count. The first such position is named.

    It looks at a batch in memory: `tokaudit.training.audit_batch`. Ids of images, audio and video that the
    configuration names are left out: their model classes replace them before the lookup.

    ## Why it matters

    On a CPU the lookup fails with an IndexError. On a GPU it is an assertion of the device, which is
    reported somewhere else and leaves the process unusable.

    ## How to fix it

    Make the batch with the model's own tokenizer. Where tokens were added to it, grow the model with
    `tokaudit resize`. Pad labels with -100, not with -1.
    """

    code = "TA921"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        for found in contract.batch.ranges:
            if found.outside:
                yield self._outside(found)

    def _outside(self, found: IdRange) -> Finding:
        outside = found.outside
        lie = "lies" if outside.count == 1 else "lie"
        return self.finding(
            f"{counted(outside.count, 'id')} of {found.tensor} {lie} outside of 0 to {found.bound - 1}: "
            f"first {id_at(outside)}",
            [
                outside.says(f"id {outside.id}"),
                Claim(Location("module"), f"{found.bound} rows: {found.bound_by}"),
            ],
            why="the lookup fails, and on a GPU takes the process with it",
            fix=_fix(found),
            subject=found.tensor,
        )


def _fix(found: IdRange) -> str:
    if found.tensor in ("position_ids", "token_type_ids"):
        return f"keep {found.tensor} below {found.bound}: shorter sequences, or a model with more rows"
    if found.outside.id < 0:
        return "only labels may be negative, and only the one that is ignored: -100"
    return "make the batch with the model's own tokenizer, or grow the model: `tokaudit resize`"
