"""The child process: runs the `tokenizers` library on one untrusted tokenizer.json.

``tokaudit.tokenizing.process`` starts it; ``tokaudit.isolation.child`` says how they talk. The first answer,
what was loaded, needs no request.

Nothing else of tokaudit is imported: the process must start as fast as the library does.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

# `-I` hides packages that come by PYTHONPATH or lie in the user's site: they are where tokaudit was found.
# This very tokaudit comes first, and everything else from there last.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tokaudit.isolation.child import LENGTH_BYTES, confined, respond

sys.path.append(sys.path.pop(0))

import tokenizers
from tokenizers import Tokenizer, decoders

T = TypeVar("T")

TEXTS_AT_ONCE = 4096  # bounds the memory that the encodings of a whole vocabulary take
TEXTS_IN_ONE = 50
LONGEST_TEXT = 4096  # characters; a longer token is left out, it would be tried in twenty texts
BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
UNKNOWN_TEXT = "\U0010fffd"  # a private character: in no vocabulary, so it encodes to the unknown token
OTHER_UNKNOWN_TEXT = "\U0010fffc"

# Pre-tokenizers split where the kind of character changes: a token in the middle of a word needs a neighbour
# of its own kind. Lower case, letters without case (CJK), digits, punctuation, symbols.
NEIGHBOUR_KINDS = ("Ll", "Lo", "Nd", "Po", "So")
FRAMES = ("{c}{text}{c}", "{c}{text}", "{text}{c}", "{c} {text}")


def main() -> None:
    document, answers = confined()
    session = Session()
    respond(answers, partial(session.load, document))
    with open(0, "rb") as requests:
        while header := requests.read(LENGTH_BYTES):
            request = json.loads(requests.read(int.from_bytes(header, "big")))
            document_bytes = requests.read(request["rebuild"]) if "rebuild" in request else None
            respond(answers, partial(session.answer, request, document_bytes))


class Session:
    """The tokenizer of the file, set to turn text into tokens and nothing else, and its post-processor."""

    def load(self, document: int) -> object:
        self.tokenizer = load(read(document))
        self.post_processor = self.tokenizer.post_processor
        self.tokenizer.post_processor = None
        self.added = added_ids(self.tokenizer)
        return {
            "version": tokenizers.__version__,
            "base_tokens": self.tokenizer.get_vocab_size(with_added_tokens=False),
            "tokens": self.tokenizer.get_vocab_size(),
            "added": list(self.added.items()),
        }

    def answer(self, request: Mapping[str, Any], rebuilt: bytes | None) -> object:
        if "unreachable" in request:
            return unreachable(self.tokenizer, self.added)
        if "decode" in request:
            return decode(self.tokenizer, request["decode"])
        if "count" in request:
            return count(self.tokenizer, request["count"])
        if "encode_with_special" in request:
            self.tokenizer.post_processor = self.post_processor
            try:
                return encode(self.tokenizer, request["encode_with_special"], special=True)
            finally:
                self.tokenizer.post_processor = None
        tokenizer = self.tokenizer
        if rebuilt is not None:
            tokenizer = load(rebuilt)
            tokenizer.post_processor = None
        return encode(tokenizer, request["encode"])


def read(fd: int) -> bytes:
    """The whole file. The offset is left alone: the parent shares it."""
    size = os.fstat(fd).st_size
    parts: list[bytes] = []
    at = 0
    while at < size and (part := os.pread(fd, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def load(document: bytes) -> Tokenizer:
    """The tokenizer without padding and truncation (which can be huge), and without random dropout."""
    try:
        tokenizer = Tokenizer.from_buffer(document)
    except Exception as error:
        raise ValueError(str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    return tokenizer


def added_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of each added token.

    ``get_added_tokens_decoder`` goes by id and so hides all but the last of the tokens that share one; the
    whole vocabulary, which is slow to get, is asked only when the count shows that a new token is hidden.
    """
    added = {token.content: id for id, token in tokenizer.get_added_tokens_decoder().items()}
    model = tokenizer.model
    new = sum(model.token_to_id(content) is None for content in added)
    if tokenizer.get_vocab_size() != tokenizer.get_vocab_size(with_added_tokens=False) + new:
        base = tokenizer.get_vocab(with_added_tokens=False)
        added |= {text: id for text, id in tokenizer.get_vocab().items() if text not in base}
    return added


def encode(tokenizer: Tokenizer, texts: list[str], *, special: bool = False) -> list[list[int] | None]:
    """The ids of each text, None for a text that the library refuses (as WordLevel does without "unk")."""
    try:
        return [found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens=special)]
    except MemoryError:
        raise
    except Exception:
        if len(texts) == 1:
            return [None]
        return [ids for text in texts for ids in encode(tokenizer, [text], special=special)]


