"""What is known of transformers' tokenizer classes.

Which versions have a class, the special tokens that its constructor fills in, and which class
``AutoTokenizer`` of transformers 5 makes of a directory (measured on 5.24 and 4.57 by
tools/make_tokenizer_classes.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tokaudit.contract import Document, Missing, Pipeline, SpecialToken, TokenizerClass, Treatment
from tokaudit.errors import FactMissing

GENERIC = ("TokenizersBackend", Treatment.AS_IT_STANDS)

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


# Bytes and code points are their ids, amino acids a fixed list; RAG's two tokenizers lie in folders.
_WITHOUT_VOCABULARY = frozenset(
    {
        "ByT5Tokenizer",
        "CanineTokenizer",
        "DiaTokenizer",
        "EsmcTokenizer",
        "PerceiverTokenizer",
        "RagTokenizer",
    }
)


def needs_vocabulary(stated: str, model_type: str) -> bool:
    """Whether the class of this name ("" for none) or of the model type needs a file with its vocabulary.

    False where transformers does not know either; it takes a name that ends in "Fast" for the one without.
    Measured on 5.24: which classes load an empty directory (the generic ones, PythonBackend too, do not).
    """
    if stated:
        name = stated.removesuffix("Fast")
        known = not known_classes().isdisjoint({stated, name})
    else:
        known, name = is_known_model_type(model_type), loaded_class("", model_type, byte_level=False)[0]
    return known and name not in _WITHOUT_VOCABULARY


# The order in which loaders append the roles' tokens that have no id yet.
_ORDER_OF_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_SENTINELS = {"T5Tokenizer": 100, "LasrTokenizer": 100, "VideoPrismTokenizer": 100}
_MOST_SENTINELS = 10_000
# Tokens that the class takes out of a text before it is encoded: no model ever sees their ids.
_TAKEN_OUT = {"CodeLlamaTokenizer": {"fill_token": "<FILL_ME>"}}


def role_texts(
    known: TokenizerClass, settings: Mapping[str, object], special: Iterable[SpecialToken]
) -> dict[str, str]:
    """The roles' tokens by field name, in the order in which transformers 5 adds them.

    What files state counts (null, too), else what the class fills in. ``settings`` is tokenizer_config.json.
    """
    filled = {field: text for field, text in class_defaults(known.name).items() if field not in settings}
    stated = {token.name: token.content for token in special if token.role and not token.by_default}
    texts = {**filled, **stated}
    return {field: texts[field] for field in _ORDER_OF_ROLES if texts.get(field)}


def extra_texts(
    known: TokenizerClass, settings: Mapping[str, object], special: Iterable[SpecialToken]
) -> tuple[str, ...]:
    """The further special tokens that a model may see.

    Those that files list, else the sentinels that T5's class makes up.
    """
    taken_out = [settings.get(field, text) for field, text in _TAKEN_OUT.get(known.name, {}).items()]
    listed = (token.content for token in special if token.role is None and token.content)
    stated = tuple(content for content in listed if content not in taken_out)
    if stated or known.name not in _SENTINELS:
        return stated
    count = settings.get("extra_ids", _SENTINELS[known.name])
    return tuple(f"<extra_id_{n}>" for n in range(min(count, _MOST_SENTINELS) if type(count) is int else 0))


def known_classes() -> frozenset[str]:
    return frozenset(_data()["classes"])


def is_known_model_type(model_type: str) -> bool:
    """Whether transformers itself has the model type; other packages bring their own tokenizer classes."""
    return model_type in _data()["model_types"]


def tokenizer_class(
    tokenizer_config: Document | Missing, config: Document | Missing, pipeline: Pipeline
) -> TokenizerClass:
    """The class that ``AutoTokenizer`` of transformers 5 makes of a directory with a tokenizer.json.

    Raises FactMissing where the class comes with the model, or where no file names one.
    """
    if isinstance(tokenizer_config, Document) and tokenizer_config.has("auto_map"):
        raise FactMissing("the tokenizer's class is code that comes with the model (auto_map)")
    for document in (tokenizer_config, config):
        stated = document.data.get("tokenizer_class") if isinstance(document, Document) else None
        if isinstance(document, Document) and isinstance(stated, str) and stated:
            name, treatment = loaded_class(
                stated, _model_type(config), byte_level=pipeline.mentions_byte_level
            )
            return TokenizerClass(stated, document.at.child("tokenizer_class"), name, treatment)
    model_type = _model_type(config)
    if isinstance(config, Document) and model_type:
        name, treatment = loaded_class("", model_type, byte_level=pipeline.mentions_byte_level)
        return TokenizerClass("", config.at.child("model_type"), name, treatment)
    raise FactMissing("no file names a tokenizer class")


def canonical(name: str) -> str:
    """The name under which transformers 5 has a class: ElectraTokenizerFast is BertTokenizer."""
    return _resolved(name)[0]


def _model_type(config: Document | Missing) -> str:
    stated = config.data.get("model_type") if isinstance(config, Document) else None
    return stated if isinstance(stated, str) else ""


def loaded_class(stated: str, model_type: str, *, byte_level: bool) -> tuple[str, Treatment]:
    """The class that is instantiated for a stated name ("" for none) and a model type ("" for none).

    ``byte_level`` says whether tokenizer.json mentions a ByteLevel step. Source: transformers 5.24,
    models/auto/tokenization_auto.py.
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


def _resolved(name: str) -> tuple[str, Treatment]:
    """A class by the name that a file gives it; unknown and generic ones become the generic class."""
    classes = _data()["classes"]
    entry = classes.get(name) or classes.get(name + "Fast") or classes.get(name.removesuffix("Fast")) or {}
    becomes = entry.get("becomes", "TokenizersBackend")
    if becomes in GENERIC_NAMES:
        return GENERIC
    if "rebuilds" not in entry:
        return becomes, Treatment.NOT_READ
    return becomes, Treatment.REBUILT if entry["rebuilds"] else Treatment.AS_IT_STANDS
