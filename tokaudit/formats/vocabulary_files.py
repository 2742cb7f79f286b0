"""Vocabularies outside tokenizer.json: vocab.json, vocab.txt, SentencePiece models, tiktoken, merges.txt.

Each reader gives a TokenTable, or raises FactMissing where the ids cannot be told and Unreadable
("tokenizer-malformed") where the file is damaged.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tokaudit.contract import Document, MergesFile, TokenTable, Witness
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats.tokenizer_json import is_id
from tokaudit.text import shown

Reader = Callable[[bytes], TokenTable]

JSON_FILES = ("vocab.json", "vocab-src.json")
TARGET_FILES = ("target_vocab.json", "vocab-tgt.json")
MERGES_FILE = "merges.txt"
_SENTENCEPIECE_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")

_TOKENIZER_FILES = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|merges\.txt|vocab\.txt|[^/]*\.model|[^/]*\.tiktoken"
)

# Their vocab.txt is a dictionary of fairseq ("token count" a line), whose ids are not the line numbers.
_FAIRSEQ_DICTIONARIES = frozenset({"BertweetTokenizer", "PhobertTokenizer"})
_LINE_END = re.compile(r"\r\n|\r|\n")


# Every other file may hold one: classes have names of their own for it. Merges alone give no ids.
_NO_VOCABULARY = re.compile(
    r"\..*|(LICEN[CS]E|NOTICE|README|requirements)(\.txt)?|additional_chat_templates(/.*)?"
    r"|merges\.txt|bpe\.codes|normalizer\.json"
    r"|(?!vocab)[^/]*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|md|py|jinja|png|jpe?g|ya?ml|toml|lock|log)"
    r"|(tokenizer_|generation_|adapter_|preprocessor_|processor_|video_preprocessor_|quantize_)?config\.json"
    r"|(special_tokens_map|added_tokens|chat_template|trainer_state|[a-z]+_results)\.json|[^/]*\.index\.json"
    r"|modules\.json|sentence_bert_config\.json|config_sentence_transformers\.json"
)


def may_hold_vocabulary(name: str) -> bool:
    """Whether a tokenizer class could find its vocabulary in a file or folder of that name."""
    return not _NO_VOCABULARY.fullmatch(name)


def is_tokenizer_file(name: str) -> bool:
    """Whether a file of a model directory is a part of its tokenizer."""
    return bool(_TOKENIZER_FILES.fullmatch(name))


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a class makes ids of the pieces of a SentencePiece model: ``before``, the pieces without the first
    ``skipped``, ``after``."""

    before: tuple[str, ...] = ()
    skipped: int = 0
    after: tuple[str, ...] = ()


_FAIRSEQ = _Layout(before=("<s>", "<pad>", "</s>", "<unk>"), skipped=3, after=("<mask>",))

# Source: transformers, convert_slow_tokenizer.py and the tokenizer classes of versions 4 and 5.
_PLAIN = (
    "AlbertTokenizer",
    "BaichuanTokenizer",
    "BertGenerationTokenizer",
    "BigBirdTokenizer",
    "CodeLlamaTokenizer",
    "CpmTokenizer",
    "FNetTokenizer",
    "GPTSw3Tokenizer",
    "GemmaTokenizer",
    "InternLM2Tokenizer",
    "LlamaTokenizer",
    "ReformerTokenizer",
    "RemBertTokenizer",
    "SiglipTokenizer",
    "XLNetTokenizer",
)
_LAYOUTS: Mapping[str, _Layout] = {
    **dict.fromkeys(_PLAIN, _Layout()),
    "XLMRobertaTokenizer": _FAIRSEQ,
    "LayoutXLMTokenizer": _FAIRSEQ,
    "XGLMTokenizer": _Layout(
        _FAIRSEQ.before, _FAIRSEQ.skipped, tuple(f"<madeupword{number}>" for number in range(7))
    ),
    "CamembertTokenizer": _Layout(
        ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1, ("<mask>",)
    ),
    "PegasusTokenizer": _Layout(
        ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103))), 2
    ),
}
# Pegasus puts other tokens before the pieces where a setting is another one.
_PEGASUS_SETTINGS = {"offset": 103, "mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"}
# These append sentinels, the last one first: <extra_id_0> has the largest id.
_WITH_SENTINELS = frozenset({"T5Tokenizer", "MT5Tokenizer", "UdopTokenizer"})
_DEFAULT_SENTINELS = 100
_MOST_SENTINELS = 10_000


def byte_files(names: Collection[str], settings: Mapping[str, object]) -> Iterator[tuple[str, Reader]]:
    """The vocabulary files that are no JSON, in the order in which loaders look, each with its reader.

    ``settings`` is tokenizer_config.json: its class decides what the pieces of a model mean.
    """
    name = settings.get("tokenizer_class")
    known = name.removesuffix("Fast") if isinstance(name, str) else ""
    if "vocab.txt" in names:
        yield "vocab.txt", partial(vocab_txt, file="vocab.txt", tokenizer_class=known)
    for file in _SENTENCEPIECE_FILES:
        if file in names:
            yield file, partial(_model, file=file, tokenizer_class=known, settings=settings)
    for file in sorted(names):
        if file.endswith(".tiktoken") or file == "tiktoken.model":
            yield file, partial(tiktoken, file=file)


def vocab_json(document: Document) -> TokenTable:
    """vocab.json, vocab-src.json, target_vocab.json ...: content to id."""
    ids = {content: id for content, id in document.data.items() if isinstance(id, int) and is_id(id)}
    if len(ids) < len(document.data):
        raise FactMissing(f"{document.at.file} holds values that are no ids")
    return TokenTable(Witness.COMPANION, document.at, ids)


