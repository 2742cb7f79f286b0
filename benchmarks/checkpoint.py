"""Write Llama-shaped bf16 checkpoints of any size in seconds, for measurements. Needs no torch.

    python benchmarks/checkpoint.py OUT --tokenizer FILE [--gb 4.5] [--tables untied|tied|both]

The layout (names, shards, index, configurations) is what ``save_pretrained`` writes and what transformers
loads. The values are small finite bfloat16 numbers; no two rows of a table are the same.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import random
import shutil
import string
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, product
from math import prod
from pathlib import Path

BF16_BYTES = 2
BLOCK_BYTES = (1 << 20) - 2  # shares only the factor 2 with a row: its repetitions never line up with rows
SYNTHETIC_TOKENS = 128_000
CONTEXT = 4096
BYTE_ALPHABET = [chr(b) for b in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]


class Tables(enum.Enum):
    """What is stored of the two tables, and what ``tie_word_embeddings`` says."""

    UNTIED = "untied"  # two different tables
    TIED = "tied"  # the flag and the input table
    BOTH = "both"  # the flag and two equal tables


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama model; the defaults are those of an 8B model without its layers."""

    rows: int
    layers: int
    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """``seed`` chooses the values: tensors of one shape and one seed are equal."""

    name: str
    shape: tuple[int, ...]
    seed: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * BF16_BYTES


