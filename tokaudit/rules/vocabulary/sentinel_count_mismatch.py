from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted

_SENTINEL = re.compile(r"\u2581?<extra_id_(\d+)>")


class SentinelCountMismatch(Rule):
    """extra_ids says another number of sentinels than are listed.

    ## What it finds

    An `extra_ids` above 0 in `tokenizer_config.json` (T5 and its kin) that is not the number of
    `<extra_id_N>` tokens among the additional special tokens or, where none is listed there, in the
    vocabulary.

    ## Why it matters

    transformers 4 refuses to load such a tokenizer. Version 5 goes by the list, so that a model gets other
    ids for its sentinels than it was trained with.

    ## How to fix it

    Set `extra_ids` to the number of sentinels that the vocabulary has.
    """

    code = "TA416"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        stated = contract.tokenizer_config.integer("extra_ids")
        listed = {
            token.content: token.at
            for token in contract.special_tokens
            if token.role is None and _SENTINEL.fullmatch(token.content)
        } or _in_vocabulary(contract)
        if stated.value <= 0:
            return
        if not listed:
            raise FactMissing("no sentinel is listed")
        if stated.value == len(listed):
            return
        last = max(listed, key=lambda content: int(content.split("_")[-1].rstrip(">")))
        yield self.finding(
            f"extra_ids is {stated.value}, and {counted(len(listed), 'sentinel')} listed",
            [
                stated.says(f"states {stated.value}"),
                Claim(listed[last], f"{last} is the last of {len(listed)}"),
            ],
            why="transformers 4 refuses to load the tokenizer, version 5 goes by the list",
            fix=f'set "extra_ids": {len(listed)} in tokenizer_config.json',
        )


def _in_vocabulary(contract: Contract) -> dict[str, Location]:
    """The sentinels of the vocabulary, each at its first witness."""
    vocabulary = contract.vocabulary
    contents = [content for content in vocabulary.by_content if _SENTINEL.fullmatch(content)]
    return {content: vocabulary.token(content).at for content in contents}
