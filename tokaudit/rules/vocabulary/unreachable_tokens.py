from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, present
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class UnreachableTokens(Rule):
    """Tokens of the base vocabulary that their own text never encodes to.

    ## What it finds

    Base tokens whose text, encoded by itself, gives other ids: no merges lead to them, the normalizer changes
    their text, or the pre-tokenizer cuts it. Added tokens, byte tokens, tokens of incomplete characters and
    those that share an id (TA402) are not tried, and vocabularies of more than some ten thousand tokens are
    not tried at all.

    ## Why it matters

    Their rows take memory and are never trained: they are the classic source of glitch tokens. Reserved
    places such as `[unused0]` are meant to be so.

    ## How to fix it

    Nothing, in a released model. In a tokenizer that you train, look at the normalizer and the pre-tokenizer
    that was used for training and the one that is saved.
    """

    code = "TA409"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        ids = present(vocabulary.loaded.unreachable)
        if not ids:
            return
        yield self.finding(
            f"{counted(len(ids), 'base token')} that no text encodes to: {contract.names(ids)}",
            [Claim(vocabulary.locate(id), "does not encode to itself") for id in ids[:2]],
            why="their rows are never used or trained",
            fix="nothing in a released model; in a new one, save the pipeline that it was trained with",
        )
