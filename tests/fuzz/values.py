"""JSON as strangers write it: values of every kind, text that no writer writes, and damage to a document."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from reports import HOSTILE


@dataclass(frozen=True)
class Raw:
    """Text that stands in a document as it is."""

    text: str


def written(value: Any) -> bytes:
    """The document in ASCII, but for what ``Raw`` puts into it; NaN and lone surrogates are written, too."""
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_text(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)


# What stands in front of the places that limits and types end at.
INTEGERS = st.sampled_from(
    [-(2**63), -1, 0, 1, 2, 7, 8, 31, 32, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63, 2**64, 10**39]
)
FLOATS = st.sampled_from([0.0, -0.0, 0.5, 1.0, 7.0, -1.5, 1e16, 1e308, 5e-324, float("nan"), float("inf")])
TEXTS = st.sampled_from(
    [
        *(
            "",
            " ",
            "a",
            "ab",
            "\0",
            "\n",
            "\x1b[31m",
            "\u202eevil",
            "\ud800",
            "\U0010ffff",
            "é",
            "e\u0301",
            "語",
        ),
        *("<s>", "</s>", "<unk>", "[PAD]", "<|im_end|>", "<|eot_id|>", "<0x0A>", "\u2581a", "\u0120a", "##a"),
        *("::error::x", "##[error]x", "[red]", "[/nope]", ":smile:", "%0A", "|", "`", "<script>", "{{x}}"),
        *("../x", "/etc/passwd", "C:\\x", "\\\\x\\y", "a/b", ".", "file:///x", "model.safetensors"),
        *("true", "null", "0", "-1", "NaN", "float16", "torch.bfloat16", "LlamaForCausalLM", "llama"),
        *(HOSTILE, "x" * 300, "語" * 70, "a b", "a\tb", "\u00a0", "\ufeff", "\u2028"),
    ]
) | st.text(max_size=4)
KEYS = TEXTS | st.sampled_from(
    ["type", "content", "id", "vocab", "special", "vocab_size", "model", "__metadata__"]
)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
RAW = st.sampled_from(
    [
        *(
            "NaN",
            "-Infinity",
            "1e999",
            "-1e999",
            "-0",
            "1e0",
            "1E400",
            "01",
            "+1",
            "1.",
            ".5",
            "tru",
            "nul",
            "",
        ),
        *("9" * 40, "9" * 41, "-" + "9" * 41, "9" * 5000, "1." + "0" * 50, "0." + "0" * 400 + "1"),
        *("[" * 60 + "]" * 60, "[" * 130 + "]" * 130, '{"a":' * 130 + "1" + "}" * 130, "[" * 100_000),
        *('{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}, "a": 0}', '{"": 1, "": 2}', "{1: 2}", "{'a': 1}"),
        *(
            '"\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\ude00\\ud83d"',
            '"\0"',
            '"\x7f"',
            '"\\x41"',
            '"\\u00"',
            '"\n"',
        ),
        *("/* c */ 1", "// c\n1", "[1,]", '{"a":1,}', "<<<<<<< HEAD\n", "\ufeff", "\u00a01", "\x0b1", '"'),
    ]
).map(Raw)
ODD = SCALARS | JSON | RAW


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[Any], least: int = 0, most: int = 3) -> Any:
    """A document with some changes, each somewhere in it."""
    document = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(least, most))):
        document = _hurt(draw, document)
    return document


def _hurt(draw: st.DrawFn, document: Any) -> Any:
    """The document with one change at a place that is as likely to be high up as deep down."""
    if not isinstance(document, (dict, list)) or not document:
        return draw(ODD)
    holder: Any = document
    while True:
        key = draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
        inner = holder[key]
        if not isinstance(inner, (dict, list)) or not inner or draw(st.integers(0, 3)) == 0:
            break
        holder = inner
    return draw(st.sampled_from(_CHANGES))(draw, document, holder, key)


Change = Callable[[st.DrawFn, Any, Any, Any], Any]


def _replace(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    holder[key] = draw(ODD)
    return document


def _nudge(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    """A number becomes its neighbour; anything else, another value."""
    if type(holder[key]) is not int:
        return _replace(draw, document, holder, key)
    holder[key] += draw(st.sampled_from([-1, 1, -2, 2, 8, 64]))
    return document


def _remove(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    del holder[key]
    return document


def _repeat(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    """An item once more, or a key that stands twice."""
    if isinstance(holder, list):
        holder.insert(draw(st.integers(0, len(holder))), copy.deepcopy(holder[key]))
        return document
    inside = _text(holder)[1:-1]
    again = f"{json.dumps(key)}: {_text(draw(ODD))}"
    return _exchange(document, holder, Raw("{" + inside + ", " + again + "}"))


def _rename(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        holder[draw(KEYS)] = holder.pop(key)
        return document
    return _remove(draw, document, holder, key)


def _wrap(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    value = holder[key]
    holder[key] = draw(st.sampled_from([[value], [value, value], {"content": value}, {"a": value}]))
    return document


def _move(draw: st.DrawFn, document: Any, holder: Any, key: Any) -> Any:
    """What stands here stands at the top, too, or what stands at the top stands here."""
    if not isinstance(document, dict):
        return _replace(draw, document, holder, key)
    other = draw(st.sampled_from(list(document)))
    here, there = copy.deepcopy(holder[key]), copy.deepcopy(document[other])
    if draw(st.booleans()):
        document[other] = here
    else:
        holder[key] = there
    return document


def _exchange(document: Any, old: Any, new: Any) -> Any:
    """The document with one of its parts replaced."""
    if document is old:
        return new
    if isinstance(document, dict):
        return {key: _exchange(member, old, new) for key, member in document.items()}
    if isinstance(document, list):
        return [_exchange(member, old, new) for member in document]
    return document


_CHANGES: list[Change] = [_replace, _nudge, _remove, _repeat, _rename, _wrap, _move]

# Bytes --------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *(
            b"\0",
            b"\xff",
            b"\xef\xbb\xbf",
            b"\n",
            b"\r",
            b'"',
            b"\\",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"-",
        ),
        *(b"0", b"9" * 41, b"\x80", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"null", b"NaN"),
        *(b"{%", b"%}", b"{{", b"}}", b"{#", b"#}", b"version https://git-lfs.github.com/spec/v1\n"),
        *(b"PK\x03\x04", b"\x80\x02", b"GGUF", b"\x1f\x8b", b"<html>", b"\xff\xfe", b"\0\0\xfe\xff"),
    ]
) | st.binary(min_size=1, max_size=3)


@st.composite
def bitten(draw: st.DrawFn, inputs: st.SearchStrategy[bytes], most: int = 3) -> bytes:
    """Bytes with pieces cut out, put in, overwritten or repeated."""
    data = draw(inputs)
    for _ in range(draw(st.integers(1, most))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from([0, 0, 1, 1, 2, 8, 64, len(data)])))
        middle = draw(st.just(b"") | PIECES | st.just(data[start:stop] * 2))
        data = data[:start] + middle + data[stop:]
    return data
