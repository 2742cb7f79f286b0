"""The texts whose encodings a lock pins: behaviour, where structure looks the same."""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import SpecialToken, Vocabulary

TEXTS = (
    "",
    "The quick brown fox jumps over the lazy dog.",
    "Hello, world! How's it going?",
    " a leading space",
    "two  spaces,   three    four",
    "0 1 12 123 1234 12345 3.14 1,000,000",
    "2024-01-31T23:59:59 +49 (0)30 x10 7th",
    "one\ntwo\n\nthree\r\nfour\tfive\n",
    "I'm you're he'll we've they'd don't IT'S",
    "CamelCase snake_case kebab-case ALLCAPS",
    "def f(x):\n    return x[0] != None  # ok\n",
    '{"key": [1, 2], "b": null} <p class="x">&amp;</p>',
    "https://example.com/a?b=c&d=%20 me@example.com",
    "Z\u00fcrich na\u00efve stra\u00dfe \u0130stanbul",
    "cafe\u0301 n\u0303 \u1e69\u0323",  # combining marks
    "\ufb01ne \uff21\uff22 \u2460 \u00bd x\u00b2 \u2126",  # compatibility characters
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4 \uc548\ub155",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600 \U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "a\u00a0b\u2003c\u200bd\ufeffe",
)
MOST_ADDED = 16  # of the added tokens, so many from either end
LONGEST_TOKEN = 200


def probe_texts(vocabulary: Vocabulary, special: tuple[SpecialToken, ...]) -> tuple[str, ...]:
    """The fixed texts, and one around each token with a role and around some of the added tokens."""
    return (*TEXTS, *dict.fromkeys(map(around, _tokens(vocabulary, special))))


def around(content: str) -> str:
    """A text that shows whether the token is matched, and what happens to the spaces beside it."""
    return f"a{content}b {content} c"


def _tokens(vocabulary: Vocabulary, special: tuple[SpecialToken, ...]) -> Iterator[str]:
    added = sorted(vocabulary.added, key=lambda token: (token.id, token.content))
    ends = added if len(added) <= 2 * MOST_ADDED else (*added[:MOST_ADDED], *added[-MOST_ADDED:])
    roles = sorted({token.content for token in special if token.role is not None and token.content})
    for content in dict.fromkeys((*(token.content for token in ends), *roles)):
        if content and len(content) <= LONGEST_TOKEN:
            yield content
