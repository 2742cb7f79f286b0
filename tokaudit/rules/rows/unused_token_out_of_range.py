from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._beyond import row_limit, shown_strays, stray_tokens
from tokaudit.text import listed


class UnusedTokenOutOfRange(Rule):
    """A token that nothing refers to has an id past the last row of the input embeddings.

    ## What it finds

    Added tokens with ids at or above the number of input rows that have no role, are named in no
    configuration, are emitted by no post-processor and printed by no chat template; and placeholders
    for images, audio and video, whose ids model classes swap before the lookup. Released models look
    like this: Gemma 3 1B keeps the image placeholder of its larger siblings, the 34B CodeLlama the four
    infilling tokens, Baichuan 2 a left-over `added_tokens.json`.

    ## Why it matters

    The model works until the token is typed into a prompt or trained on; then the lookup fails as in
    `token-id-out-of-range`.

    ## How to fix it

    To use the tokens, give them rows: `tokaudit resize SRC DST --rows N` with N the largest id + 1.
    Otherwise take their entries out of the tokenizer's files, or leave them and never put them into a
    text.
    """

    code = "TA102"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        limit = row_limit(contract)
        unused = stray_tokens(contract, limit).unused
        if not unused:
            return
        shown = shown_strays(contract, unused)
        names = listed([stray.words for stray in shown], total=len(unused))
        have = (
            "token id that nothing refers to has"
            if len(unused) == 1
            else "token ids that nothing refers to have"
        )
        yield self.finding(
            f"{len(unused)} {have} no row: {names}; {limit.words}",
            [*(stray.claim for stray in shown[:3]), limit.claim],
            why="a text that contains one of them makes the lookup fail",
            fix=f"`tokaudit resize SRC DST --rows {unused[-1] + 1}` gives them rows; "
            "or take their entries out of the tokenizer's files",
        )
