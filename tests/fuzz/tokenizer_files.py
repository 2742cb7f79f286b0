"""tokenizer.json of all kinds, and the files beside it that speak about the same tokens."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from fuzz.values import TEXTS, bitten, damaged, written

Files = dict[str, bytes]

LETTERS = [
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "ba",
    "\u0120",
    "\u0120a",
    "\u2581",
    "\u2581a",
    "##a",
    "##b",
    "é",
    " ",
    "<unk>",
]
SPECIAL = [
    "<s>",
    "</s>",
    "<pad>",
    "<|im_end|>",
    "<extra_id_0>",
    "[CLS]",
    "[SEP]",
    "<|reserved_1|>",
    "<x>",
    "<y>",
]
CONTENTS = st.sampled_from(LETTERS + SPECIAL) | TEXTS
WHOLE = CONTENTS.filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@st.composite
def base_ids(draw: st.DrawFn) -> dict[str, int]:
    """Contents and ids: in order, or with holes, moved, permuted or shared ids."""
    contents = draw(st.lists(st.sampled_from(LETTERS + SPECIAL), min_size=1, max_size=9, unique=True))
    if draw(st.booleans()):
        return {content: id for id, content in enumerate(contents)}
    ids = draw(st.lists(st.integers(0, 14), min_size=len(contents), max_size=len(contents)))
    return dict(zip(contents, ids, strict=True))


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """The part "model" of any kind; the library loads it."""
    kind = draw(st.sampled_from(["BPE", "WordPiece", "WordLevel", "Unigram"]))
    vocab = draw(base_ids())
    known = draw(st.sampled_from(sorted(vocab)))
    if kind == "Unigram":
        pieces = list(vocab) + draw(st.lists(st.sampled_from(sorted(vocab)), max_size=2))
        scores = [[piece, draw(st.sampled_from([0.0, -1.0, -2.5, -10.0, -3]))] for piece in pieces]
        unknown = draw(st.none() | st.integers(0, len(pieces) - 1))
        return {"type": kind, "vocab": scores, "unk_id": unknown, "byte_fallback": draw(st.booleans())}
    if kind == "WordLevel":
        return {"type": kind, "vocab": vocab, "unk_token": draw(st.sampled_from([known, "gone"]))}
    if kind == "WordPiece":
        prefix = draw(st.sampled_from(["##", "", "a"]))
        return {
            "type": kind,
            "vocab": vocab,
            "unk_token": draw(st.sampled_from([known, "gone"])),
            "continuing_subword_prefix": prefix,
            "max_input_chars_per_word": draw(st.sampled_from([100, 1, 0])),
        }
    merges = [[left, right] for left in vocab for right in vocab if left + right in vocab]
    style = draw(st.booleans()) and all(" " not in part for merge in merges for part in merge)
    return {
        "type": kind,
        "vocab": vocab,
        "merges": [" ".join(merge) for merge in merges] if style else merges,
        "unk_token": draw(st.sampled_from([None, known, "gone"])),
        "dropout": draw(st.sampled_from([None, 0.0, 0.5])),
        "end_of_word_suffix": draw(st.sampled_from([None, "", "</w>"])),
        "fuse_unk": draw(st.booleans()),
        "byte_fallback": draw(st.booleans()),
        "ignore_merges": draw(st.booleans()),
    }


@st.composite
def added_tokens(draw: st.DrawFn, model: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries at the next ids, or with holes, moved, repeated, or in the base vocabulary."""
    vocab = model["vocab"]
    base = list(vocab) if isinstance(vocab, dict) else [piece for piece, _ in vocab]
    count, largest = len(base), max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(base) - 1
    entries = []
    following = draw(st.sampled_from([count, largest + 1]))
    for content in draw(st.lists(st.sampled_from(SPECIAL) | st.sampled_from(base) | WHOLE, max_size=6)):
        right = vocab[content] if isinstance(vocab, dict) and content in vocab else following
        id = (
            right
            if draw(st.integers(0, 3))
            else draw(st.integers(0, count + 8) | st.sampled_from([2**31, 2**32 - 1]))
        )
        following += content not in base
        entries.append({"id": id, "content": content, **{flag: draw(st.booleans()) for flag in FLAGS}})
    return entries


