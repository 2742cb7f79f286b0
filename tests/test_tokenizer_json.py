"""tokenizer.json and the other files of added tokens, as tokaudit reads them itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokaudit.contract import Document, Fact, Witness
from tokaudit.contract.vocabulary import Pipeline
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.formats.added_tokens import added_file_table, decoder_table
from tokaudit.formats.tokenizer_json import TokenizerFile, is_id, merge_problem, read

Json = dict[str, Any]
VOCAB = {"a": 0, "b": 1, "ab": 2}


def tokenizer(**parts: Any) -> Json:
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", "vocab": VOCAB, "merges": ["a b"]},
        **parts,
    }


def reading(**parts: Any) -> TokenizerFile:
    return read(Document(Location("tokenizer.json"), tokenizer(**parts)))


def cause(file: TokenizerFile) -> Fact[str] | None:
    """Why the library refuses the file, as far as tokaudit knows."""
    if file.problems or file.base is None:
        return file.problems[0]
    return merge_problem(file.pipeline, file.base)


def problem(**parts: Any) -> str:
    first = cause(reading(**parts))
    assert first is not None
    return f"{first.at}: {first.value}"


def test_a_sound_file_has_no_problems() -> None:
    file = reading()
    assert file.problems == ()
    assert file.base is not None
    assert dict(file.base.ids) == VOCAB
    assert file.pipeline.model_type == "BPE"
    assert file.pipeline.merges == (("a", "b"),)


def test_merges_in_both_spellings_are_the_same() -> None:
    pairs = reading(model={"type": "BPE", "vocab": VOCAB, "merges": [["a", "b"]]})
    assert pairs.pipeline.merges == reading().pipeline.merges


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"vocab": VOCAB, "merges": []}, "BPE"),
        ({"vocab": [["a", 0.0]], "unk_id": 0}, "Unigram"),
        ({"vocab": [["a", 0.0]]}, "Unigram"),
        ({"vocab": VOCAB, "unk_token": "a", "max_input_chars_per_word": 100}, "WordPiece"),
        ({"vocab": VOCAB, "unk_token": "a"}, "WordLevel"),
    ],
)
def test_the_model_type_of_an_old_file_is_told_by_its_fields(model: Json, kind: str) -> None:
    assert reading(model=model).pipeline.model_type == kind


def test_ids_of_a_unigram_model_are_places() -> None:
    base = reading(model={"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0}).base
    assert base is not None
    assert dict(base.ids) == {"<unk>": 0, "a": 1}
    assert str(base.location("a")) == "tokenizer.json#/model/vocab/1"


@pytest.mark.parametrize("bad", [-1, 2**32, 7.0, True, "7", None, [7]])
def test_an_id_that_the_library_cannot_hold_is_a_problem_at_its_token(bad: object) -> None:
    words = problem(model={"type": "BPE", "vocab": {**VOCAB, "z": bad}, "merges": []})
    assert words.startswith('tokenizer.json#/model/vocab/z: the id of "z" is ')
    assert is_id(2**32 - 1)
    assert not is_id(bad)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"model": None}, "tokenizer.json#/model: the model is missing and not an object"),
        ({"model": {"type": "BPE", "vocab": 3}}, "tokenizer.json#/model/vocab: the vocabulary is a number"),
        (
            {"model": {"type": "BPE", "vocab": VOCAB, "merges": [["a"]]}},
            "tokenizer.json#/model/merges/0: the merge a list is not a pair",
        ),
        (
            {"model": {"type": "Unigram", "vocab": [["a", 0], ["b"]]}},
            "tokenizer.json#/model/vocab/1: an entry is not a [piece, score] pair",
        ),
        ({"added_tokens": {}}, "tokenizer.json#/added_tokens: added_tokens is an object and not a list"),
        (
            {"added_tokens": [{"id": -5, "content": "<x>"}]},
            'tokenizer.json#/added_tokens/0/id: the id of "<x>" is -5, not an id',
        ),
        (
            {"added_tokens": ["<x>"]},
            "tokenizer.json#/added_tokens/0: an added token is not an object with a content",
        ),
    ],
)
def test_a_part_of_the_wrong_shape_is_a_problem_where_it_stands(parts: Json, words: str) -> None:
    assert problem(**parts) == words


@pytest.mark.parametrize(
    ("vocab", "merge", "lost"),
    [
        ({"a": 0, "ab": 2}, "a b", "b"),
        ({"b": 1, "ab": 2}, "a b", "a"),
        ({"a": 0, "b": 1}, "a b", "ab"),
    ],
)
def test_a_merge_whose_part_or_result_is_no_token_is_the_problem(vocab: Json, merge: str, lost: str) -> None:
    words = problem(model={"type": "BPE", "vocab": vocab, "merges": [merge]})
    assert words.startswith("tokenizer.json#/model/merges/0: ")
    assert f'needs "{lost}", which the vocabulary lacks' in words


def test_the_result_of_a_merge_drops_the_prefix_of_its_right_part() -> None:
    vocab = {"a": 0, "##b": 1, "ab": 2}
    model = {"type": "BPE", "vocab": vocab, "merges": ["a ##b"], "continuing_subword_prefix": "##"}
    assert cause(reading(model=model)) is None


def test_added_tokens_keep_declared_ids_repeats_and_flags() -> None:
    entries = [
        {"id": 9, "content": "<x>", "special": True, "lstrip": True},
        {"id": 8, "content": "<y>"},
        {"id": 7, "content": "<x>"},
    ]
    added = reading(added_tokens=entries).added
    assert [(token.content, token.id) for token in added.entries] == [("<x>", 9), ("<y>", 8), ("<x>", 7)]
    assert added.ids == {"<x>": 9, "<y>": 8}
    assert added.entries[0].flags == (True, True, False, False, False)
    assert added.entries[1].flags == (False, False, False, True, False)
    assert str(added.location("<y>")) == "tokenizer.json#/added_tokens/1"


def test_a_post_processor_with_a_list_of_special_tokens_emits_nothing() -> None:
    processor = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": ["<s>"]}
    assert list(reading(post_processor=processor).emissions) == []


def test_the_post_processor_emits_what_its_templates_name() -> None:
    processor = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}},
        ],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<sep>", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {
            name: {"id": name, "ids": [id], "tokens": [name]}
            for id, name in enumerate(["<s>", "</s>", "<sep>", "<never>"])
        },
    }
    emitted = {
        emission.content: (emission.id, emission.place)
        for emission in reading(post_processor=processor).emissions
    }
    assert emitted == {
        "<s>": (0, "start"),
        "</s>": (1, "end"),
        "<sep>": (2, "between"),
        "<never>": (3, "unused"),
    }


def test_processors_inside_a_sequence_are_found() -> None:
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "add_prefix_space": True}
    sequence = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, roberta]}
    emissions = reading(post_processor=sequence).emissions
    assert [(emission.content, emission.id, emission.place) for emission in emissions] == [
        ("<s>", 0, "start"),
        ("</s>", 2, "end"),
    ]
    assert str(emissions[0].at) == "tokenizer.json#/post_processor/processors/1/cls"


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "byte-level BPE"),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}]}}, "byte-level BPE"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "SentencePiece BPE"),
        (
            {"decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}},
            "SentencePiece BPE",
        ),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "BPE"),
        ({"decoder": {"type": "ByteLevel"}}, "BPE"),
    ],
)
def test_the_kind_of_tokenizer_is_told_by_its_stages(parts: Json, kind: str) -> None:
    assert reading(**parts).pipeline.kind == kind


def test_steps_of_a_sequence_in_a_sequence_keep_their_order() -> None:
    def sequence(*steps: Json) -> Json:
        return {"type": "Sequence", "normalizers": list(steps)}

    steps = sequence(sequence({"type": "NFC"}, {"type": "Lowercase"}), {"type": "StripAccents"})
    stages = reading(normalizer=steps).pipeline.stages("normalizer")
    assert [stage.data["type"] for stage in stages] == ["NFC", "Lowercase", "StripAccents"]
    assert stages[1].at.pointer == "/normalizer/normalizers/0/normalizers/1"


def test_a_model_without_merges_says_so() -> None:
    pipeline = reading(model={"type": "WordLevel", "vocab": VOCAB, "unk_token": "a"}).pipeline
    with pytest.raises(FactMissing, match="has no merges"):
        _ = pipeline.merges


def with_merges(merges: list[object]) -> Pipeline:
    model = {"type": "BPE", "vocab": VOCAB, "merges": merges}
    return Pipeline(Document(Location("tokenizer.json"), {"model": model}), "BPE")


def test_both_spellings_of_merges_are_read() -> None:
    assert with_merges(["a b", ["c", "d e"]]).merges == (("a", "b"), ("c", "d e"))
    assert with_merges([]).merges == ()


@pytest.mark.parametrize("odd", ["a", "a b c", [], ["a"], ["a", "b", "c"], ["a", 1], 7, None, {"a": "b"}])
def test_merges_that_are_no_pairs_are_no_merges(odd: object) -> None:
    with pytest.raises(FactMissing, match="not all pairs"):
        _ = with_merges(["a b", odd]).merges


def test_added_tokens_decoder_has_the_ids_as_keys() -> None:
    stated = {
        "7": {"content": "<x>", "special": True},
        "x": {"content": "<y>"},
        "8": "<z>",
        "\u0669": {"content": "<w>"},
    }
    table = decoder_table(Document(Location("tokenizer_config.json"), {"added_tokens_decoder": stated}))
    assert table is not None
    assert table.ids == {"<x>": 7}
    assert str(table.location("<x>")) == "tokenizer_config.json#/added_tokens_decoder/7"
    assert table.witness is Witness.DECODER


def test_without_added_tokens_decoder_there_is_no_table() -> None:
    assert decoder_table(Document(Location("tokenizer_config.json"), {})) is None


def test_added_tokens_json_keeps_what_is_an_id() -> None:
    document = Document(Location("added_tokens.json"), {"<x>": 5, "<y>": True, "<z>": -1, "<w>": "3"})
    table = added_file_table(document)
    assert table.ids == {"<x>": 5}
    assert str(table.location("<x>")) == "added_tokens.json#/<x>"


def test_the_reading_agrees_with_the_library_on_what_loads() -> None:
    library = pytest.importorskip("tokenizers").Tokenizer
    for model in (
        {"type": "BPE", "vocab": VOCAB, "merges": ["a b"]},
        {"type": "BPE", "vocab": {"a": 0, "b": 1, "long": 2}, "merges": ["a b"]},
        {"type": "BPE", "vocab": {**VOCAB, "z": -1}, "merges": []},
        {"type": "WordLevel", "vocab": VOCAB, "unk_token": "a"},
    ):
        try:
            library.from_str(json.dumps(tokenizer(model=model)))
            loads = True
        except Exception:
            loads = False
        assert (cause(reading(model=model)) is None) is loads
