"""What is known of transformers' tokenizer classes.

Which versions have a class, the special tokens that its constructor fills in, and which class
``AutoTokenizer`` of transformers 5 makes of a directory (measured on 5.24 and 4.57 by
tools/make_tokenizer_classes.py).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


class Treatment(enum.Enum):
    """What a class of transformers 5 does with a tokenizer.json."""

    AS_IT_STANDS = "loads it as it stands"
    REBUILT = "builds the pipeline anew from its vocabulary and merges"
    NOT_READ = "has a Python implementation of its own"


@dataclass(frozen=True, slots=True)
class LoadedClass:
    name: str
    treatment: Treatment


GENERIC = LoadedClass("TokenizersBackend", Treatment.AS_IT_STANDS)

# Classes that only hold whatever tokenizer.json says.
GENERIC_NAMES = frozenset(
    {"TokenizersBackend", "PreTrainedTokenizerFast", "PreTrainedTokenizer", "PythonBackend"}
)


@cache
def _data() -> Mapping[str, Any]:
    data = files("tokaudit.families").joinpath("data/tokenizer_classes.json").read_bytes()
    found: Mapping[str, Any] = json.loads(data)
    return found


def class_defaults(name: str) -> Mapping[str, str]:
    """Special tokens (by field name, "bos_token") that the class's constructor fills in; empty if unknown."""
    entry = _data()["classes"].get(name)
    return entry["defaults"] if entry else {}


def generations(name: str) -> tuple[int, ...]:
    """The major versions of transformers that have this class; empty for an unknown one."""
    entry = _data()["classes"].get(name)
    return tuple(entry["generations"]) if entry else ()


def known_classes() -> frozenset[str]:
    return frozenset(_data()["classes"])


def is_known_model_type(model_type: str) -> bool:
    """Whether transformers itself has the model type; other packages bring their own tokenizer classes."""
    return model_type in _data()["model_types"]


def loaded_class(stated: str, model_type: str, *, byte_level: bool) -> LoadedClass:
    """The class that ``AutoTokenizer`` of transformers 5 makes of a directory with a tokenizer.json.

    ``stated`` is ``tokenizer_class`` of tokenizer_config.json, or else of config.json ("" for none).
    ``byte_level`` says whether tokenizer.json mentions a ByteLevel step. Source: transformers 5.24,
    models/auto/tokenization_auto.py; classes of ``auto_map`` are not covered.
    """
    registered = _data()["registered"].get(model_type, "").removesuffix("Fast")
    overruled = model_type in _data()["overruled"]
    plain = stated.removesuffix("Fast")
    mistral = registered == "MistralCommonBackend"
    if plain == "LlamaTokenizer" and byte_level and not mistral and not overruled:
        return GENERIC
    if stated and registered and registered != plain:
        if mistral or registered in GENERIC_NAMES:
            return GENERIC
        return _resolved(registered if overruled else stated)
    if stated:
        return _resolved(plain)
    return GENERIC if mistral else _resolved(registered)


def _resolved(name: str) -> LoadedClass:
    """A class by the name that a file gives it; unknown and generic ones become the generic class."""
    classes = _data()["classes"]
    entry = classes.get(name) or classes.get(name + "Fast") or classes.get(name.removesuffix("Fast")) or {}
    becomes = entry.get("becomes", "TokenizersBackend")
    if becomes in GENERIC_NAMES:
        return GENERIC
    if "rebuilds" not in entry:
        return LoadedClass(becomes, Treatment.NOT_READ)
    return LoadedClass(becomes, Treatment.REBUILT if entry["rebuilds"] else Treatment.AS_IT_STANDS)