def _chars(*kinds: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([{"type": kind} for kind in kinds])


PATTERNS = st.sampled_from(
    [{"String": " "}, {"String": "a"}, {"Regex": "\\s+"}, {"Regex": "[a-c]"}, {"Regex": "\\p{L}+"}]
)
METASPACE = st.builds(
    lambda scheme, split: {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": scheme,
        "split": split,
    },
    st.sampled_from(["always", "never", "first"]),
    st.booleans(),
)
BYTE_LEVEL = st.builds(
    lambda a, b, c: {"type": "ByteLevel", "add_prefix_space": a, "trim_offsets": b, "use_regex": c},
    *[st.booleans()] * 3,
)
NORMALIZERS = (
    _chars("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")
    | st.builds(
        lambda pattern, to: {"type": "Replace", "pattern": pattern, "content": to},
        PATTERNS,
        st.sampled_from(["", "_", "b"]),
    )
    | st.just({"type": "Prepend", "prepend": "\u2581"})
    | st.just({"type": "Strip", "strip_left": True, "strip_right": False})
    | st.builds(
        lambda a, b, c, d: {
            "type": "BertNormalizer",
            "clean_text": a,
            "handle_chinese_chars": b,
            "strip_accents": c,
            "lowercase": d,
        },
        st.booleans(),
        st.booleans(),
        st.none() | st.booleans(),
        st.booleans(),
    )
)
# A compiled character map: the library panics on damaged ones, some while it loads the file.
DAMAGED_NORMALIZERS = st.binary(max_size=24).map(
    lambda data: {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}
)
PRE_TOKENIZERS = (
    BYTE_LEVEL
    | METASPACE
    | _chars("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")
    | st.builds(lambda each: {"type": "Digits", "individual_digits": each}, st.booleans())
    | st.just({"type": "CharDelimiterSplit", "delimiter": "_"})
    | st.builds(
        lambda pattern, behavior, invert: {
            "type": "Split",
            "pattern": pattern,
            "behavior": behavior,
            "invert": invert,
        },
        PATTERNS,
        st.sampled_from(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]),
        st.booleans(),
    )
    | st.builds(
        lambda behavior: {"type": "Punctuation", "behavior": behavior},
        st.sampled_from(["Isolated", "Removed"]),
    )
)
DECODERS = (
    BYTE_LEVEL
    | METASPACE
    | _chars("Fuse", "ByteFallback")
    | st.just({"type": "WordPiece", "prefix": "##", "cleanup": True})
    | st.just({"type": "BPEDecoder", "suffix": "</w>"})
    | st.just({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    | st.just({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "})
    | st.just({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True})
)


@st.composite
def stages(draw: st.DrawFn, stage: st.SearchStrategy[dict[str, Any]], member: str) -> Any:
    """Nothing, a stage, or a sequence of some."""
    found = draw(st.lists(stage, max_size=3))
    if len(found) < 2 and draw(st.booleans()):
        return found[0] if found else None
    return {"type": "Sequence", member: found}


@st.composite
def post_processors(draw: st.DrawFn, contents: list[str], ids: dict[str, int]) -> Any:
    def one() -> list[Any]:
        content = draw(st.sampled_from(contents))
        return [content, draw(st.sampled_from([ids.get(content, 0), ids.get(content, 0), 0, 5, 99]))]

    kind = draw(st.sampled_from(["", "", "Bert", "Roberta", "ByteLevel", "Template", "Template"]))
    if kind == "Bert":
        return {"type": "BertProcessing", "sep": one(), "cls": one()}
    if kind == "Roberta":
        more = {"trim_offsets": draw(st.booleans()), "add_prefix_space": draw(st.booleans())}
        return {"type": "RobertaProcessing", "sep": one(), "cls": one(), **more}
    if kind == "ByteLevel":
        return draw(BYTE_LEVEL)
    if not kind:
        return None
    pieces = [one() for _ in range(draw(st.integers(1, 3)))]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    around = [{"SpecialToken": {"id": piece[0], "type_id": 0}} for piece in pieces]
    place = draw(st.integers(0, len(around)))
    single = [*around[:place], text, *around[place:]]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            content: {"id": content, "ids": [id], "tokens": [content]} for content, id in pieces
        },
    }


@st.composite
def sound(draw: st.DrawFn, normalizers: st.SearchStrategy[dict[str, Any]] = NORMALIZERS) -> dict[str, Any]:
    """A tokenizer.json that the library loads, if the normalizers are sound."""
    model = draw(models())
    added = draw(added_tokens(model))
    vocab = model["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {piece: id for id, (piece, _) in enumerate(vocab)}
    ids |= {entry["content"]: entry["id"] for entry in added}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": draw(
            st.none()
            | st.just({"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0})
        ),
        "padding": draw(
            st.none()
            | st.just(
                {
                    "strategy": "BatchLongest",
                    "direction": "Left",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "<pad>",
                }
            )
        ),
        "added_tokens": added,
        "normalizer": draw(stages(normalizers, "normalizers")),
        "pre_tokenizer": draw(stages(PRE_TOKENIZERS, "pretokenizers")),
        "post_processor": draw(post_processors(list(ids), ids)),
        "decoder": draw(stages(DECODERS, "decoders")),
        "model": model,
    }
    return document


def _with_prefix(document: dict[str, Any]) -> dict[str, Any]:
    """With a prefix that merges take off the second part: where that cuts a character, the library aborts."""
    document["model"]["continuing_subword_prefix"] = "#"
    return document


def as_file(document: Any) -> Files:
    return {"tokenizer.json": written(document)}


CLASSES = st.sampled_from(
    [
        "PreTrainedTokenizerFast",
        "LlamaTokenizerFast",
        "BertTokenizer",
        "GPT2TokenizerFast",
        "T5Tokenizer",
        "XLMRobertaTokenizer",
        "PegasusTokenizer",
        "BertweetTokenizer",
        "WhisperTokenizer",
        "NoSuchTokenizer",
        "",
    ]
)


@st.composite
def settings_files(draw: st.DrawFn) -> dict[str, Any]:
    """tokenizer_config.json as transformers writes it."""
    token = st.sampled_from(SPECIAL + LETTERS) | TEXTS
    as_object = token.map(lambda content: {"__type": "AddedToken", "content": content, "lstrip": True})
    found: dict[str, Any] = {"tokenizer_class": draw(CLASSES)}
    for field in draw(
        st.lists(st.sampled_from(["bos", "eos", "unk", "pad", "sep", "cls", "mask", "image"]), unique=True)
    ):
        found[f"{field}_token"] = draw(st.none() | token | as_object)
    if draw(st.booleans()):
        found["added_tokens_decoder"] = {
            str(id): {"content": draw(token), "special": draw(st.booleans())}
            for id in draw(st.lists(st.integers(0, 20), max_size=4, unique=True))
        }
    if draw(st.booleans()):
        name = draw(st.sampled_from(["additional_special_tokens", "extra_special_tokens"]))
        found[name] = draw(
            st.lists(token | as_object, max_size=3)
            | st.dictionaries(st.sampled_from(["image_token", "x"]), token)
        )
    if draw(st.booleans()):
        found |= {"extra_ids": draw(st.sampled_from([0, 1, 100, 10**6, -1])), "model_max_length": 10**30}
        found |= {"offset": 103, "legacy": draw(st.booleans()), "add_bos_token": draw(st.booleans())}
    return found


def _piece(content: str, score: bytes = b"\0\0\x80\xbf") -> bytes:
    """An entry of a SentencePiece model: field 1 of the message, with a text and a score."""
    text = content.encode("utf-8", "replace")
    body = b"\x0a" + bytes([len(text) & 0x7F]) + text[:127] + b"\x15" + score
    return b"\x0a" + bytes([len(body) & 0x7F]) + body


def _tiktoken(contents: list[str]) -> bytes:
    encoded = [base64.b64encode(content.encode("utf-8", "replace")) for content in contents]
    return b"\n".join(b"%b %d" % (text, rank) for rank, text in enumerate(encoded))


@st.composite
def vocabulary_files(draw: st.DrawFn) -> Files:
    """Vocabularies outside tokenizer.json, one to three of them."""
    contents = draw(st.lists(CONTENTS, max_size=8))
    lines = "\n".join(contents).encode("utf-8", "replace")
    ids = {content: id for id, content in enumerate(contents)}
    pairs = [f"{left} {right}" for left, right in pairwise(contents)]
    forms = {
        "vocab.json": written(draw(damaged(st.just(ids)))),
        "vocab-src.json": written(ids),
        "vocab-tgt.json": written(draw(damaged(st.just(ids)))),
        "vocab.txt": lines,
        "merges.txt": "\n".join(["#version: 0.2", *pairs]).encode("utf-8", "replace"),
        "tokenizer.model": b"".join(map(_piece, contents)),
        "spiece.model": b"".join(map(_piece, contents)),
        "qwen.tiktoken": _tiktoken(contents),
        "added_tokens.json": written(draw(damaged(st.just(ids)))),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(forms)), min_size=1, max_size=3, unique=True))
    return {name: draw(st.just(forms[name]) | bitten(st.just(forms[name]))) for name in chosen}


@st.composite
def files(draw: st.DrawFn) -> Files:
    """A tokenizer, or parts of one, sound or not."""
    found: Files = {}
    if draw(st.integers(0, 3)):
        any_kind = sound(NORMALIZERS | DAMAGED_NORMALIZERS) | sound().map(_with_prefix)
        found |= as_file(draw(any_kind | damaged(any_kind, least=1)))
    if draw(st.integers(0, 2)) == 0:
        found |= draw(vocabulary_files())
    if draw(st.booleans()):
        found["tokenizer_config.json"] = written(draw(damaged(settings_files())))
    if draw(st.integers(0, 2)) == 0:
        found["special_tokens_map.json"] = written(draw(damaged(settings_files())))
    if found and draw(st.integers(0, 5)) == 0:
        name = draw(st.sampled_from(sorted(found)))
        found[name] = draw(bitten(st.just(found[name])))
    return found or as_file(json.loads("{}"))
