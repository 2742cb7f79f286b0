from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, SpecialToken
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class StaleSpecialTokensMap(Rule):
    """An older special_tokens_map.json overrides what tokenizer_config.json says.

    ## What it finds

    Special tokens with other texts in `special_tokens_map.json` than in a `tokenizer_config.json` without
    `added_tokens_decoder`, which is how transformers 5 writes it. With an `added_tokens_decoder` the map is
    not read, and differences do not matter.

    ## Why it matters

    transformers 5 no longer writes the map, and still reads it first. Saving with version 5 into a directory
    that version 4 wrote leaves the old map in place, and every change of a special token since is undone when
    the tokenizer is loaded.

    ## How to fix it

    Delete `special_tokens_map.json`: `tokenizer_config.json` says everything that it says.
    """

    code = "TA413"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        stated = contract.tokenizer_config.at.file
        winners = {token.name: token for token in contract.special_tokens}
        undone = [
            (token, winners[token.name])
            for token in contract.stale_special_tokens
            if token.at.file == stated and token.role and token.content != winners[token.name].content
        ]
        if not undone:
            return
        words = [_words(old, new) for old, new in undone]
        first, winner = undone[0]
        yield self.finding(
            f"special_tokens_map.json overrides {counted(len(undone), 'special token')} of "
            f"tokenizer_config.json: {listed(words, 3)}",
            [
                Claim(winner.at, f"{winner.name} is {shown(winner.content)}, and counts"),
                Claim(first.at, f"{first.name} is {shown(first.content)}, and does not"),
            ],
            why="the tokenizer is loaded with the older tokens",
            fix="delete special_tokens_map.json",
            subject=first.name,
        )


def _words(loser: SpecialToken, winner: SpecialToken) -> str:
    return f"{loser.name} is {shown(winner.content)} instead of {shown(loser.content)}"
