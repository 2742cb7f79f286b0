"""Special tokens: which file counts, what is malformed, and what the tokenizer class fills in."""

from __future__ import annotations

from typing import Any

import pytest

from tokaudit.contract import Document, Missing, Role, SpecialToken
from tokaudit.findings import Location
from tokaudit.load.special_tokens import special_tokens

ABSENT = Missing("there is none")
DECODER = {"0": {"content": "<unk>"}}


def config(**data: Any) -> Document:
    return Document(Location("tokenizer_config.json"), data)


def special_map(**data: Any) -> Document:
    return Document(Location("special_tokens_map.json"), data)


def contents(tokens: tuple[SpecialToken, ...]) -> dict[str, str]:
    return {token.name: token.content for token in tokens}


def test_every_role_is_read_as_a_text_or_an_object() -> None:
    names = {role: f"{role.value}_token" for role in Role}
    stated = {name: f"<{role.value}>" for role, name in names.items()}
    stated["bos_token"] = {"__type": "AddedToken", "content": "<bos>", "lstrip": False}
    kept, stale = special_tokens(config(**stated), ABSENT)
    assert {token.role: token.content for token in kept} == {role: f"<{role.value}>" for role in Role}
    assert stale == ()
    assert str(kept[0].at) == "tokenizer_config.json#/bos_token/content"
    assert str(kept[1].at) == "tokenizer_config.json#/eos_token"


def test_null_declares_nothing() -> None:
    assert special_tokens(config(pad_token=None, extra_special_tokens=None), ABSENT) == ((), ())


def test_lists_and_named_tokens_have_no_role() -> None:
    kept, _ = special_tokens(
        config(
            additional_special_tokens=["<a>", {"content": "<b>"}],
            extra_special_tokens={"image_token": "<image>"},
        ),
        ABSENT,
    )
    assert contents(kept) == {
        "additional_special_tokens/0": "<a>",
        "additional_special_tokens/1": "<b>",
        "extra_special_tokens/image_token": "<image>",
    }
    assert {token.role for token in kept} == {None}


def test_tokens_of_one_model_are_fields_of_their_own() -> None:
    kept, _ = special_tokens(
        config(image_token="<image>", boi_token={"content": "<boi>"}, add_bos_token=True, sp_token=7), ABSENT
    )
    assert contents(kept) == {"image_token": "<image>", "boi_token": "<boi>"}


def test_the_map_overrides_a_configuration_without_added_tokens_decoder() -> None:
    kept, stale = special_tokens(config(eos_token="<new>", pad_token="<pad>"), special_map(eos_token="<old>"))
    assert contents(kept) == {"pad_token": "<pad>", "eos_token": "<old>"}
    assert contents(stale) == {"eos_token": "<new>"}


def test_null_in_the_map_takes_a_token_away() -> None:
    kept, stale = special_tokens(config(pad_token="<pad>"), special_map(pad_token=None))
    assert kept == ()
    assert contents(stale) == {"pad_token": "<pad>"}


def test_a_list_in_the_map_replaces_the_whole_list() -> None:
    kept, stale = special_tokens(
        config(additional_special_tokens=["<a>", "<b>"]), special_map(additional_special_tokens=["<c>"])
    )
    assert contents(kept) == {"additional_special_tokens/0": "<c>"}
    assert sorted(contents(stale).values()) == ["<a>", "<b>"]


def test_extra_special_tokens_of_both_files_are_joined() -> None:
    kept, stale = special_tokens(
        config(extra_special_tokens=["<a>"]), special_map(extra_special_tokens=["<b>"])
    )
    assert [token.content for token in kept] == ["<a>", "<b>"]
    assert stale == ()


def test_the_map_is_not_read_beside_added_tokens_decoder() -> None:
    kept, stale = special_tokens(
        config(added_tokens_decoder=DECODER, eos_token="<new>"),
        special_map(eos_token="<old>", pad_token="<p>"),
    )
    assert contents(kept) == {"eos_token": "<new>"}
    assert contents(stale) == {"eos_token": "<old>", "pad_token": "<p>"}


def test_the_map_alone_is_read() -> None:
    kept, _ = special_tokens(ABSENT, special_map(eos_token="<e>"))
    assert contents(kept) == {"eos_token": "<e>"}


@pytest.mark.parametrize(
    ("value", "malformed"),
    [
        ("", "empty"),
        ({"content": ""}, "empty"),
        (2, "a number and not a text"),
        (True, "true or false and not a text"),
        (["<s>"], "a list and not a text"),
        ({"lstrip": False}, "an object without content"),
        ({"content": 7}, "a number and not a text"),
    ],
)
def test_a_declaration_that_is_no_text_is_told(value: Any, malformed: str) -> None:
    (token,), _ = special_tokens(config(eos_token=value), ABSENT)
    assert (token.role, token.content, token.malformed) == (Role.EOS, "", malformed)


@pytest.mark.parametrize("value", ["<x>", 7, True])
def test_extra_tokens_that_are_no_list_are_told(value: Any) -> None:
    (token,), _ = special_tokens(config(additional_special_tokens=value), ABSENT)
    assert token.malformed.endswith("and not a list")
    assert token.role is None


def test_the_class_fills_in_what_no_file_mentions() -> None:
    kept, _ = special_tokens(config(tokenizer_class="LlamaTokenizer", eos_token="<e>"), ABSENT)
    assert {token.name: (token.content, token.by_default) for token in kept} == {
        "eos_token": ("<e>", False),
        "bos_token": ("<s>", True),
        "unk_token": ("<unk>", True),
    }


def test_null_and_the_map_count_as_mentions() -> None:
    kept, _ = special_tokens(
        config(tokenizer_class="LlamaTokenizer", bos_token=None),
        special_map(unk_token="<u>", eos_token="<e>"),
    )
    assert not any(token.by_default for token in kept)


@pytest.mark.parametrize("name", ["NoSuchTokenizer", 7, None])
def test_an_unknown_class_fills_in_nothing(name: Any) -> None:
    assert special_tokens(config(tokenizer_class=name), ABSENT) == ((), ())
