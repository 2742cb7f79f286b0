from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._positions import id_at, id_text


class BatchEosMasked(Rule):
    """Labels of a batch leave out the end of the texts.

    ## What it finds

    End-of-sequence tokens whose label is -100 while the two positions before have labels. Ends of turns that
    are masked as a whole (prompts) are fine. Where the pad token is the end-of-sequence token, the attention
    mask tells an end from padding; without one the rule is skipped.

    It looks at a batch in memory: `tokaudit.training.audit_batch`.

    ## Why it matters

    A model that is never shown the end of an answer does not stop: it writes until the limit.
    The usual cause is a pad token that is the end-of-sequence token, together with a collator that masks
    every pad token.

    ## How to fix it

    Mask by the attention mask, `labels = input_ids.masked_fill(attention_mask == 0, -100)`, or give the
    tokenizer a pad token of its own (`tokaudit resize --add-token`).
    """

    code = "TA926"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        stops = contract.batch.masked_stops
        if stops.positions:
            has = "end of a text has" if stops.positions.count == 1 else "ends of texts have"
            pads = ", which pads as well" if stops.pads else ""
            yield self.finding(
                f"{stops.positions.count} {has} no label: first {id_at(stops.positions)}",
                [
                    stops.positions.says(f"the end-of-sequence token{pads}"),
                    Claim(Location("batch", tensor="labels"), f"{stops.ignore_id} there"),
                ],
                why=f"a model that is not trained to predict {id_text(stops.positions)} does not stop",
                fix=_fix(stops.pads),
                subject="labels",
            )


def _fix(pads: bool) -> str:
    if pads:
        return "mask labels where the attention mask is 0, not where the pad id stands; or add a pad token"
    return "keep the label of the token that ends a text"