def vocab_txt(data: bytes, file: str, tokenizer_class: str = "") -> TokenTable:
    """vocab.txt: the line number is the id. A blank line is a token with an empty text, as loaders count.

    Of a token that stands on two lines the last one counts.
    """
    if tokenizer_class in _FAIRSEQ_DICTIONARIES:
        raise FactMissing(f"{file} of a {tokenizer_class} is a fairseq dictionary; its lines are not the ids")
    lines = _LINE_END.split(_text(data, file))
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise FactMissing(f"{file} is empty")
    return TokenTable(
        Witness.COMPANION, Location(file), {line: index for index, line in enumerate(lines)}, style="line"
    )


def merges_txt(data: bytes, file: str) -> MergesFile:
    """merges.txt: one merge a line, "a b"; the first line may be a version comment.

    Raises FactMissing for a line that is no pair.
    """
    lines = _text(data, file).split("\n")
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines if line.strip()]
    odd = next((pair for pair in pairs if len(pair) != 2), None)
    if odd is not None:
        raise FactMissing(f"{file} holds a line that is no pair: {shown(' '.join(odd))}")
    return MergesFile(Location(file), tuple((pair[0], pair[1]) for pair in pairs))


def tiktoken(data: bytes, file: str) -> TokenTable:
    """A tiktoken rank file: "base64 rank" a line. Bytes are written in GPT-2's alphabet, as converters do."""
    alphabet = byte_alphabet()
    ids: dict[str, int] = {}
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            token, digits = line.split()
            rank = int(digits)
            ids["".join(alphabet[byte] for byte in base64.b64decode(token, validate=True))] = rank
        except (ValueError, binascii.Error):
            raise _malformed(file, f"expected lines of base64 and a rank, found {_shortly(line)}") from None
        if not is_id(rank):
            raise _malformed(file, f"the rank {rank} is no id")
    if not ids:
        raise _malformed(file, "it holds no token")
    return TokenTable(Witness.COMPANION, Location(file), ids, style="line")


def byte_alphabet() -> list[str]:
    """GPT-2's printable character for each byte: printable Latin-1 stands for itself, others follow 0x100."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]


def _model(data: bytes, file: str, tokenizer_class: str, settings: Mapping[str, object]) -> TokenTable:
    """A *.model file: SentencePiece, or tiktoken ranks under the same name, as GLM-4 has it."""
    if re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", data):
        return tiktoken(data, file)
    return sentencepiece(data, file, tokenizer_class, settings)


def sentencepiece(
    data: bytes, file: str, tokenizer_class: str, settings: Mapping[str, object] | None = None
) -> TokenTable:
    """A SentencePiece ModelProto: the place of a piece is its id, shifted as the tokenizer class does it.

    Only field 1 (the pieces, repeated) and its field 1 (the text) are read; see sentencepiece_model.proto.
    ``trainer_spec.vocab_size`` is not: the library does not check it either. A tokenizer.model of an unknown
    class has plain ids, which is what generic loaders make of it; code that comes with the model may not.
    """
    pieces = _pieces(data, file)
    settings = settings or {}
    layout = _layout(file, tokenizer_class, settings)
    sentinels = _sentinels(tokenizer_class, settings)
    contents = (*layout.before, *pieces[layout.skipped :], *layout.after, *sentinels)
    ids: dict[str, int] = {}
    for id, content in enumerate(contents):
        ids.setdefault(content, id)
    return TokenTable(Witness.COMPANION, Location(file), ids, style="line")


def _layout(file: str, tokenizer_class: str, settings: Mapping[str, object]) -> _Layout:
    layout = _LAYOUTS.get(tokenizer_class)
    usual = all(settings.get(name, value) == value for name, value in _PEGASUS_SETTINGS.items())
    if layout is not None and (usual or tokenizer_class != "PegasusTokenizer"):
        return layout
    plain = file == "tokenizer.model" and layout is None and "auto_map" not in settings
    if plain or tokenizer_class in _WITH_SENTINELS:
        return _Layout()
    name = tokenizer_class or "an unnamed tokenizer class"
    raise FactMissing(f"it is not known which ids {name} gives to the pieces of {file}")


def _sentinels(tokenizer_class: str, settings: Mapping[str, object]) -> Iterable[str]:
    if tokenizer_class not in _WITH_SENTINELS:
        return ()
    stated = settings.get("extra_ids", _DEFAULT_SENTINELS)
    count = stated if type(stated) is int and 0 <= stated <= _MOST_SENTINELS else 0
    return (f"<extra_id_{number}>" for number in reversed(range(count)))


def _pieces(data: bytes, file: str) -> list[str]:
    pieces: list[str] = []
    try:
        for piece in (field for number, field in _fields(data) if number == 1):
            pieces.append(next(value for number, value in _fields(piece) if number == 1).decode("utf-8"))
    except (ValueError, StopIteration):
        raise _malformed(file, "expected a SentencePiece model, found something else") from None
    if not pieces:
        raise _malformed(file, "expected a SentencePiece model, found no pieces")
    return pieces


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


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(file, f"expected UTF-8, found another encoding at byte {error.start}") from None


def _malformed(file: str, message: str) -> Unreadable:
    return Unreadable("tokenizer-malformed", file, message, hint="take the file from the source again")


def _shortly(line: bytes) -> str:
    return shown(line[:40].decode("latin-1"))
