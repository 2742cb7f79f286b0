"""Vocabularies outside tokenizer.json: vocab.json, vocab.txt, SentencePiece models, tiktoken ranks.

Each reader gives a TokenTable or raises FactMissing with the reason why the ids cannot be told.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from tokaudit.contract import Document, TokenTable, Witness
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.formats.tokenizer_json import is_id

# The order in which a loader without tokenizer.json would look for its vocabulary.
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")

# Tokenizer classes whose ids are the SentencePiece positions. Others shift them (XLM-R by one, Pegasus by
# 103 ...), or put more in front; for those the .model alone does not tell an id.
PLAIN_SENTENCEPIECE = frozenset(
    {
        "LlamaTokenizer",
        "LlamaTokenizerFast",
        "CodeLlamaTokenizer",
        "CodeLlamaTokenizerFast",
        "GemmaTokenizer",
        "GemmaTokenizerFast",
        "T5Tokenizer",
        "T5TokenizerFast",
        "InternLM2Tokenizer",
        "BaichuanTokenizer",
    }
)


def vocab_json(document: Document, witness: Witness = Witness.COMPANION) -> TokenTable:
    """vocab.json, vocab-src.json, target_vocab.json ...: content to id."""
    ids = {content: id for content, id in document.data.items() if isinstance(id, int) and is_id(id)}
    if len(ids) < len(document.data):
        raise FactMissing(f"{document.at.file} holds values that are no ids")
    return TokenTable(witness, document.at, ids)


def vocab_txt(data: bytes, file: str) -> TokenTable:
    """vocab.txt: the line number is the id. A blank line is a token with an empty text, as loaders count."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FactMissing(f"{file} is not UTF-8: byte {error.start}") from None
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    ids: dict[str, int] = {}
    for index, line in enumerate(lines):
        ids[line.rstrip("\r")] = index
    return TokenTable(Witness.COMPANION, Location(file), ids, style="line")


def merges_txt(data: bytes, file: str) -> tuple[tuple[str, str], ...]:
    """merges.txt: one merge a line, "a b"; the first line may be a version comment."""
    lines = data.decode("utf-8", "replace").split("\n")
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    pairs = [line.rstrip("\r").split(" ") for line in lines if line.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise FactMissing(f"{file} holds a line that is no pair")
    return tuple((left, right) for left, right in pairs)


def tiktoken(data: bytes, file: str) -> TokenTable:
    """A tiktoken rank file: "base64 rank" a line. Bytes are written in GPT-2's alphabet, as converters do."""
    alphabet = byte_alphabet()
    ids: dict[str, int] = {}
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ids["".join(alphabet[byte] for byte in base64.b64decode(token, validate=True))] = int(rank)
        except (ValueError, binascii.Error):
            raise FactMissing(f"{file} is not a tiktoken file") from None
    return TokenTable(Witness.COMPANION, Location(file), ids, style="line")


def byte_alphabet() -> list[str]:
    """GPT-2's printable character for each byte: printable Latin-1 stands for itself, others follow 0x100."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def sentencepiece(data: bytes, file: str, tokenizer_class: str) -> TokenTable:
    """A SentencePiece ModelProto: the position of a piece is its id, for classes that do not shift them.

    Only field 1 (repeated pieces) and its field 1 (the text) are read; see sentencepiece_model.proto.
    """
    if tokenizer_class not in PLAIN_SENTENCEPIECE:
        name = tokenizer_class or "an unnamed tokenizer class"
        raise FactMissing(f"{name} gives the pieces of {file} other ids than their positions")
    ids: dict[str, int] = {}
    try:
        for position, piece in enumerate(field for number, field in _fields(data) if number == 1):
            text = next(value for number, value in _fields(piece) if number == 1)
            ids[text.decode("utf-8")] = position
    except (ValueError, StopIteration):
        raise FactMissing(f"{file} is not a SentencePiece model") from None
    if not ids:
        raise FactMissing(f"{file} holds no pieces")
    return TokenTable(Witness.COMPANION, Location(file), ids, style="line")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message; the others are stepped over."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field is longer than its message")
            yield tag >> 3, data[at : at + length]
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("an unknown wire type")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a cut varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
