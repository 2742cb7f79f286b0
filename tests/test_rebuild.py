"""What tokaudit says of transformers 5 is what transformers 5 does: classes, pipelines, probes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from models import base, build, changed

import tokaudit.load
from tokaudit.contract import AddedToken, Rebuilt, Treatment, Witness
from tokaudit.families.tokenizer_classes import class_defaults, loaded_class
from tokaudit.findings import Location
from tokaudit.tokenizing.probes import PLAIN, UNUSUAL
from tokaudit.tokenizing.rebuild import RECIPES, added_again, differences, rebuilt

transformers = pytest.importorskip("transformers", minversion="5.0")
auto = pytest.importorskip("transformers.models.auto.tokenization_auto")
Tokenizer = pytest.importorskip("tokenizers").Tokenizer

Json = dict[str, Any]

CHARSMAP = base64.b64encode((4096).to_bytes(4, "little") + bytes(4096 + 8)).decode()
SPECIAL = "<pad> <unk> <s> </s> [UNK] [CLS] [SEP] [PAD] [MASK] <mask> <cls> <sep> <bos> <eos>"
PIECES = [
    *SPECIAL.split(" "),
    "<|endoftext|>",
    "<|startoftext|>",
    "a",
    "b",
    "ab",
    "\u2581",
    "\u0120",
    "##a",
    "a</w>",
    "b</w>",
]
SETTINGS: list[Json] = [
    {},
    {
        "add_prefix_space": True,
        "do_lower_case": False,
        "legacy": True,
        "keep_accents": True,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    },
    {
        "add_prefix_space": False,
        "do_lower_case": True,
        "legacy": None,
        "keep_accents": False,
        "strip_accents": False,
        "clean_text": False,
        "split_by_punct": True,
    },
]
EXTRA = AddedToken(99, "<x>", Location("tokenizer.json"), special=True, normalized=False)


def document(kind: str, normalizer: Json) -> Json:
    """A tokenizer.json whose pipeline no class builds."""
    models: dict[str, Json] = {
        "BPE": {"vocab": {piece: id for id, piece in enumerate(PIECES)}, "merges": [["a", "b"]]},
        "WordPiece": {
            "vocab": {piece: id for id, piece in enumerate(PIECES)},
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 50,
        },
        "Unigram": {"vocab": [[piece, 0.0] for piece in PIECES], "unk_id": 0, "byte_fallback": False},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 99,
                "content": "<x>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": kind, **models[kind]},
    }


def options(model: Json) -> Json:
    """The model's options without vocabulary; absent, false and empty mean the same."""
    return {name: value for name, value in model.items() if value and name not in ("vocab", "merges")}


@pytest.mark.parametrize("settings", SETTINGS, ids=["defaults", "one way", "the other way"])
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_builds_what_the_class_builds(name: str, settings: Json, tmp_path: Path) -> None:
    known = auto.tokenizer_class_from_name(name)
    kind = getattr(known.model, "__name__", "Unigram")
    for normalizer in ({"type": "Lowercase"}, {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}):
        saved = document(kind, normalizer)
        (tmp_path / "tokenizer.json").write_text(json.dumps(saved), encoding="utf-8")
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        theirs = json.loads(known.from_pretrained(tmp_path).backend_tokenizer.to_str())
        told = rebuilt(saved, name, settings, class_defaults(name), [EXTRA])
        ours = json.loads(Tokenizer.from_str(json.dumps(told)).to_str())
        assert ours["normalizer"] == theirs["normalizer"]
        assert ours["pre_tokenizer"] == theirs["pre_tokenizer"]
        assert options(ours["model"]) == options(theirs["model"])
        assert ours["model"]["vocab"] == theirs["model"]["vocab"]


@pytest.mark.parametrize(
    ("stated", "model_type", "byte_level"),
    [
        ("LlamaTokenizer", "llama", False),
        ("LlamaTokenizerFast", "llama", False),
        ("LlamaTokenizerFast", "llama", True),
        ("LlamaTokenizer", "qwen2", False),
        ("LlamaTokenizer", "mistral", True),
        ("LlamaTokenizer", "gemma", False),
        ("Qwen2Tokenizer", "qwen2", True),
        ("Qwen2TokenizerFast", "qwen3", True),
        ("Qwen2Tokenizer", "llama", True),
        ("GPT2Tokenizer", "gpt2", True),
        ("GPT2TokenizerFast", "granite", True),
        ("GPT2Tokenizer", "phi3", True),
        ("BertTokenizer", "bert", False),
        ("BartTokenizer", "bart", True),
        ("PreTrainedTokenizerFast", "llama", True),
        ("PreTrainedTokenizerFast", "qwen2", True),
        ("TokenizersBackend", "gpt2", True),
        ("NoSuchTokenizer", "llama", True),
        ("NoSuchTokenizer", "", True),
        ("BloomTokenizerFast", "bloom", True),
        ("", "gpt2", True),
        ("", "llama", False),
        ("", "mistral", False),
    ],
)
def test_the_class_is_the_one_that_auto_tokenizer_makes(
    stated: str, model_type: str, byte_level: bool, tmp_path: Path
) -> None:
    saved = document("BPE", {"type": "NFC"})
    if byte_level:
        saved["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    if (stated, model_type) == ("BertTokenizer", "bert"):
        saved = document("WordPiece", {"type": "NFC"})
    files: dict[str, Json] = {"tokenizer.json": saved}
    files["tokenizer_config.json"] = {"tokenizer_class": stated} if stated else {}
    files["config.json"] = {"model_type": model_type} if model_type else {}
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content), encoding="utf-8")
    made = type(transformers.AutoTokenizer.from_pretrained(tmp_path))
    name, treatment = loaded_class(stated, model_type, byte_level=byte_level)
    assert name == made.__name__
    own = made is not transformers.TokenizersBackend and "__init__" in vars(made)
    assert treatment is (Treatment.REBUILT if own else Treatment.AS_IT_STANDS)


