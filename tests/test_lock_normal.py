"""The normal form of a pipeline, measured against what the library makes of the same file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tokenizers import Tokenizer

from tokaudit.contract import Document, Pipeline
from tokaudit.findings import Location
from tokaudit.locks import normal

VALUES: Mapping[str, object] = {
    "pattern": {"String": "a"},
    "content": "b",
    "prepend": "x",
    "replacement": "_",
    "prepend_scheme": "first",
    "delimiter": "a",
    "behavior": "Removed",
    "length": 3,
    "sep": ["a", 0],
    "cls": ["b", 1],
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "a", "type_id": 1}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}},
    "suffix": "</w>",
    "prefix": "##",
    "pad_token": "<pad>",
    "word_delimiter_token": "|",
    "start": 1,
    "stop": 0,
}
STAGES = [(part, kind) for part, kinds in normal._STAGES.items() for kind in kinds if kind != "Precompiled"]


def document_with(part: str, stage: object) -> dict[str, Any]:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
    return {"version": "1.0", "added_tokens": [], "model": model, part: stage}


def saved(document: dict[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(Tokenizer.from_str(json.dumps(document)).to_str())
    return written


def parts_of(document: dict[str, Any]) -> Mapping[str, object]:
    kind = document["model"]["type"]
    return normal.normal_parts(Pipeline(Document(Location("tokenizer.json"), document), kind))


def minimal(part: str, kind: str) -> dict[str, object]:
    fields = normal._STAGES[part][kind]
    required = [name for name, default in fields.items() if default is normal._REQUIRED]
    return {"type": kind, **{name: VALUES.get(name, False) for name in required}}


@pytest.mark.parametrize(("part", "kind"), STAGES)
def test_a_stage_without_its_defaults_is_what_the_library_makes_of_it(part: str, kind: str) -> None:
    document = document_with(part, minimal(part, kind))
    written = saved(document)
    assert written[part] is not None
    assert set(written[part]) == {"type", *normal._STAGES[part][kind]}  # the library knows no other field
    assert parts_of(document) == parts_of(written)


@pytest.mark.parametrize(("part", "kind"), STAGES)
def test_a_field_is_required_where_the_normal_form_says_so(part: str, kind: str) -> None:
    """Where it is not, its default is missing in the table, and two spellings would be two locks."""
    for name, default in normal._STAGES[part][kind].items():
        stage = minimal(part, kind)
        if default is normal._REQUIRED:
            del stage[name]
            if kind in ("RobertaProcessing",) and name not in ("sep", "cls"):
                assert parts_of(document_with(part, stage))[part] == [
                    {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}
                ]
                assert saved(document_with(part, stage))[part]["type"] == "BertProcessing"
                continue
            with pytest.raises(Exception, match=r"missing field|did not match any variant"):
                saved(document_with(part, stage))


@pytest.mark.parametrize(("part", "kind"), STAGES)
def test_a_field_that_the_library_passes_over_is_none(part: str, kind: str) -> None:
    document = document_with(part, {**minimal(part, kind), "unheard_of": 1})
    assert parts_of(document) == parts_of(saved(document))


@pytest.mark.parametrize("kind", normal._MODELS)
def test_a_model_without_its_defaults_is_what_the_library_makes_of_it(kind: str) -> None:
    required = {
        "WordPiece": {"unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
        "WordLevel": {"unk_token": "a"},
    }
    vocab: object = [["a", -1.0], ["b", -2.0]] if kind == "Unigram" else {"a": 0, "b": 1}
    merges = {"merges": []} if kind == "BPE" else {}
    model = {"type": kind, "vocab": vocab, **merges, **required.get(kind, {})}
    document = {"added_tokens": [], "model": model}
    written = saved(document)
    assert set(written["model"]) - {"type", "vocab", "merges"} == set(normal._MODELS[kind])
    assert parts_of(document) == parts_of(written)


def test_truncation_and_padding_without_their_defaults_are_what_the_library_makes_of_them() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    document = {
        "added_tokens": [],
        "model": model,
        "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": "BatchLongest",
            "direction": "Left",
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "a",
        },
    }
    written = saved(document)
    assert written["truncation"]["direction"] == "Right"
    assert parts_of(document) == parts_of(written)


def test_a_stage_without_a_type_is_the_one_that_the_library_takes_it_for() -> None:
    stage = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    document = document_with("normalizer", stage)
    assert parts_of(document)["normalizer"] == [{"type": "BertNormalizer", **stage}]
    assert parts_of(document) == parts_of(saved(document))


def test_an_empty_decoder_is_not_none() -> None:
    """Without one the library joins tokens by spaces, an empty one joins them by nothing."""
    empty = document_with("decoder", {"type": "Sequence", "decoders": []})
    assert parts_of(empty)["decoder"] == []
    assert parts_of(document_with("decoder", None))["decoder"] is None


def test_a_long_text_stands_as_its_digest() -> None:
    charsmap = "A" * 2000
    document = document_with("normalizer", {"type": "Precompiled", "precompiled_charsmap": charsmap})
    digest = hashlib.sha256(charsmap.encode()).hexdigest()
    assert parts_of(document)["normalizer"] == [
        {"type": "Precompiled", "precompiled_charsmap": {"characters": 2000, "sha256": digest}}
    ]
