"""JSON is read strictly: what is accepted, what is refused with which code, and that a stranger's file
cannot bring the reader down."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokaudit.errors import Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits
from tokaudit.formats.strict_json import parse, parse_object, read_json, read_object
from tokaudit.sources import open_source


def refusal(data: bytes) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        parse(data, "config.json")
    assert caught.value.file == "config.json"
    assert "\n" not in caught.value.message
    return caught.value


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers(-(10**39), 10**39) | FLOATS | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


@given(VALUES, st.booleans())
def test_every_json_value_is_read_as_python_reads_it(value: object, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    parsed = parse(data, "x.json")
    assert parsed.value == value
    assert parsed.duplicates == ()


@given(st.binary() | st.text('[]{}:,"\\ud8c0e+-.19aNIft ').map(str.encode))
@example(b'{"a": 1e999, "a": 1}')
@example(b"\x00")
@example(b"\xff\xfe")
def test_any_bytes_give_a_value_or_unreadable(data: bytes) -> None:
    with suppress(Unreadable):
        parse(data, "x.json")


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "json-syntax", "found an empty file"),
        (b" \n ", "json-syntax", "found an empty file"),
        (b'{"a": 1,\n "b" 2}', "json-syntax", "line 2, column 6: expecting ':' delimiter"),
        (b'{"a": "\x01"}', "json-syntax", "line 1, column 8: invalid control character"),
        (b"{} {}", "json-syntax", "line 1, column 4: extra data"),
        (b'{"a": 1} // why', "json-syntax", "extra data"),
        (b"<!DOCTYPE html><p>404", "json-syntax", "found a web page (HTML)"),
        (b'{\n<<<<<<< HEAD\n"a": 1\n=======\n', "json-syntax", "a merge conflict"),
        (b"<<<<<<< HEAD\n{}\n=======\n", "json-syntax", "a merge conflict"),
        (b"PK\x03\x04\xff\xff", "json-syntax", "found a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "lfs-pointer", "Git LFS pointer"),
        ('{"a": 1}'.encode("utf-16"), "json-encoding", "expected UTF-8, found UTF-16"),
        ('{"a": 1}'.encode("utf-16-be"), "json-encoding", "found UTF-16-BE"),
        ('{"a": 1}'.encode("utf-32"), "json-encoding", "found UTF-32"),
        ('{"a": "é"}'.encode("latin-1"), "json-encoding", "the byte 0xe9 at offset 7"),
        (b"[" * 129 + b"]" * 129, "json-depth", "more than 128 levels"),
        (b'{"a":' * 129 + b"1" + b"}" * 129, "json-depth", "more than 128 levels"),
        (b"[" * 1_000_000, "json-depth", "more than 128 levels"),
        (b'{"a": [0, NaN]}', "json-nonfinite", "/a/1: NaN is not valid JSON"),
        (b'{"a": [1e999, NaN]}', "json-nonfinite", "/a/0: 1e999 is not valid JSON"),
        (b'{"a": -Infinity}', "json-nonfinite", "/a: -Infinity is not valid JSON"),
        (b'{"a": 1e999}', "json-nonfinite", "/a: 1e999 is not valid JSON"),
        (b'{"a": NaN, "a": 1}', "json-nonfinite", "NaN is not valid JSON"),
        (b'{"a/b": ' + b"9" * 41 + b"}", "json-number", "/a~1b: an integer of more than 40 digits"),
        (b"-" + b"1" * 5000, "json-number", "an integer of more than 40 digits"),
        (b'{"a": "\\ud800"}', "json-surrogate", '/a: half of a surrogate pair in "\\ud800"'),
        (b'{"\\uDFFFa": 1}', "json-surrogate", "half of a surrogate pair"),
    ],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused_with_its_cause(data: bytes, code: str, words: str) -> None:
    error = refusal(data)
    assert error.code == code
    assert words in error.message


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "\\ud83d\\ude00"}',  # a pair is a character
        b'{"a": "\\\\ud800"}',  # an escaped backslash and five letters
        b'["' + b"0" * 100 + b'"]',  # digits in a text
        b"[0." + b"3" * 100 + b"]",
        b"[1e300]",
        b"[" * 128 + b"]" * 128,
        b"\xef\xbb\xbf{}",
        b'"a string"',
        b"null",
    ],
)
def test_what_only_looks_suspicious_is_accepted(data: bytes) -> None:
    assert parse(data, "x.json").value == json.loads(data)


def test_the_word_infinity_is_a_number_where_it_is_allowed() -> None:
    stated = b'{"a": [0.0, Infinity, -Infinity]}'
    assert parse(stated, "config.json", infinity=True).value == {"a": [0.0, float("inf"), float("-inf")]}


@pytest.mark.parametrize(
    ("refused", "words"), [(b"NaN", "/b: NaN is not valid"), (b"1e999", "/b: 1e999 is not valid")]
)
def test_what_else_is_no_finite_number_is_refused_beside_an_infinity_that_is_allowed(
    refused: bytes, words: str
) -> None:
    with pytest.raises(Unreadable, match=words):
        parse(b'{"a": Infinity, "b": ' + refused + b"}", "config.json", infinity=True)


def test_an_lfs_pointer_says_how_to_fetch_the_file() -> None:
    assert "git lfs pull" in refusal(b"version https://git-lfs.github.com/spec/v1\n").hint


def test_a_repeated_key_is_located_and_its_last_value_counts() -> None:
    parsed = parse(b'{"a": [{"b": 1, "c/d": 2, "c/d": 3, "b": 4}], "e": 5}', "config.json")
    assert parsed.value == {"a": [{"b": 4, "c/d": 3}], "e": 5}
    assert [(found.key, found.at) for found in parsed.duplicates] == [
        ("b", Location("config.json", "/a/0/b")),
        ("c/d", Location("config.json", "/a/0/c~1d")),
    ]


def test_the_list_of_repeated_keys_is_bounded() -> None:
    many = b",".join(b'"%d":0,"%d":0' % (number, number) for number in range(5000))
    assert len(parse(b"{" + many + b"}", "x.json").duplicates) == limits.JSON_DUPLICATES_LISTED


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"[]", "a list"),
        (b'"a"', '"a"'),
        (b"null", "null"),
        (b"1.5", "1.5"),
        (b"true", "true"),
    ],
)
def test_a_file_that_must_hold_an_object_is_refused_when_it_holds_something_else(
    data: bytes, found: str
) -> None:
    with pytest.raises(Unreadable, match=f"expected an object, found {found}") as caught:
        parse_object(data, "config.json")
    assert caught.value.code == "json-type"


def test_files_are_read_through_their_source_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"vocab_size": 8}')
    source = open_source(tmp_path)
    assert read_object(source, "config.json", 17).value == {"vocab_size": 8}
    with pytest.raises(Unreadable) as caught:
        read_json(source, "config.json", 16)
    assert caught.value.code == "file-too-large"
