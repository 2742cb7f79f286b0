"""Fields of config.json and generation_config.json: which name token ids, and which no loader can use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tokaudit.contract import Document, Fact, IdField, Role, is_placeholder
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.formats.config import default_field, id_fields, malformed_fields, unstated_size

CONFIG = Location("config.json")


def fields(data: dict[str, Any], *, generation: bool = False) -> dict[str, IdField]:
    found = id_fields(Document(CONFIG, data), generation=generation)
    return {str(field.at): field for field in found}


def field(name: str, value: Any) -> IdField:
    (found,) = fields({name: value}).values()
    return found


def problems(data: dict[str, Any]) -> list[str]:
    document = Document(CONFIG, data)
    return [error.message for error in (*malformed_fields(document), *unstated_size(document))]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("bos_token_id", Role.BOS),
        ("eos_token_id", Role.EOS),
        ("pad_token_id", Role.PAD),
        ("mask_token_id", Role.MASK),
        ("decoder_start_token_id", None),
        ("forced_bos_token_id", None),
        ("image_token_id", None),
        ("image_token_index", None),
        ("no_timestamps_token_id", None),
        ("video_start_token_id", None),
    ],
)
def test_fields_that_name_token_ids_are_found_with_their_role(name: str, role: Role | None) -> None:
    found = field(name, 7)
    assert (found.name, found.role, found.ids, found.malformed) == (name, role, (7,), "")


@pytest.mark.parametrize(
    "name",
    [
        "vocab_size",
        "eos_token",
        "hidden_size",
        "ignore_index",
        "t2u_eos_token_id",
        "codebook_pad_token_id",
        "blank_token_id",
        "num_tokens",
        "add_bos_token",
    ],
)
def test_other_fields_and_those_of_other_vocabularies_are_left_alone(name: str) -> None:
    assert fields({name: 7}) == {}


@pytest.mark.parametrize(
    ("name", "value", "ids"),
    [
        ("eos_token_id", [2, 7], (2, 7)),
        ("eos_token_id", None, ()),
        ("eos_token_id", -1, (-1,)),
        ("eos_token_id", 2**63, (2**63,)),
        ("suppress_tokens", [1, -1], (1, -1)),
        ("suppress_tokens", [], ()),
        ("bad_words_ids", [[3], [4, 5]], (3, 4, 5)),
        ("bad_words_ids", [6], (6,)),
        ("forced_decoder_ids", [[1, 50259], [2, None], [3, 50363]], (50259, 50363)),
        ("forced_decoder_ids", [[1], [2, 50363]], (50363,)),
    ],
)
def test_ids_are_taken_out_of_numbers_and_lists(name: str, value: Any, ids: tuple[int, ...]) -> None:
    found = field(name, value)
    assert found.ids == ids
    assert found.malformed == ""
    assert found.null is (value is None)
    assert found.is_list is isinstance(value, list)


@pytest.mark.parametrize(
    ("value", "ids", "malformed"),
    [
        (True, (), "true is no token id"),
        (2.0, (), "2.0 is no token id"),
        ("2", (), '"2" is no token id'),
        ([[2]], (), "a list is no token id"),
        ({"id": 2}, (), "an object is no token id"),
        ([2, "x", None, True], (2,), '"x" is no token id'),
        ([None], (), "null is no token id"),
    ],
)
def test_values_that_are_no_ids_are_told_and_the_others_kept(
    value: Any, ids: tuple[int, ...], malformed: str
) -> None:
    found = field("eos_token_id", value)
    assert (found.ids, found.malformed) == (ids, malformed)


def test_parts_for_the_text_model_are_read_with_their_section() -> None:
    found = fields(
        {
            "eos_token_id": 1,
            "text_config": {"eos_token_id": 2},
            "thinker_config": {"text_config": {"pad_token_id": 3}},
            "vision_config": {"eos_token_id": 4},
            "decoder": {"bos_token_id": 5},
        }
    )
    assert {at: (field.section, field.ids) for at, field in found.items()} == {
        "config.json#/eos_token_id": ("", (1,)),
        "config.json#/text_config/eos_token_id": ("text_config", (2,)),
        "config.json#/thinker_config/text_config/pad_token_id": ("thinker_config.text_config", (3,)),
        "config.json#/decoder/bos_token_id": ("decoder", (5,)),
    }


def test_generation_fields_are_marked_and_have_no_sections() -> None:
    found = fields({"eos_token_id": 1, "decoder": {"eos_token_id": 2}}, generation=True)
    assert [(field.generation, field.section, field.ids) for field in found.values()] == [(True, "", (1,))]


def test_a_list_of_a_million_ids_is_kept_as_it_stands() -> None:
    assert len(field("eos_token_id", list(range(1_000_000))).ids) == 1_000_000


def test_a_default_of_the_class_is_marked() -> None:
    found = default_field("pad_token_id", "", (32000,), CONFIG.child("pad_token_id"), pads=True)
    assert (found.role, found.ids, found.by_default, found.padding_index) == (Role.PAD, (32000,), True, True)
    assert not found.is_list
    assert default_field("eos_token_id", "", (1, 2), CONFIG, pads=False).is_list


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("image_token_id", True),
        ("video_token_index", True),
        ("img_context_token_id", True),
        ("media_placeholder_token_id", True),
        ("audio_token_id", True),
        ("image_start_token_id", False),
        ("video_end_token_id", False),
        ("audio_bos_token_id", False),
        ("vision_start_token_id", False),
        ("pad_token_id", False),
        ("boi_token_index", False),
    ],
)
def test_placeholders_are_told_from_the_marks_around_them(name: str, expected: bool) -> None:
    assert is_placeholder(name) is expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"vocab_size": 8.0}, "/vocab_size: expected a number of rows, found 8.0"),
        ({"vocab_size": True}, "found true"),
        ({"vocab_size": "8"}, 'found "8"'),
        ({"vocab_size": -8}, "found -8"),
        ({"vocab_size": [8]}, "found a list"),
        ({"vocab_size": None}, "found null"),
        ({"text_config": {"vocab_size": "8"}}, "/text_config/vocab_size"),
        ({"text_config": "x"}, "/text_config: expected an object"),
        ({"llm_config": 7}, "/llm_config: expected an object"),
        ({"model_type": 7}, "/model_type: expected a text"),
        ({"tie_word_embeddings": "false"}, "/tie_word_embeddings: expected true or false"),
        ({"torch_dtype": ["float16"]}, "/torch_dtype"),
        ({"architectures": "LlamaForCausalLM"}, "/architectures: expected a list"),
    ],
)
def test_a_type_that_no_loader_can_use_is_told_with_its_place(data: dict[str, Any], words: str) -> None:
    (message,) = problems(data)
    assert words in message


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"vocab_size": 0},
        {"vocab_size": 2**63},
        {"vocab_size": None, "text_config": {"vocab_size": 8}},
        {"text_config": None},
        {"tie_word_embeddings": None},
        {"dtype": {"": "float16"}, "torch_dtype": "bfloat16"},
        {"architectures": None},
        {"vision_config": {"vocab_size": "unused"}},
    ],
)
def test_unusual_values_that_loaders_accept_are_no_problem(data: dict[str, Any]) -> None:
    assert problems(data) == []


@pytest.mark.parametrize(
    ("asked", "value", "words"),
    [
        (Document.integer, True, "is not an integer"),
        (Document.integer, 7.0, "is not an integer"),
        (Document.string, 7, "is not a string"),
        (Document.boolean, "false", "is neither true nor false"),
        (Document.boolean, 0, "is neither true nor false"),
        (Document.section, [], "is not an object"),
    ],
)
def test_a_field_of_another_type_is_a_missing_fact_and_says_what_it_is_not(
    asked: Callable[[Document, str], object], value: object, words: str
) -> None:
    with pytest.raises(FactMissing, match=f"config.json#/field {words}"):
        asked(Document(CONFIG, {"field": value}), "field")


@pytest.mark.parametrize(("number", "size"), [(0, 7), (1, 8), (2, None), (-1, None)])
def test_a_path_leads_through_a_list_by_its_numbers(number: int, size: int | None) -> None:
    document = Document(CONFIG, {"parts": [{"size": 7}, {"size": 8}]})
    assert document.has("parts", number, "size") is (size is not None)
    if size is not None:
        assert document.integer("parts", number, "size") == Fact(
            size, CONFIG.child("parts", str(number), "size")
        )
