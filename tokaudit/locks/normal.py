"""The parts of a pipeline in normal form: two files that the library reads alike have the same one.

Sequences are unfolded, fields that the library does not read are left out, and so are optional ones that hold
its default. Fields and defaults are those of `tokenizers` 0.23: ``tests/test_lock_normal.py`` measures them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tokaudit.contract import Pipeline

LONGEST_TEXT = 1000  # characters; a longer one (a compiled character map) stands as its digest
LARGEST_INTEGER = 2**53 - 1  # of canonical JSON (RFC 8785)

STAGED = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
PARTS = ("model", *STAGED, "truncation", "padding")

_REQUIRED = object()
Fields = Mapping[str, object]  # field -> its default, or _REQUIRED


def _required(*names: str, **optional: object) -> Fields:
    return {**dict.fromkeys(names, _REQUIRED), **optional}


_BYTE_LEVEL = _required("add_prefix_space", "trim_offsets", use_regex=True)
_METASPACE = _required("replacement", prepend_scheme="always", split=True)
_REPLACE = _required("pattern", "content")

_STAGES: Mapping[str, Mapping[str, Fields]] = {
    "normalizer": {
        "BertNormalizer": _required("clean_text", "handle_chinese_chars", "lowercase", strip_accents=None),
        "Strip": _required("strip_left", "strip_right"),
        "Precompiled": _required("precompiled_charsmap"),
        "Replace": _REPLACE,
        "Prepend": _required("prepend"),
        **{
            name: {}
            for name in ("StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "ByteLevel")
        },
    },
    "pre_tokenizer": {
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": _METASPACE,
        "CharDelimiterSplit": _required("delimiter"),
        "Split": _required("pattern", "behavior", "invert"),
        "Punctuation": {"behavior": "Isolated"},
        "Digits": _required("individual_digits"),
        "FixedLength": {"length": 5},
        **{name: {} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
    },
    "post_processor": {
        "RobertaProcessing": _required("sep", "cls", "trim_offsets", "add_prefix_space"),
        "BertProcessing": _required("sep", "cls"),
        "ByteLevel": _BYTE_LEVEL,
        "TemplateProcessing": _required("single", "pair", "special_tokens"),
    },
    "decoder": {
        "BPEDecoder": _required("suffix"),
        "ByteLevel": _BYTE_LEVEL,
        "WordPiece": _required("prefix", "cleanup"),
        "Metaspace": _METASPACE,
        "CTC": _required("pad_token", "word_delimiter_token", "cleanup"),
        "Replace": _REPLACE,
        "Strip": _required("content", "start", "stop"),
        "Fuse": {},
        "ByteFallback": {},
    },
}
_MODELS: Mapping[str, Fields] = {
    "BPE": {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "WordPiece": _required("unk_token", "continuing_subword_prefix", "max_input_chars_per_word"),
    "WordLevel": _required("unk_token"),
    "Unigram": {"unk_id": None, "byte_fallback": False},
}
_TRUNCATION = _required("max_length", "strategy", "stride", direction="Right")
_PADDING = _required("strategy", "direction", "pad_id", "pad_type_id", "pad_token", pad_to_multiple_of=None)
# Values of BPE models that do the same as the default.
_EMPTY: Mapping[str, object] = {"dropout": 0, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
# A template that puts nothing around a text, as transformers writes it where there was no post-processor.
_NO_TEMPLATE: Mapping[str, object] = {
    "type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}
# The library tells these two apart by their fields and not by the type that the file states.
_BY_FIELDS = ("RobertaProcessing", "BertProcessing", None)


def normal_parts(pipeline: Pipeline) -> dict[str, object]:
    """Every part by name: a list of stages, an object, or None where the tokenizer has no such part."""
    data = pipeline.document.data
    found: dict[str, object] = {"model": _model(pipeline)}
    for part in STAGED:
        stages = [_stage(part, stage.data) for stage in pipeline.stages(part)]
        stages = [stage for stage in stages if stage != _NO_TEMPLATE]
        # Without a decoder, tokens are joined by spaces; an empty one joins them by nothing.
        found[part] = stages if stages or (part == "decoder" and data.get(part) is not None) else None
    for part, fields in (("truncation", _TRUNCATION), ("padding", _PADDING)):
        stated = data.get(part)
        found[part] = _known(stated, fields) if isinstance(stated, dict) else None
    return found


def _model(pipeline: Pipeline) -> dict[str, object]:
    stated = pipeline.document.data.get("model")
    model = stated if isinstance(stated, dict) else {}
    fields = _MODELS.get(pipeline.model_type, {})
    stated = {name: value for name, value in model.items() if _EMPTY.get(name, _REQUIRED) != value}
    return {"type": pipeline.model_type, **_known(stated, fields)}


def _stage(part: str, stage: Mapping[str, object]) -> dict[str, object]:
    kinds = _STAGES[part]
    kind = stage.get("type")
    if kind in _BY_FIELDS:
        kind = next((name for name, fields in kinds.items() if fields and _complete(stage, fields)), kind)
    if not isinstance(kind, str) or kind not in kinds:
        return {key: _portable(value) for key, value in stage.items()}
    return {"type": kind, **_known(stage, kinds[kind])}


def _complete(stage: Mapping[str, object], fields: Fields) -> bool:
    """Whether every field without a default is stated, of which there must be one."""
    required = [name for name, default in fields.items() if default is _REQUIRED]
    return bool(required) and all(name in stage for name in required)


def _known(stated: Mapping[str, object], fields: Fields) -> dict[str, object]:
    return {
        name: _portable(stated[name])
        for name, default in fields.items()
        if name in stated and stated[name] != default
    }


def _portable(value: object) -> object:
    """The value as canonical JSON can hold it, long texts as their digest."""
    if isinstance(value, dict):
        return {key: _portable(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_portable(member) for member in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return {"characters": len(value), "sha256": hashlib.sha256(value.encode()).hexdigest()}
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        return str(value)
    return value
