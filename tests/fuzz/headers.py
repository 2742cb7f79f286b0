"""safetensors files: sound headers with data, headers with odd text in them, and bytes that are neither."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import strategies as st

from fuzz.values import INTEGERS, KEYS, ODD, RAW, TEXTS, Raw, bitten, damaged, written
from tokaudit.contract import DTYPE_BITS

NAMES = TEXTS | st.sampled_from(
    ["model.embed_tokens.weight", "lm_head.weight", "shared.weight", "wte.weight", "a", "b", "__metadata__"]
)


def file_bytes(header: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A header whose tensors lie back to back, and the length of its data."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        dtype, shape = (
            draw(st.sampled_from(sorted(DTYPE_BITS))),
            draw(st.lists(st.integers(0, 4), max_size=3)),
        )
        bits = DTYPE_BITS[dtype]
        for size in shape:
            bits *= size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + bits // 8]}
        end += bits // 8
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.dictionaries(KEYS, TEXTS, max_size=2))
    if draw(st.booleans()):
        names = draw(st.permutations(list(header)))
        header = {name: header[name] for name in names}
    return header, end


@st.composite
def odd_entries(draw: st.DrawFn) -> tuple[Any, int]:
    """A header with something in it that only the reader's strictness decides on."""
    header, end = draw(laid_out())
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return header, end
    name = draw(st.sampled_from(names))
    entry = header[name]
    match draw(st.integers(0, 6)):
        case 0:  # fields that nobody reads
            entry[draw(KEYS)] = draw(ODD)
        case 1:  # the same numbers in another spelling
            entry["data_offsets"] = [
                draw(st.sampled_from([number, _spelled(number)])) for number in entry["data_offsets"]
            ]
            entry["shape"] = [draw(st.sampled_from([number, _spelled(number)])) for number in entry["shape"]]
        case 2:  # as a list, which serde takes for a structure
            header[name] = list(entry.values())
        case 3:  # shapes that overflow, and those that do not because of a zero
            entry["shape"] = draw(st.lists(INTEGERS, max_size=4))
        case 4:  # what stands twice
            again = draw(st.sampled_from(["dtype", "shape", "data_offsets", "extra"]))
            twice = written({again: entry.get(again, draw(ODD))})[1:-1] + b", " + written(entry)[1:-1]
            header[name] = Raw("{" + twice.decode("utf-8", "surrogatepass") + "}")
        case 5:
            header["__metadata__"] = draw(ODD)
        case _:
            size = draw(st.integers(0, 2))
            entry["data_offsets"] = [offset + size for offset in entry["data_offsets"]]
    return header, end


def _spelled(number: int) -> Raw:
    return Raw(f"{number}.0" if number else "-0")


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The bytes of a file that is sound or nearly so."""
    header, end = draw(
        laid_out()
        | odd_entries()
        | st.tuples(damaged(laid_out().map(lambda pair: pair[0])), INTEGERS.filter(lambda n: 0 <= n < 99))
    )
    text = written(header)
    if draw(st.integers(0, 3)) == 0:
        text = draw(st.sampled_from([b"", b" ", b"\n\t", b"\0", b"\xef\xbb\xbf", b"\x0c"])) + text
        text += draw(st.sampled_from([b"", b" " * 7, b"\n", b"\0", b"\0" * 8, b"x", b"{}", b"\xff"]))
    if draw(st.integers(0, 3)) == 0:  # other spellings of the same texts
        text = draw(st.sampled_from([_unescaped, _escaped]))(text)
    spare = draw(st.sampled_from([0] * 9 + [-1, 1, 4]))
    length = draw(st.sampled_from([None] * 9 + [len(text) - 1, len(text) + 1, 0, 2**63, 100_000_001]))
    return file_bytes(text, bytes(max(0, end + spare)), length)


def _unescaped(text: bytes) -> bytes:
    """The same in UTF-8 instead of escapes, where that is possible."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text


def _escaped(text: bytes) -> bytes:
    """The letter "a" as an escape, wherever it stands; in names that is the same name."""
    return text.replace(b"a", b"\\u0061")


FILES = (
    files()
    | bitten(files())
    | st.builds(
        lambda header, data: file_bytes(header, data),
        st.binary(max_size=24) | RAW.map(lambda raw: raw.text.encode("utf-8", "surrogatepass")),
        st.binary(max_size=8),
    )
    | st.binary(max_size=40)
)
