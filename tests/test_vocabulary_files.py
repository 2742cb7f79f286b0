"""Vocabulary files outside tokenizer.json give the ids that loaders give."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokaudit.load
from tokaudit.contract import AddedToken, Declared, Document, TokenTable, Witness
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats.vocabulary_files import (
    byte_alphabet,
    byte_files,
    merges_txt,
    sentencepiece,
    tiktoken,
    vocab_json,
    vocab_txt,
)

PIECES = ["<unk>", "<s>", "</s>", "\u2581a", "b"]


def field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def model(pieces: list[str], more: bytes = b"") -> bytes:
    """A SentencePiece ModelProto: each piece has its text, a score (32 bits) and a type (a varint)."""
    encoded = (field(1, field(1, piece.encode()) + b"\x15\x00\x00\x80\xbf" + b"\x18\x01") for piece in pieces)
    return b"".join(encoded) + more


def overlong(length: int) -> bytes:
    """A model whose first tag is written in so many bytes; ten are the most that protobuf allows."""
    piece = field(1, b"a")
    return b"\x8a" + b"\x80" * (length - 2) + b"\x00" + varint(len(piece)) + piece


def test_vocab_json_maps_contents_to_ids() -> None:
    table = vocab_json(Document(Location("vocab.json"), {"a": 0, "b": 7}))
    assert dict(table.ids) == {"a": 0, "b": 7}
    assert str(table.location("b")) == "vocab.json#/b"
    assert table.witness is Witness.COMPANION


@pytest.mark.parametrize("value", [-1, 1.5, "1", True, None, 2**32])
def test_vocab_json_with_a_value_that_is_no_id_is_no_vocabulary(value: object) -> None:
    with pytest.raises(FactMissing, match=r"vocab\.json holds values that are no ids"):
        vocab_json(Document(Location("vocab.json"), {"a": 0, "b": value}))


def test_vocab_txt_counts_lines_however_they_end() -> None:
    assert dict(vocab_txt(b"a\nb\r\nc\rd", "vocab.txt").ids) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_vocab_txt_counts_a_blank_line_as_a_token_and_no_final_line_end() -> None:
    assert dict(vocab_txt(b"a\n\nb\n", "vocab.txt").ids) == {"a": 0, "": 1, "b": 2}
    assert dict(vocab_txt(b"a\nb\n\n", "vocab.txt").ids) == {"a": 0, "b": 1, "": 2}


def test_of_a_token_on_two_lines_of_vocab_txt_the_last_counts() -> None:
    assert dict(vocab_txt(b"a\nb\na\n", "vocab.txt").ids) == {"a": 2, "b": 1}


def test_vocab_txt_of_a_fairseq_dictionary_tells_no_ids() -> None:
    with pytest.raises(FactMissing, match="fairseq dictionary"):
        vocab_txt(b"the 1234\n", "vocab.txt", "PhobertTokenizer")


def test_vocab_txt_in_another_encoding_is_malformed() -> None:
    with pytest.raises(Unreadable, match="byte 1") as error:
        vocab_txt(b"a\xff\n", "vocab.txt")
    assert error.value.code == "tokenizer-malformed"


def test_merges_are_pairs_and_the_version_line_is_a_comment() -> None:
    merges = merges_txt(b"#version: 0.2\r\na b\r\n\r\n# #\r\n\xc4\xa0 t", "merges.txt")
    assert merges.pairs == (("a", "b"), ("#", "#"), ("\u0120", "t"))


def test_a_line_of_merges_with_three_parts_is_named() -> None:
    with pytest.raises(FactMissing, match='no pair: "a b c"'):
        merges_txt(b"a b\na b c\n", "merges.txt")


def test_tiktoken_ranks_are_ids_of_byte_strings() -> None:
    lines = b"".join(
        base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate([b"a", b" t", b"\xff"])
    )
    assert dict(tiktoken(lines, "qwen.tiktoken").ids) == {"a": 0, "\u0120t": 1, "\u00ff": 2}


@pytest.mark.parametrize("name", ["qwen.tiktoken", "tiktoken.model"])
def test_tiktoken_files_are_known_by_their_names(name: str) -> None:
    found = {file: read(b"YQ== 0\n") for file, read in byte_files({name, "model.bin"}, {})}
    assert {file: dict(table.ids) for file, table in found.items()} == {name: {"a": 0}}


@pytest.mark.parametrize("data", [b"not base64 here\n", b"!!!! 1\n", b"YQ== x\n", b"YQ== -1\n", b""])
def test_what_is_no_tiktoken_file_is_malformed(data: bytes) -> None:
    with pytest.raises(Unreadable) as error:
        tiktoken(data, "qwen.tiktoken")
    assert error.value.code == "tokenizer-malformed"


def test_the_byte_alphabet_is_a_bijection_of_printable_characters() -> None:
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert alphabet[ord("A")] == "A"
    assert alphabet[ord(" ")] == "\u0120"
    assert all(char.isprintable() and not char.isspace() for char in alphabet)


def test_the_byte_alphabet_is_that_of_the_library() -> None:
    pre_tokenizers = pytest.importorskip("tokenizers").pre_tokenizers
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())


def test_pieces_of_a_sentencepiece_model_have_their_places_as_ids() -> None:
    trainer_spec = field(2, b"\x20" + varint(9999))  # vocab_size, which nobody checks
    trainer_spec += b"\x19" + b"\xff" * 8  # 64 bits of a field that nobody knows
    table = sentencepiece(model(PIECES, trainer_spec), "tokenizer.model", "LlamaTokenizer")
    assert list(table.ids.items()) == [(piece, id) for id, piece in enumerate(PIECES)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("XLMRobertaTokenizer", ["<s>", "<pad>", "</s>", "<unk>", "\u2581a", "b", "<mask>"]),
        (
            "CamembertTokenizer",
            [
                *("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
                *("<s>", "</s>", "\u2581a", "b", "<mask>"),
            ],
        ),
        ("AlbertTokenizer", PIECES),
    ],
)
def test_classes_shift_the_pieces_as_transformers_does(name: str, expected: list[str]) -> None:
    table = sentencepiece(model(PIECES), "sentencepiece.bpe.model", name)
    assert sorted(table.ids, key=table.ids.__getitem__) == expected


def test_pegasus_puts_103_tokens_before_the_pieces_but_two() -> None:
    table = sentencepiece(model(["<pad>", "</s>", "<unk>", "\u2581a"]), "spiece.model", "PegasusTokenizer")
    assert table.ids["<unk>"] == 105
    assert table.ids["\u2581a"] == 106
    assert table.ids["<unk_102>"] == 104


def test_t5_appends_its_sentinels_the_last_one_first() -> None:
    table = sentencepiece(model(PIECES), "spiece.model", "T5Tokenizer", {"extra_ids": 3})
    assert table.ids["<extra_id_2>"] == 5
    assert table.ids["<extra_id_0>"] == 7
    assert len(sentencepiece(model(PIECES), "spiece.model", "T5Tokenizer").ids) == len(PIECES) + 100
    assert len(sentencepiece(model(PIECES), "spiece.model", "T5Tokenizer", {"extra_ids": 0}).ids) == len(
        PIECES
    )


def test_the_ids_of_a_class_with_an_unknown_layout_are_not_guessed() -> None:
    with pytest.raises(FactMissing, match="NllbTokenizer"):
        sentencepiece(model(PIECES), "sentencepiece.bpe.model", "NllbTokenizer")


def test_pegasus_with_settings_of_its_own_is_not_guessed() -> None:
    with pytest.raises(FactMissing, match="PegasusTokenizer"):
        sentencepiece(model(PIECES), "spiece.model", "PegasusTokenizer", {"offset": 0})


def test_a_class_that_comes_with_the_model_is_not_guessed() -> None:
    with pytest.raises(FactMissing, match="NewTokenizer"):
        sentencepiece(model(PIECES), "tokenizer.model", "NewTokenizer", {"auto_map": {}})


def test_a_tokenizer_model_of_an_unknown_class_has_plain_ids() -> None:
    assert sentencepiece(model(PIECES), "tokenizer.model", "NewTokenizer").ids["b"] == 4


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 1024,
        b"\x0a" + b"\xff" * 8 + b"\x0f" + b"x" * 10,
        b"",
        b"\x0a\x7f",
        field(1, b"\x15\x00\x00\x80\xbf"),
        field(1, field(1, b"\xff\xfe")),
        b"<!DOCTYPE html>",
        model(["a"])[:-1],
        overlong(11),
    ],
    ids=[
        *("garbage", "a length that lies", "empty", "cut", "a piece without text", "no UTF-8", "a web page"),
        *("cut behind a text", "a varint of 11 bytes"),
    ],
)
def test_what_is_no_sentencepiece_model_is_malformed(data: bytes) -> None:
    with pytest.raises(Unreadable) as error:
        sentencepiece(data, "tokenizer.model", "LlamaTokenizer")
    assert error.value.code == "tokenizer-malformed"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_a_table_or_one_of_the_two_errors(data: bytes) -> None:
    settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": 2}
    names = {"vocab.txt", "spiece.model", "tokenizer.model", "x.tiktoken"}
    for file, read in byte_files(names, settings):
        try:
            table = read(data)
        except (FactMissing, Unreadable):
            continue
        assert table.at == Location(file)
        assert all(id >= 0 for id in table.ids.values())


def test_a_varint_may_have_ten_bytes() -> None:
    assert dict(sentencepiece(overlong(10), "tokenizer.model", "").ids) == {"a": 0}


@pytest.mark.parametrize(
    "other",
    [b"\x10\xac\x02", b"\x11" + bytes(8), b"\x12\x03abc", b"\x15" + bytes(4)],
    ids=["a varint", "64 bits", "bytes", "32 bits"],
)
def test_fields_of_every_kind_are_stepped_over(other: bytes) -> None:
    piece = field(1, other + field(1, b"a"))
    assert dict(sentencepiece(other + piece + other, "tokenizer.model", "").ids) == {"a": 0}


def test_a_tokenizer_model_may_hold_tiktoken_ranks(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    vocabulary = tokaudit.load.load(tmp_path).vocabulary
    assert dict(vocabulary.base.ids) == {"!": 0, '"': 1}


def test_a_damaged_model_leaves_no_verdict_only_where_it_is_the_only_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\xff" * 64)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert [error.code for error in tokaudit.load.load(tmp_path).unreadable] == ["tokenizer-malformed"]
    document = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    contract = tokaudit.load.load(tmp_path)
    assert contract.unreadable == ()
    assert any("tokenizer.model" in reason for reason in contract.vocabulary.unread)


def test_a_text_that_a_file_gives_two_ids_needs_rows_for_both() -> None:
    at = Location("tokenizer.json")
    entries = (AddedToken(7, "<a>", at.child("0")), AddedToken(3, "<a>", at.child("1")))
    declared = Declared((TokenTable(Witness.ADDED, at, {"<a>": 3}, style="index", entries=entries),))
    assert declared.required_rows.value == 8
    assert declared.by_id == {7: "<a>", 3: "<a>"}


def test_where_a_base_token_and_an_added_one_share_an_id_it_is_the_added_one() -> None:
    at = Location("tokenizer.json")
    base = TokenTable(Witness.BASE, at.child("model", "vocab"), {"x": 4, "y": 5})
    added = TokenTable(
        Witness.ADDED, at, {"<a>": 5}, entries=(AddedToken(5, "<a>", at.child("added_tokens", "0")),)
    )
    for tables in ((base, added), (added, base)):
        assert Declared(tables).by_id == {4: "x", 5: "<a>"}
