"""Small models with any tokenizer that loads: alone, in pairs, and with adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from hypothesis import strategies as st

from fuzz import headers, tokenizer_files
from fuzz.values import written
from tokaudit.contract import DTYPE_BITS
from tokaudit.tokenizing import effective_ids

Files = dict[str, bytes]

HIDDEN = 2
NUMBERS = {  # 1, -2, a small one and 0
    "F32": [b"\x00\x00\x80\x3f", b"\x00\x00\x00\xc0", b"\x01\x01\x01\x01", bytes(4)],
    "F16": [b"\x00\x3c", b"\x00\xc0", b"\x3c\x2c", bytes(2)],
    "BF16": [b"\x80\x3f", b"\x00\xc0", b"\x3c\x2c", bytes(2)],
}


@st.composite
def small(draw: st.DrawFn, *, surplus: tuple[int, ...] = (0, 0, 0, 1, 5, -1)) -> Files:
    """A model of a few rows; ``surplus`` are the rows that it may have beyond the largest id."""
    document = draw(tokenizer_files.sound())
    vocab = document["model"]["vocab"]
    ids = list(vocab.values()) if isinstance(vocab, dict) else list(range(len(vocab)))
    ids += [entry["id"] for entry in document["added_tokens"] if entry["id"] < 99]
    if draw(st.integers(0, 3)):  # as most are: no holes, and every entry at the id that it gets
        _straighten(document)
        ids = list(range(_count(document)))
    rows = max(0, max(ids, default=-1) + 1 + draw(st.sampled_from(surplus)))
    dtype = draw(st.sampled_from(list(NUMBERS)))
    names = ["model.embed_tokens.weight", "lm_head.weight"][: draw(st.integers(1, 2))]
    numbers = draw(st.lists(st.sampled_from(NUMBERS[dtype]), min_size=1, max_size=7))
    data = b"".join(numbers[place % len(numbers)] for place in range(rows * HIDDEN * len(names)))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": rows,
        "hidden_size": HIDDEN,
        "tie_word_embeddings": len(names) == 1,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 2,
    }
    return {
        **tokenizer_files.as_file(document),
        "config.json": written(config),
        "model.safetensors": tensors({name: (dtype, [rows, HIDDEN]) for name in names}, data),
    }


def tensors(shapes: Mapping[str, tuple[str, Sequence[int]]], data: bytes | None = None) -> bytes:
    """A file of tensors of these dtypes and shapes, back to back; zeros without ``data``."""
    header, end = {}, 0
    for name, (dtype, shape) in shapes.items():
        begin, end = end, end + prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return headers.file_bytes(written(header), bytes(end) if data is None else data)


def _count(document: Any) -> int:
    vocab = document["model"]["vocab"]
    base = set(vocab) if isinstance(vocab, dict) else {piece for piece, _ in vocab}
    return len(vocab) + len({entry["content"] for entry in document["added_tokens"]} - base - {""})


def _straighten(document: Any) -> None:
    """Ids in order, from 0, without holes, each added token at the id that the library gives it; and nothing
    speaks of tokens that there are not."""
    document["post_processor"] = None
    vocab = document["model"]["vocab"]
    if isinstance(vocab, dict):
        ids = document["model"]["vocab"] = {content: id for id, content in enumerate(vocab)}
        document["model"]["unk_token"] = next(iter(vocab))
    else:
        vocab[:] = list({piece: [piece, score] for piece, score in vocab}.values())
        ids = {piece: id for id, (piece, _) in enumerate(vocab)}
        if document["model"]["unk_id"] is not None:
            document["model"]["unk_id"] = 0
    given = effective_ids(ids, (entry["content"] for entry in document["added_tokens"]))
    entries = {entry["content"]: entry for entry in document["added_tokens"] if entry["content"]}
    document["added_tokens"] = [{**entry, "id": given[content]} for content, entry in entries.items()]