LLAMA: Json = {
    "json": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "backend": None}},
    "tokenizer": {
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "first",
            "split": False,
        },
        "decoder": {"type": "Fuse"},
        "model": {"fuse_unk": True, "byte_fallback": True},
    },
}
DECODER = {
    "305": {"content": "<|end|>", "special": True, "normalized": False},
    "304": {"content": "<|begin|>", "special": True, "normalized": False},
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tokenizer": {"normalizer": {"type": "Lowercase"}}},
        {"tokenizer": {"pre_tokenizer": {"type": "Digits", "individual_digits": True}}},
        {"json": {"tokenizer_config.json": {"added_tokens_decoder": DECODER}}},
        {"json": {"added_tokens.json": {"<extra>": 400, "<more>": 350}}},
        {"json": {"tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer"}}},
        {"json": {"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}}},
        {"json": {"tokenizer_config.json": {"tokenizer_class": "BertTokenizer"}}},
    ],
    ids=[
        "as Llama builds it",
        "a normalizer",
        "a pre-tokenizer",
        "a short added_tokens_decoder",
        "added_tokens.json",
        "Gemma",
        "Qwen2",
        "BERT",
    ],
)
def test_probes_encode_as_auto_tokenizer_encodes_them(change: Json, tmp_path: Path) -> None:
    model = build(changed(changed(base("llama"), LLAMA), change), tmp_path / "model")
    loaded = tokaudit.load.load(model).vocabulary.loaded
    assert not isinstance(loaded.rebuilt, tokaudit.contract.Missing)
    theirs = transformers.AutoTokenizer.from_pretrained(model).backend_tokenizer
    for text, ids in loaded.rebuilt.rebuilt.items():
        assert tuple(theirs.encode(text, add_special_tokens=False).ids) == ids, text
    assert bool(loaded.rebuilt.parts) is bool(change)


def test_of_two_layouts_of_sentencepiece_models_none_is_a_difference() -> None:
    old = {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
    }
    new = {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "first",
            "split": False,
        },
    }
    assert differences(old, new) == ()
    assert differences(old, {**new, "normalizer": {"type": "Lowercase"}}) == ("normalizer",)


def test_added_tokens_go_by_declared_id_and_special_ones_follow() -> None:
    at = Location("tokenizer_config.json")
    declared = [AddedToken(7, "<b>", at), AddedToken(3, "<a>", at), AddedToken(3, "<c>", at)]
    again = added_again(declared, ["<b>", "<pad>"])
    assert [token.content for token in again] == ["<c>", "<b>", "<pad>"]
    assert again[-1].special
    assert not again[-1].normalized


REAL = (
    "clip-vit",
    "focus-de-xlmr-unigram-30k",
    "granite-3.1-1b",
    "minimind",
    "olmo-test-model",
    "phi-2",
    "roberta-base",
    "stories260K-hf",
    "t5-small",
    "torchtitan-test-tokenizer",
    "whisper-tiny",
)


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_released_tokenizers_load_in_transformers_as_tokaudit_says(real: Path, name: str) -> None:
    vocabulary = tokaudit.load.load(real / name).vocabulary
    theirs = transformers.AutoTokenizer.from_pretrained(real / name).backend_tokenizer
    theirs.no_truncation()
    theirs.no_padding()
    library = Tokenizer.from_file(str(real / name / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    changed = {
        text
        for text in (*PLAIN, *UNUSUAL, *vocabulary.table(Witness.ADDED).ids)
        if theirs.encode(text, add_special_tokens=False).ids
        != library.encode(text, add_special_tokens=False).ids
    }
    made = vocabulary.loaded.rebuilt
    told = set()
    if isinstance(made, Rebuilt):
        told = {text for text, ids in made.saved.items() if made.rebuilt.get(text) != ids}
    assert told == changed
