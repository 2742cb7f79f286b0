"""Single changes to a JSON file leave every other character as it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokaudit.formats.json_edit import append_items, replace_value, set_member, set_members

CONFIG = """{
  "architectures": [
    "LlamaForCausalLM"
  ],
  "rope_theta": 500000.00,
  "text_config": { "vocab_size": 320, "x": 1e-05 },
  "vocab_size": 320
}
"""


def test_a_replaced_number_is_the_only_change() -> None:
    assert replace_value(CONFIG, ("text_config", "vocab_size"), 384) == CONFIG.replace(
        '{ "vocab_size": 320', '{ "vocab_size": 384'
    )


def test_number_spellings_of_other_fields_stay() -> None:
    text = replace_value(CONFIG, ("vocab_size",), 321)
    assert "500000.00" in text
    assert "1e-05" in text


def test_a_byte_order_mark_stays() -> None:
    mark = "\ufeff"
    assert replace_value(mark + CONFIG, ("vocab_size",), 1) == mark + replace_value(
        CONFIG, ("vocab_size",), 1
    )


def test_a_new_member_takes_the_indentation_of_its_neighbours() -> None:
    text = set_member(CONFIG, (), "pad_token_id", 306)
    assert text.endswith('  "vocab_size": 320,\n  "pad_token_id": 306\n}\n')


def test_a_new_list_item_is_indented_like_the_others() -> None:
    text = '{\n  "added_tokens": [\n    {\n      "id": 0\n    }\n  ]\n}'
    expected = '{\n  "added_tokens": [\n    {\n      "id": 0\n    },\n    {\n      "id": 1\n    }\n  ]\n}'
    assert append_items(text, ("added_tokens",), [{"id": 1}]) == expected


def test_items_on_one_line_stay_on_one_line() -> None:
    text = '{\n  "a": [\n    {"id": 0}\n  ]\n}'
    assert append_items(text, ("a",), [{"id": 1}]) == '{\n  "a": [\n    {"id": 0},\n    {"id": 1}\n  ]\n}'


@pytest.mark.parametrize("gap", ["", " ", "  "])
def test_members_on_one_line_keep_their_distance(gap: str) -> None:
    assert set_member(f'{{"a": 1,{gap}"b": 2}}', (), "c", 3) == f'{{"a": 1,{gap}"b": 2,{gap}"c": 3}}'


def test_an_empty_list_in_an_indented_file_is_opened() -> None:
    assert append_items('{\n  "a": []\n}', ("a",), [1, 2]) == '{\n  "a": [\n    1,\n    2\n  ]\n}'


def test_a_compact_file_stays_compact() -> None:
    assert append_items('{"a":[{"id":0}]}', ("a",), [{"id": 1}]) == '{"a":[{"id":0},{"id":1}]}'
    assert set_member('{"a":{"b":1}}', ("a",), "c", 2) == '{"a":{"b":1,"c":2}}'


def test_an_empty_object_can_be_filled() -> None:
    assert set_member("{}", (), "a", 1) == '{"a": 1}'
    assert set_member("{}", (), "a", {"b": [1, 2]}) == '{"a": {"b": [1, 2]}}'


def test_texts_beyond_ascii_follow_the_file() -> None:
    assert set_member('{"\u2581a": 0}', (), "\u2581b", 1) == '{"\u2581a": 0, "\u2581b": 1}'
    assert set_member('{"\\u2581a": 0}', (), "\u2581b", 1) == '{"\\u2581a": 0, "\\u2581b": 1}'


def test_a_missing_path_is_an_error() -> None:
    with pytest.raises(KeyError):
        replace_value(CONFIG, ("text_config", "hidden_size"), 1)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=5),
    JSON,
    st.sampled_from([None, 1, 2, 4, "\t"]),
    st.booleans(),
    st.data(),
)
def test_edits_mean_what_they_say(
    value: dict[str, Any], new: Any, indent: Any, ascii_only: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    key = data.draw(st.sampled_from(sorted(value)))
    assert json.loads(replace_value(text, (key,), new)) == {**value, key: new}
    fresh = data.draw(st.text(max_size=4))
    assert json.loads(set_member(text, (), fresh, new)) == {**value, fresh: new}
    assert json.loads(set_members(text, (), [(fresh, new), (key, 0)])) == {**value, fresh: new, key: 0}
    if isinstance(value[key], list):
        assert json.loads(append_items(text, (key,), [new, 1]))[key] == [*value[key], new, 1]


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=5), st.sampled_from([None, 2]))
def test_a_replaced_value_can_be_put_back(value: dict[str, int], indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    for key, number in value.items():
        assert replace_value(replace_value(text, (key,), -1), (key,), number) == text
