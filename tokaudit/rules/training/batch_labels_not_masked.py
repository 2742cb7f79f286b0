from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._positions import id_at
from tokaudit.text import counted


class BatchLabelsNotMasked(Rule):
    """Padding of a batch has labels.

    ## What it finds

    Labels that are the pad token where the inputs are padding, or labels where the attention mask hides
    their inputs: they should be -100, which the loss ignores. In an encoder-decoder, labels that end (or
    begin) in pad tokens. The pad token next to the text is not counted where only the pad id tells: it may
    be the text's end.

    It looks at a batch in memory: `tokaudit.training.audit_batch`. A loop whose loss ignores the pad token
    itself says so: `audit_batch(..., ignore_id=pad_id)`.

    ## Why it matters

    The loss averages over padding, which is soon predicted well: it looks better than it is, short texts
    count for less, and the model learns to go on with padding after the end of a text.

    ## How to fix it

    `labels = input_ids.masked_fill(attention_mask == 0, -100)`, or a collator that does it.
    """

    code = "TA924"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        found = contract.batch.unmasked
        if found.positions:
            has = "has a label" if found.positions.count == 1 else "have labels"
            yield self.finding(
                f"{counted(found.positions.count, 'position')} of padding {has}: "
                f"first {id_at(found.positions)}",
                [
                    found.positions.says(f"not {found.ignore_id}"),
                    Claim(Location("batch"), f"padding by {found.by}"),
                ],
                why="the loss counts padding, and the model learns to write it",
                fix=f"labels = input_ids.masked_fill(attention_mask == 0, {found.ignore_id})",
                subject="labels",
            )
