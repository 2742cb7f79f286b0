from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tokaudit.contract import AddedToken, Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown

_WORD = re.compile(r"[^\W\d_]{2,}")
_MARKS = "\u2581\u0120"  # how vocabularies write a space before a word


class AddedTokenShadowsText(Rule):
    """An added token matches inside ordinary text.

    ## What it finds

    Added tokens of one letter, digit or punctuation mark, and added tokens that are words with which longer
    words of the vocabulary begin. Tokens that only match whole words (`single_word`) are fine.

    ## Why it matters

    Added tokens are cut out of the text before anything else: with "new" as an added token, "newspaper" no
    longer becomes the tokens that the model knows. A letter as an added token cuts every word that has it.

    ## How to fix it

    Set `"single_word": true` for a word, or write the token so that it does not occur in text
    (`<|new|>`). A character that is in the base vocabulary needs no added token.
    """

    code = "TA417"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        base = vocabulary.base
        tokens = [token for token in vocabulary.added if not token.single_word]
        characters = [token for token in tokens if len(token.content) == 1 and _is_ordinary(token.content)]
        if characters:
            yield self.finding(
                f"{counted(len(characters), 'added token')} of one ordinary character: "
                + listed([shown(token.content) for token in characters], 5),
                [Claim(token.at, f"matches every {shown(token.content)}") for token in characters[:3]],
                why="every word with the character is cut there before it is tokenized",
                fix="take the token out of the added tokens, or write it as a control token",
                subject="characters",
            )
        words = _cut_words(tokens, base.ids)
        if words:
            some = [f"{shown(token.content)} as in {shown(word)}" for token, word in words]
            yield self.finding(
                f"{counted(len(words), 'added token')} with which other words begin: {listed(some, 3)}",
                [Claim(token.at, f"cuts {shown(word)}") for token, word in words[:3]],
                why="longer words are cut there before they are tokenized",
                fix='set "single_word": true for these tokens',
                subject="words",
            )


def _is_ordinary(character: str) -> bool:
    return character.isprintable() and not character.isspace() and character not in _MARKS


def _cut_words(tokens: list[AddedToken], vocabulary: Mapping[str, int]) -> list[tuple[AddedToken, str]]:
    """Added words, each with a longer word of the vocabulary that begins with it."""
    wanted = {token.content: token for token in tokens if _WORD.fullmatch(token.content)}
    if not wanted:
        return []
    found: dict[str, str] = {}
    lengths = sorted({len(content) for content in wanted})
    for piece in vocabulary:
        word = piece.lstrip(_MARKS)
        for length in lengths:
            start = word[:length]
            if len(word) > length and start in wanted and start not in found and _WORD.fullmatch(word):
                found[start] = word
    return [(wanted[content], word) for content, word in found.items()]
