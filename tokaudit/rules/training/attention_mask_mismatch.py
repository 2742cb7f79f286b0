from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._positions import id_at
from tokaudit.text import counted

if TYPE_CHECKING:
    from tokaudit.contract.batch import AttentionMask


class AttentionMaskMismatch(Rule):
    """The attention mask of a batch lets padding through, or hides tokens.

    ## What it finds

    Padding at either end of a sequence where the mask is not 0, and other tokens where it is. The first pad
    token next to the text is not counted: it may be the text's end, or its beginning. Padding with another
    id than the pad token's is fine where the mask hides it. Without a mask, a model of transformers is known
    to attend to everything: padding to the left is found then, and for encoders padding to the right.

    It looks at a batch in memory: `tokaudit.training.audit_batch`. Masks with three and four axes, masks
    that hold numbers to add, and batches without padding have nothing to find.

    ## Why it matters

    Padding that is attended to changes what the model computes for the text, more so the longer it is, and
    the model at hand has never seen it. Tokens that are hidden are trained on as if they were not there.

    ## How to fix it

    Take the mask that the tokenizer returns with the ids, and pad both together (`tokenizer.pad`). A mask
    from `input_ids != pad_id` is right as long as no text holds the pad token.
    """

    code = "TA923"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        for mask in contract.batch.masks:
            if mask.attended:
                yield self._attended(mask)
            if mask.hidden:
                yield self._hidden(mask)

    def _attended(self, mask: AttentionMask) -> Finding:
        without = "" if mask.given else f", and there is no {mask.mask}"
        are = "is padding" if mask.attended.count == 1 else "are padding"
        return self.finding(
            f"{counted(mask.attended.count, 'position')} of {mask.ids} that the model attends to {are}"
            f"{without}: first {id_at(mask.attended)}",
            [
                mask.attended.says(f"the pad token, {mask.pad_id}"),
                Claim(Location("batch", tensor=mask.mask), "not 0 there" if mask.given else "not given"),
            ],
            why="what the model computes for the text depends on how much padding there is",
            fix=f"give the {mask.mask} that the tokenizer returns, 0 on padding",
            subject=f"{mask.mask} padding",
        )

    def _hidden(self, mask: AttentionMask) -> Finding:
        are = "is no padding" if mask.hidden.count == 1 else "are no padding"
        return self.finding(
            f"{counted(mask.hidden.count, 'position')} of {mask.ids} that {mask.mask} hides {are}: "
            f"first {id_at(mask.hidden)}",
            [
                mask.hidden.says(f"a token that is not the pad token, {mask.pad_id}"),
                Claim(Location("batch", tensor=mask.mask), "0 there"),
            ],
            why="the model trains as if these tokens were not there",
            fix=f"{mask.mask} is 1 on tokens and 0 on padding; look for one that is inverted or cut",
            subject=f"{mask.mask} tokens",
        )
