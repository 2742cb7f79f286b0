from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokaudit.contract import AddedToken, Contract, Vocabulary, Witness, present
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed, named


class SpecialTokenSplits(Rule):
    """The text of a special token does not encode to its one id.

    ## What it finds

    Added tokens of tokenizer.json that are special or have a role, and whose own text the `tokenizers`
    library encodes to several ids, or to another token's. Saved padding, truncation and the post-processor
    are switched off for the question. That a token has another id than its file declares is left to
    `renumbered-on-load`.

    ## Why it matters

    The token is written in prompts and training data as text. If its text is split, the model sees pieces
    that it was never trained on, and the token's own row is never used.

    ## How to fix it

    Look for another added token inside the text that is matched first, and remove it or set its
    `normalized` like the special token's (`false` for both). Two added tokens with one id or one normalized
    form shadow each other: keep one.
    """

    code = "TA307"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        encodings = present(vocabulary.loaded.encodings)
        split = [
            (token, encodings[token.content])
            for token in _special(contract, vocabulary)
            if token.content in encodings
            and encodings[token.content] != (vocabulary.loaded.effective.get(token.content),)
        ]
        if not split:
            return
        texts = {id: content for content, id in vocabulary.loaded.effective.items()}
        says = [f"{named(t.id, t.content)} becomes {_tokens(vocabulary, texts, ids)}" for t, ids in split]
        count = "1 special token does" if len(split) == 1 else f"{len(split)} special tokens do"
        yield self.finding(
            f"{count} not encode to one id: {listed(says, most=3)}",
            [Claim(token.at, f"id {named(token.id, token.content)}") for token, _ in split[:3]],
            why="the model sees other tokens in its place, and its own row is never used",
            fix="remove the added token that is matched inside its text, or set `normalized` alike for both",
            subject=split[0][0].content,
        )


def _special(contract: Contract, vocabulary: Vocabulary) -> Iterator[AddedToken]:
    """Added tokens of tokenizer.json that are special or have a role, one per text."""
    roles = {special.content for special in contract.special_tokens if special.role}
    seen: set[str] = set()
    for token in vocabulary.table(Witness.ADDED).entries:
        if token.content and token.content not in seen and (token.special or token.content in roles):
            seen.add(token.content)
            yield token


def _tokens(vocabulary: Vocabulary, texts: Mapping[int, str], ids: tuple[int, ...]) -> str:
    """The tokens that a text became; ``texts`` are those of the effective ids."""
    shown = [named(id, texts.get(id, vocabulary.text(id))) for id in ids[:4]]
    return f"{len(ids)} tokens ({listed(shown, total=len(ids))})" if len(ids) != 1 else shown[0]
