"""Texts that are encoded twice: with tokenizer.json as it stands, and with what the class makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tokaudit.contract import (
    AddedToken,
    Document,
    Missing,
    Rebuilt,
    SpecialToken,
    Treatment,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing
from tokaudit.families.tokenizer_classes import extra_texts, role_texts
from tokaudit.tokenizing.failures import TokenizerFailure
from tokaudit.tokenizing.process import TokenizerProcess
from tokaudit.tokenizing.rebuild import added_again, differences, rebuilds, rebuilt

# No text begins with a space and none follows a special token, where the layouts of SentencePiece models
# differ by design.
PLAIN = (
    "The Theory of Relativity was published in 1905.",
    "Don't stop: it's 12,345.67 (and 89%) of what they'll need!",
    "snake_case, camelCase & UPPER CASE; a@b.com, C:/path <tag> [x] {y} #1",
)
UNUSUAL = (
    "tabs\tand  double spaces\nnew\r\nlines\n\nend",
    "def f(x):\n    return x+1",
    "Z\u00fcrich na\u00efve \u0130stanbul \u00c6sir stra\u00dfe",
    "cafe\u0301 \ufb01ne \uff21\uff22 \u2460 x\u00b2",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \u0645\u0631\u062d\u0628\u0627 \u0928\u092e",
    "\U0001f600\U0001f44d\U0001f3fd",
)
MOST_TOKENS_PROBED = 2000

# Every lower-case letter, some capitals, digits and signs: what a sound tokenizer meets in any text.
ORDINARY = "The quick brown fox jumps over the lazy dog,\nand 9 (of 10) don't mind: it's 2,345.67 KM!"


def use(process: TokenizerProcess) -> None:
    """Encode an ordinary text as callers do, special tokens included, and decode what comes out.

    A text that the library refuses is no failure: a small vocabulary may lack its characters. Raises
    TokenizerFailure where the library panics or dies, or runs out of time or memory.
    """
    ids = process.encode_with_special([ORDINARY]).get(ORDINARY, ())
    try:
        process.decode([ids])
    except TokenizerFailure as failure:
        if failure.kind != "rejected":
            raise


def compare_rebuilt(
    process: TokenizerProcess,
    vocabulary: Vocabulary,
    tokenizer_config: Document | Missing,
    special: tuple[SpecialToken, ...],
) -> Rebuilt:
    """What the tokenizer class builds in place of tokenizer.json, and the encodings of the probes by both.

    The library loads the other pipeline only where it differs. Raises FactMissing where the class takes
    tokenizer.json as it stands or where it is not known what it builds, and TokenizerFailure.
    """
    known = vocabulary.tokenizer_class
    if known.treatment is not Treatment.REBUILT:
        raise FactMissing(f"{known.name} of transformers 5 {known.treatment.value}")
    if not rebuilds(known.name):
        raise FactMissing(f"it is not known what {known.name} of transformers 5 builds")
    settings = tokenizer_config.data if isinstance(tokenizer_config, Document) else {}
    roles = role_texts(known, settings, special)
    extra = extra_texts(known, settings, special)
    document = vocabulary.pipeline.document.data
    added = added_again(_declared(vocabulary, settings), [*roles.values(), *extra])
    other = rebuilt(document, known.name, settings, roles, added)
    if other is None:
        raise FactMissing(f"{known.name} of transformers 5 cannot take this vocabulary")
    parts = differences(document, other)
    if not parts:
        return Rebuilt((), {}, {}, frozenset())
    own = vocabulary.table(Witness.ADDED).ids
    texts = [*PLAIN, *UNUSUAL, *list(own)[:MOST_TOKENS_PROBED]]
    attachment = json.dumps(other, ensure_ascii=False).encode()
    return Rebuilt(parts, process.encode(texts), process.rebuild(attachment, texts), frozenset(UNUSUAL))


def _declared(vocabulary: Vocabulary, settings: Mapping[str, object]) -> Iterator[AddedToken]:
    """The added tokens that a rebuilding class hears of, in its order of reading."""
    witnesses = [Witness.DECODER]
    if "added_tokens_decoder" not in settings:
        witnesses = [Witness.ADDED_FILE, Witness.ADDED]
    for witness in witnesses:
        for table in vocabulary.tables:
            if table.witness is witness:
                yield from table.entries
