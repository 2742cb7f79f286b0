from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule


class MalformedBatch(Rule):
    """Tensors of a batch have a dtype or a shape that models do not take.

    ## What it finds

    Ids that are no integers, or tensors of torch whose integers are not 64 (or 32) bits wide; ids that are
    not [N, L], N sequences of L positions; sequences of several lengths in one list; empty tensors; an
    attention mask of another shape than its ids (masks of three and four axes, and one mask for each kind of
    layer, are fine). For a causal model also labels that are not int64 or not of the shape of `input_ids`.

    It looks at a batch in memory: `tokaudit.training.audit_batch`. Ids with a third axis (multiple choice,
    codebooks) are not judged; a single sequence without an axis for the batch is fine where `cu_seqlens`
    says where its parts end.

    ## Why it matters

    Most of it fails in the first step, with a message about something else. Ids that were read as float32
    have lost their last digits beyond 16,777,216.

    ## How to fix it

    Convert where the ids are made and not in the loop. Pad sequences to one length before stacking them.
    """

    code = "TA922"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        for wrong in contract.batch.malformed:
            yield self.finding(
                f"{wrong.tensor} is {wrong.found}, where {wrong.expected} is expected",
                [Claim(Location("batch", tensor=wrong.tensor), wrong.found)],
                why="the model fails on it, or reads something else than was meant",
                fix=wrong.fix,
                subject=wrong.tensor,
            )
