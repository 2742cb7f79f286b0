"""adapter_config.json and the names in adapter_model.safetensors, as PEFT 0.21 writes them.

A tensor is called ``base_model.model.MODULE.PART``: the adapter's own name and ``modules_to_save`` are taken
out when it is saved; adapters of before PEFT 0.4 and files that were written by hand still have them. What
the parts hold (measured; V rows, D hidden, r the rank):

    weight, base_layer.weight               [V, D]   the whole table
    lora_embedding_A / lora_embedding_B     [r, V] / [D, r]
    lora_A.weight / lora_B.weight           [r, D] / [V, r]
    lora_magnitude_vector                   [D] of an embedding, [V] of an output table (DoRA)
    trainable_tokens_delta                  [n, D]   rows that replace those of n tokens
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tokaudit.contract import Change, Document, Fact, Tensor
from tokaudit.errors import Unreadable
from tokaudit.findings import Location
from tokaudit.text import json_value

CONFIG = "adapter_config.json"
SAFETENSORS = "adapter_model.safetensors"
WEIGHTS = re.compile(r"adapter(_model)?\b.*\.(safetensors|bin|pt|pth)")  # also parts, and pickles of old

_PREFIX = re.compile(r"^(base_model\.model\.)+")
_PARTS = (
    (re.compile(r"(?:modules_to_save\.(?:\w+\.)?|base_layer\.)?weight"), Change.WHOLE, 0),
    (re.compile(r"lora_embedding_A(?:\.\w+)?"), Change.LOW_RANK, 1),
    (re.compile(r"lora_B\.(?:\w+\.)?weight"), Change.LOW_RANK, 0),
    (re.compile(r"(?:token_adapter\.)?trainable_tokens_delta(?:\.\w+)?"), Change.ROWS, 0),
)
_PART = re.compile(
    r"(.+?)\.((?:modules_to_save|base_layer|token_adapter|lora_|trainable_tokens|weight$|hada_|lokr_|ia3_"
    r"|oft_|boft_|vera_|vblora_|hra_|fourierft_|randlora_|road_|shira_|miss_|bone_|waveft_|spectrum$).*)"
)
_TOKEN_FIELDS = ("trainable_token_indices", "token_indices")


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of an adapter: what it holds of which module. ``axis`` counts rows; None: it does not."""

    module: str
    change: Change
    tensor: Tensor
    axis: int | None


def part(tensor: Tensor) -> Part | None:
    """What the tensor is, by its name; None for one that belongs to no module (prompt embeddings)."""
    name = _PREFIX.sub("", tensor.name, count=1)
    match = _PART.fullmatch(name)
    if match is None:
        return None
    module, rest = match.groups()
    for pattern, change, axis in _PARTS:
        if pattern.fullmatch(rest):
            return Part(module, change, tensor, axis)
    return Part(module, Change.LOW_RANK if rest.startswith("lora_") else Change.OTHER, tensor, None)


def malformed_fields(config: Document) -> Iterator[Unreadable]:
    """Fields whose JSON type PEFT cannot use. Lists of token ids are left to the rule on them (TA804)."""
    for key, value in config.data.items():
        problem = _problem(key, value)
        if problem:
            yield Unreadable(
                "adapter-field",
                config.at.file,
                f"{config.at.child(key).pointer}: {problem}",
                hint="correct the field, or save the adapter again",
            )


def _problem(key: str, value: object) -> str:
    if key == "modules_to_save" and not _is_list_of_names(value):
        return f"expected a list of module names, found {json_value(value)}"
    if key == "r" and value is not None and (type(value) is not int or value < 1):
        return f"expected a rank of at least 1, found {json_value(value)}"
    if key in ("peft_type", "base_model_name_or_path") and not isinstance(value, (str, type(None))):
        return f"expected a text, found {json_value(value)}"
    return ""


def _is_list_of_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))


@dataclass(frozen=True, slots=True)
class TokenList:
    """A list of token ids in the configuration.

    ``module`` is the module whose rows they are; "" for the input embeddings. ``malformed`` are the members
    that are no ids, as JSON texts.
    """

    module: str
    ids: Fact[tuple[int, ...]]
    malformed: tuple[str, ...]


def token_lists(config: Document) -> Iterator[TokenList]:
    """``trainable_token_indices`` (a list, or one a module) and ``token_indices`` (TRAINABLE_TOKENS)."""
    for key in _TOKEN_FIELDS:
        stated = config.data.get(key)
        at = config.at.child(key)
        if isinstance(stated, dict):
            for module, members in stated.items():
                yield _token_list(module, members, at.child(module))
        elif stated is not None:
            yield _token_list("", stated, at)


def _token_list(module: str, stated: object, at: Location) -> TokenList:
    members = stated if isinstance(stated, list) else [stated]
    ids = tuple(member for member in members if type(member) is int)
    wrong = tuple(json_value(member) for member in members if type(member) is not int)
    return TokenList(module, Fact(ids, at), wrong)