@dataclass(frozen=True, slots=True)
class Span:
    """Where a tensor's bytes are."""

    file: Path
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was written: ``spans`` by tensor name."""

    path: Path
    spans: dict[str, Span]

    @property
    def nbytes(self) -> int:
        return sum(span.nbytes for span in self.spans.values())

    @property
    def shards(self) -> int:
        return len({span.file for span in self.spans.values()})


def build(
    out: Path, tokenizer: Path, shape: Shape, tables: Tables, *, shard_bytes: int = 1_600_000_000
) -> Checkpoint:
    """Write a model directory to ``out``, synced to the disk."""
    out.mkdir(parents=True)
    shards = list(_into_shards(_tensors(shape, tables), shard_bytes))
    spans: dict[str, Span] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        spans |= _write_shard(out / (name if len(shards) > 1 else "model.safetensors"), tensors)
    checkpoint = Checkpoint(out, spans)
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": checkpoint.nbytes},
            "weight_map": {name: span.file.name for name, span in sorted(spans.items())},
        }
        _write_json(out / "model.safetensors.index.json", index)
    _write_configs(out, tokenizer, shape, tied=tables is not Tables.UNTIED)
    return checkpoint


def shape_for(nbytes: int, rows: int, tables: Tables) -> Shape:
    """The shape whose checkpoint comes closest to ``nbytes``: the layers are what varies."""
    empty, one = (sum(tensor.nbytes for tensor in _tensors(Shape(rows, layers), tables)) for layers in (0, 1))
    return Shape(rows, max(1, round((nbytes - empty) / (one - empty))))


def rows_for(tokenizer: Path) -> int:
    """Largest id of a tokenizer.json + 1, rounded up to a multiple of 64."""
    document = json.loads(tokenizer.read_bytes())
    ids: list[int] = [
        *document["model"]["vocab"].values(),
        *(token["id"] for token in document["added_tokens"]),
    ]
    return -(-(max(ids) + 1) // 64) * 64


def synthesise_tokenizer(file: Path, tokens: int = SYNTHETIC_TOKENS) -> None:
    """Write a byte-level BPE tokenizer.json: special tokens, 256 bytes, words of two to four letters.

    A word that is a token is that token whatever its merges, as in Llama 3: nearly every token of a real
    vocabulary can be reached.
    """
    special = ["<s>", "</s>", "<pad>"]
    letters = string.ascii_lowercase
    pairs = [a + b for a, b in product(letters, letters)]
    candidates = chain(product(letters, letters), product(pairs, letters), product(pairs, pairs))
    merges = list(islice(candidates, tokens - len(special) - len(BYTE_ALPHABET)))
    contents = [*special, *BYTE_ALPHABET, *(left + right for left, right in merges)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": content, **flags} for id, content in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": {content: id for id, content in enumerate(contents)},
            "merges": merges,
        },
    }
    file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def _tensors(shape: Shape, tables: Tables) -> Iterator[Tensor]:
    hidden, kv = shape.hidden, shape.hidden // shape.heads * shape.kv_heads
    yield Tensor("model.embed_tokens.weight", (shape.rows, hidden), 0)
    parts = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (shape.intermediate, hidden),
        "mlp.up_proj": (shape.intermediate, hidden),
        "mlp.down_proj": (hidden, shape.intermediate),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    for layer in range(shape.layers):
        for part, size in parts.items():
            yield Tensor(f"model.layers.{layer}.{part}.weight", size, 2)
    yield Tensor("model.norm.weight", (hidden,), 2)
    if tables is not Tables.TIED:
        yield Tensor("lm_head.weight", (shape.rows, hidden), 0 if tables is Tables.BOTH else 1)


def _into_shards(tensors: Iterator[Tensor], limit: int) -> Iterator[list[Tensor]]:
    shard: list[Tensor] = []
    for tensor in tensors:
        if shard and sum(member.nbytes for member in shard) + tensor.nbytes > limit:
            yield shard
            shard = []
        shard.append(tensor)
    yield shard


def _write_shard(file: Path, tensors: list[Tensor]) -> dict[str, Span]:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.nbytes
        header[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    spans: dict[str, Span] = {}
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            spans[tensor.name] = Span(file, stream.tell(), tensor.nbytes)
            block = memoryview(_block(tensor.seed))
            for start in range(0, tensor.nbytes, BLOCK_BYTES):
                stream.write(block[: tensor.nbytes - start])
        stream.flush()
        os.fsync(stream.fileno())
    return spans


def _block(seed: int) -> bytes:
    """Random bfloat16 numbers between 2**-9 and 2**-5, of either sign, little-endian."""
    rng = random.Random(seed)
    block = bytearray(rng.randbytes(BLOCK_BYTES))
    signs_and_exponents = bytes((0x3B, 0x3C, 0xBB, 0xBC)[byte % 4] for byte in range(256))
    block[1::2] = block[1::2].translate(signs_and_exponents)
    return bytes(block)


def _write_configs(out: Path, tokenizer: Path, shape: Shape, *, tied: bool) -> None:
    """The first three special tokens of the tokenizer become bos, eos and pad."""
    shutil.copyfile(tokenizer, out / "tokenizer.json")
    special = [token for token in json.loads(tokenizer.read_bytes())["added_tokens"] if token["special"]]
    roles = dict(zip(("bos", "eos", "pad"), special, strict=False))
    ids = {f"{role}_token_id": token["id"] for role, token in roles.items()}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": CONTEXT,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": tied,
        "vocab_size": shape.rows,
    }
    texts = {f"{role}_token": token["content"] for role, token in roles.items()}
    settings = {"model_max_length": CONTEXT, "tokenizer_class": "PreTrainedTokenizerFast"}
    _write_json(out / "config.json", config | ids)
    _write_json(out / "generation_config.json", ids)
    _write_json(out / "tokenizer_config.json", texts | settings)


def _write_json(file: Path, document: object) -> None:
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a Llama-shaped bf16 checkpoint for measurements.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--gb", type=float, default=4.5, help="size of the weights in 10^9 bytes")
    parser.add_argument("--tables", choices=[choice.value for choice in Tables], default="untied")
    call = parser.parse_args()
    tables = Tables(call.tables)
    shape = shape_for(int(call.gb * 1e9), rows_for(call.tokenizer), tables)
    made = build(call.out, call.tokenizer, shape, tables)
    print(f"{made.path}: {made.nbytes / 1e9:.1f} GB in {made.shards} shards, {shape}")


if __name__ == "__main__":
    main()
