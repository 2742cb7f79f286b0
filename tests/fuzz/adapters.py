"""Adapters as PEFT lays them out, beside the base that they are for."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from fuzz import checkpoints, headers
from fuzz.values import INTEGERS, KEYS, ODD, TEXTS, bitten, damaged, written

Files = dict[str, bytes]

PREFIX = "base_model.model."
TABLES = ("model.embed_tokens", "lm_head")
LAYER = "model.layers.0.self_attn.q_proj"
MODULES = (
    st.sampled_from(
        [*TABLES, *TABLES, LAYER, "embed_tokens", "transformer.wte", "score", "model.layers.0", "", ".", "x"]
    )
    | TEXTS
)
PREFIXES = st.sampled_from([PREFIX] * 6 + ["", PREFIX * 2, "module.", "base_model."])
BASE = "base"

# PART and the shape of its tensor, of a module of [rows, hidden]; "n" is a number of chosen tokens.
PARTS = {
    "weight": ("rows", "hidden"),
    "base_layer.weight": ("rows", "hidden"),
    "modules_to_save.default.weight": ("rows", "hidden"),
    "modules_to_save.weight": ("rows", "hidden"),
    "lora_embedding_A": ("rank", "rows"),
    "lora_embedding_B": ("hidden", "rank"),
    "lora_embedding_A.default": ("rank", "rows"),
    "lora_A.weight": ("rank", "hidden"),
    "lora_B.weight": ("rows", "rank"),
    "lora_B.default.weight": ("rows", "rank"),
    "lora_magnitude_vector": ("hidden",),
    "trainable_tokens_delta": ("n", "hidden"),
    "token_adapter.trainable_tokens_delta": ("n", "hidden"),
    "hada_w1_a": ("rows", "rank"),
    "lora_X.weight": ("rows", "hidden"),
}
FIELDS = st.sampled_from(
    [
        *("peft_type", "r", "modules_to_save", "trainable_token_indices", "token_indices", "task_type"),
        *("base_model_name_or_path", "target_modules", "ensure_weight_tying", "use_dora", "rank_pattern"),
    ]
)
TOKEN_LISTS = st.lists(INTEGERS | st.integers(0, 20) | ODD, max_size=4)


def config(**changes: Any) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": 4,
        "modules_to_save": None,
        "target_modules": ["q_proj"],
        "trainable_token_indices": None,
        "ensure_weight_tying": False,
        **changes,
    }


@st.composite
def weights(draw: st.DrawFn, rows: int) -> bytes:
    """Parts of modules for a base of so many rows; some of another shape, of another dtype, or misnamed."""
    lengths = {"rows": rows, "hidden": checkpoints.HIDDEN, "rank": 4, "n": 2}
    tensors: dict[str, tuple[str, list[int]]] = {}
    for module in draw(st.lists(MODULES, max_size=4)):
        part = draw(st.sampled_from(list(PARTS)))
        shape = [lengths[axis] for axis in PARTS[part]]
        match draw(st.integers(0, 6)):
            case 0 if shape:
                shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(0, 9))
            case 1:
                shape = draw(st.lists(st.integers(0, 5), max_size=4))
            case 2:
                part += draw(st.sampled_from([".default", ".", "_x", ".weight"]) | TEXTS)
        tensors[draw(PREFIXES) + f"{module}.{part}"] = (
            draw(st.sampled_from(["F32", "F32", "BF16", "I64", "F8_E4M3"])),
            shape,
        )
    data = checkpoints.tensors(tensors)
    return draw(st.just(data) | st.just(data) | st.just(data) | bitten(st.just(data)) | headers.FILES)


@st.composite
def adapters(draw: st.DrawFn) -> Files:
    """An adapter, mostly with its base beside it, a tokenizer of its own, or a whole model around it."""
    base = draw(checkpoints.small())
    rows = json.loads(base["config.json"])["vocab_size"]
    stated = config()
    stated |= draw(st.dictionaries(FIELDS, ODD, max_size=2) if draw(st.integers(0, 2)) == 0 else st.just({}))
    if draw(st.booleans()):
        ids = draw(
            TOKEN_LISTS
            | st.dictionaries(st.sampled_from(["embed_tokens", "lm_head"]) | KEYS, TOKEN_LISTS, max_size=2)
        )
        stated[draw(st.sampled_from(["trainable_token_indices", "token_indices"]))] = ids
    stated["base_model_name_or_path"] = draw(
        st.sampled_from([BASE] * 5 + ["../model", "no/such", "", ".", "http://x/y", "a\0b", "\x1b[31m", None])
    )
    document = draw(damaged(st.just(stated), most=2)) if draw(st.booleans()) else stated
    found: Files = {"adapter_config.json": written(document)}
    name = draw(
        st.sampled_from(["adapter_model.safetensors"] * 6 + ["adapter_model.bin", "adapter.safetensors", ""])
    )
    if name:
        found[name] = draw(weights(rows))
    if draw(st.integers(0, 4)):
        found |= {f"{BASE}/{file}": data for file, data in base.items()}
        if draw(st.integers(0, 5)) == 0:
            file = draw(st.sampled_from(sorted(base)))
            found[f"{BASE}/{file}"] = draw(bitten(st.just(base[file])))
    if draw(st.integers(0, 2)) == 0:
        found |= {
            name: data for name, data in draw(checkpoints.small()).items() if name != "model.safetensors"
        }
    if draw(st.integers(0, 7)) == 0:
        found |= base
    return found


# What a loader of PEFT takes, but for rows and ids ---------------------------------------------------------


@st.composite
def of_other_rows(draw: st.DrawFn) -> tuple[Files, set[str]]:
    """A sound adapter of a base whose rows may be others, and the rules that must speak (TA801, TA804)."""
    base = draw(checkpoints.small(surplus=(0, 1, 3)))
    rows = json.loads(base["config.json"])["vocab_size"]
    untied = not json.loads(base["config.json"])["tie_word_embeddings"]
    own = draw(st.sampled_from([rows, rows, rows + 1, rows + 64, max(1, rows - 1)]))
    tensors: dict[str, tuple[str, list[int]]] = {
        f"{PREFIX}{LAYER}.lora_A.weight": ("F32", [4, checkpoints.HIDDEN]),
        f"{PREFIX}{LAYER}.lora_B.weight": ("F32", [checkpoints.HIDDEN, 4]),
    }
    lengths = {"rows": own, "hidden": checkpoints.HIDDEN, "rank": 4}
    kinds = {
        "model.embed_tokens": [
            ("weight",),
            ("modules_to_save.default.weight",),
            ("lora_embedding_A", "lora_embedding_B"),
        ],
        "lm_head": [("weight",), ("lora_A.weight", "lora_B.weight")],
    }
    changed = draw(st.lists(st.sampled_from(TABLES[: 1 + untied]), max_size=2, unique=True))
    whole = False
    for module in changed:
        parts = draw(st.sampled_from(kinds[module]))
        whole |= module == TABLES[0] and len(parts) == 1
        tensors |= {
            f"{PREFIX}{module}.{part}": ("F32", [lengths[axis] for axis in PARTS[part]]) for part in parts
        }
    limit = own if whole else rows
    ids = draw(
        st.none() | st.lists(st.integers(0, rows + 2) | st.just(-1), min_size=1, max_size=3, unique=True)
    )
    if ids and not whole:
        tensors[f"{PREFIX}{TABLES[0]}.token_adapter.trainable_tokens_delta"] = (
            "F32",
            [len(ids), checkpoints.HIDDEN],
        )
    expected = {"TA801"} if changed and own != rows else set()
    if ids and not all(0 <= id < limit for id in ids):
        expected.add("TA804")
    found = {
        "adapter_config.json": written(config(trainable_token_indices=ids)),
        "adapter_model.safetensors": checkpoints.tensors(tensors),
        **{f"{BASE}/{file}": data for file, data in base.items()},
    }
    return found, expected
