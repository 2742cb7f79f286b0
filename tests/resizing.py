"""Models of many shapes for the tests of resize, and looks at what a resize made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models import Description, base, changed
from weights import tables_of

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FLOATS = ("F32", "F16", "BF16", "F64")


def tensor(*shape: int, dtype: str = "F32", fill: Any = "normal") -> Description:
    return {"dtype": dtype, "shape": list(shape), "fill": fill}


def weights(description: Description) -> dict[str, Description]:
    tensors: dict[str, Description] = description["safetensors"]["model.safetensors"]
    return tensors


def untied() -> Description:
    """Llama with two tables."""
    return base("llama")


def tied() -> Description:
    """Llama with one stored table."""
    config = {"tie_word_embeddings": True}
    tables = {"model.safetensors": {HEAD: None}}
    return changed(base("llama"), {"json": {"config.json": config}, "safetensors": tables})


def both_copies() -> Description:
    """Llama that is tied and stores the table twice."""
    config = {"tie_word_embeddings": True}
    tables = {"model.safetensors": {HEAD: {"fill": {"same": EMBED}}}}
    return changed(base("llama"), {"json": {"config.json": config}, "safetensors": tables})


def bert() -> Description:
    """A tied encoder: one table and both names of its output bias."""
    bias = {"cls.predictions.bias": tensor(320), "cls.predictions.decoder.bias": tensor(320)}
    bias["cls.predictions.decoder.bias"]["fill"] = {"same": "cls.predictions.bias"}
    return changed(base("bert"), {"safetensors": {"model.safetensors": bias}})


def t5() -> Description:
    """One shared table under all its three names."""
    copy = tensor(320, 8, fill={"same": "shared.weight"})
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    return changed(base("t5"), {"safetensors": {"model.safetensors": dict.fromkeys(names, copy)}})


def another(architecture: str, config: Description, tensors: Mapping[str, Description]) -> Description:
    """A model of another class with Llama's tokenizer."""
    ids = {"bos_token_id": 304, "eos_token_id": 311, "pad_token_id": 306}
    description = base("llama")
    del description["json"]["generation_config.json"]
    description["json"]["config.json"] = {"architectures": [architecture], **config, **ids}
    description["safetensors"] = {"model.safetensors": dict(tensors)}
    return description


def bart() -> Description:
    """An encoder-decoder with a bias of shape [1, rows]."""
    copy = tensor(320, 8, fill={"same": "model.shared.weight"})
    config = {"model_type": "bart", "vocab_size": 320, "d_model": 8, "decoder_start_token_id": 311}
    tensors = {
        "model.shared.weight": tensor(320, 8),
        "model.encoder.embed_tokens.weight": copy,
        "model.decoder.embed_tokens.weight": copy,
        "final_logits_bias": tensor(1, 320),
    }
    return another("BartForConditionalGeneration", config, tensors)


def predictor() -> Description:
    """A layer for multi-token prediction with its own copies of both tables."""
    config = {
        "model_type": "deepseek_v3",
        "vocab_size": 320,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    }
    tensors = {
        EMBED: tensor(320, 8),
        HEAD: tensor(320, 8),
        "model.layers.1.embed_tokens.weight": tensor(320, 8, fill={"same": EMBED}),
        "model.layers.1.shared_head.head.weight": tensor(320, 8, fill={"same": HEAD}),
    }
    return another("DeepseekV3ForCausalLM", config, tensors)


def biased() -> Description:
    """An untied decoder with an output bias."""
    config = {"model_type": "phi", "vocab_size": 320, "hidden_size": 8, "tie_word_embeddings": False}
    tensors = {EMBED: tensor(320, 8), HEAD: tensor(320, 8), "lm_head.bias": tensor(320)}
    return another("PhiForCausalLM", config, tensors)


SHAPES = {make.__name__: make for make in (untied, tied, both_copies, bert, t5, bart, predictor, biased)}


def with_dtype(description: Description, dtype: str) -> Description:
    for tensors in description["safetensors"].values():
        for entry in tensors.values():
            entry["dtype"] = dtype
    return description


def with_rows(description: Description, rows: int) -> Description:
    """The same with padding rows, or without rows for the last tokens."""
    for tensors in description["safetensors"].values():
        for entry in tensors.values():
            entry["shape"] = [rows if length == 320 else length for length in entry["shape"]]
    description["json"]["config.json"]["vocab_size"] = rows
    return description


def in_shards(description: Description, count: int) -> Description:
    """The same in so many shards, with an index."""
    tensors = list(weights(description).items())
    size = -(-len(tensors) // count)
    description["safetensors"] = {
        f"model-{place + 1:05d}-of-{count:05d}.safetensors": dict(tensors[place * size : (place + 1) * size])
        for place in range(count)
    }
    description["index"] = True
    return description


def data(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def tables(directory: Path) -> dict[str, list[bytes]]:
    return tables_of(directory)