def count(tokenizer: Tokenizer, texts: list[str]) -> list[tuple[int, int]]:
    """For each text the number of its tokens and of the unknown ones among them.

    The unknown token is what two characters that are in no vocabulary both end in; where characters can be
    spelled in bytes the two differ, and there is none.
    """
    ends = {ids[-1] if ids else None for ids in encode(tokenizer, [UNKNOWN_TEXT, OTHER_UNKNOWN_TEXT])}
    unknown = ends.pop() if len(ends) == 1 else None
    counts = []
    for ids in encode(tokenizer, texts):
        if ids is None:
            raise ValueError("a text holds what is in no token, and there is no unknown token")
        counts.append((len(ids), ids.count(unknown) if unknown is not None else 0))
    return counts


def decode(tokenizer: Tokenizer, sequences: list[list[int]]) -> list[str]:
    """The text of each list of ids, special tokens included."""
    spell_bytes(tokenizer)
    return list(tokenizer.decode_batch(sequences, skip_special_tokens=False))


def spell_bytes(tokenizer: Tokenizer) -> None:
    """Have byte symbols decoded also where the file names no decoder."""
    if tokenizer.decoder is None and "ByteLevel" in f"{tokenizer.pre_tokenizer}{tokenizer.normalizer}":
        tokenizer.decoder = decoders.ByteLevel()


def unreachable(tokenizer: Tokenizer, added: Iterable[str]) -> list[int]:
    """Ids of the base tokens that no text made of the token's own text encodes to, in order.

    Every id that any tried text yields is reachable, whichever text was meant for it. So the first pass puts
    many tokens into one text, which is fast and settles most; the rest are tried alone, and then beside
    neighbours. Left out are added tokens, byte-fallback tokens, tokens of one byte or of no whole character,
    and very long ones. (The idea is that of Land and Bartolo, "Fishing for Magikarp", 2024.)
    """
    seen: set[int] = set()

    def still_unseen(pending: dict[int, str], attempts: Iterable[str]) -> dict[int, str]:
        for batch in batches(attempts):
            for ids in encode(tokenizer, batch):
                seen.update(ids or ())
        return {id: text for id, text in pending.items() if id not in seen}

    texts = own_texts(tokenizer, set(added))
    lines = list(texts.values())
    pending = still_unseen(
        texts, ["\n".join(lines[i : i + TEXTS_IN_ONE]) for i in range(0, len(lines), TEXTS_IN_ONE)]
    )
    pending = still_unseen(pending, [*pending.values(), UNKNOWN_TEXT])
    if pending:
        for c in neighbours(lines, {text for id, text in texts.items() if id in seen}):
            for frame in FRAMES:
                pending = still_unseen(pending, [frame.format(c=c, text=text) for text in pending.values()])
    return sorted(id for id, text in pending.items() if len(text.encode()) > 1)


def own_texts(tokenizer: Tokenizer, added: set[str]) -> dict[int, str]:
    """The text that each base token stands for, in the order of ids.

    Left out are tokens that hold no whole characters, and those that share an id: which of their texts the
    library gives back differs from run to run. So does the order of its vocabulary.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    uses = Counter(vocabulary.values())
    contents = {
        id: text
        for text, id in sorted(vocabulary.items(), key=itemgetter(1))
        if uses[id] == 1 and text not in added and not BYTE_TOKEN.fullmatch(text)
    }
    prefix = getattr(tokenizer.model, "continuing_subword_prefix", None) or ""
    suffix = getattr(tokenizer.model, "end_of_word_suffix", None) or ""
    spell_bytes(tokenizer)
    texts: dict[int, str] = {}
    for batch in batches(contents):
        decoded = tokenizer.decode_batch([[id] for id in batch], skip_special_tokens=False)
        for id, text in zip(batch, decoded, strict=True):
            whole = "\ufffd" not in text or "\ufffd" in contents[id]
            if whole and len(text) <= LONGEST_TEXT:
                texts[id] = text.removeprefix(prefix).removesuffix(suffix)
    return texts


def neighbours(lines: Iterable[str], reachable: Iterable[str]) -> list[str]:
    """For each kind of character the reachable one that the fewest tokens hold: it merges with the least."""
    uses = Counter("".join(lines))
    rarest: dict[str, str] = {}
    for char in sorted(
        {text.strip() for text in reachable if len(text.strip()) == 1}, key=lambda c: (uses[c], c)
    ):
        rarest.setdefault(unicodedata.category(char), char)
    return [rarest[kind] for kind in NEIGHBOUR_KINDS if kind in rarest]


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    stream = iter(items)
    while batch := list(islice(stream, TEXTS_AT_ONCE)):
        yield batch


if __name__ == "__main__":
    main()
