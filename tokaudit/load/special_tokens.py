"""Special strings: tokenizer_config.json, special_tokens_map.json, and what the tokenizer class fills in.

Precedence as transformers 4 and 5 apply it (read in their source and measured): with
``added_tokens_decoder`` in tokenizer_config.json, special_tokens_map.json is not read; without it, every
field of a special_tokens_map.json in the directory replaces the one of tokenizer_config.json, null too, and
only ``extra_special_tokens`` are joined.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Document, Missing, Role, SpecialToken
from tokaudit.families.tokenizer_classes import class_defaults, loaded_class
from tokaudit.findings import Location
from tokaudit.text import json_kind

LISTS = ("additional_special_tokens", "extra_special_tokens")
NO_CONFIG = Missing("there is no config.json")
ROLE_FIELDS = {f"{role.value}_token": role for role in Role}


def special_tokens(
    tokenizer_config: Document | Missing,
    special_map: Document | Missing,
    config: Document | Missing = NO_CONFIG,
) -> tuple[tuple[SpecialToken, ...], tuple[SpecialToken, ...]]:
    """The special tokens as loaders read them, and the stale ones of the file that is overridden.

    ``config`` is the config.json beside them, which names the class where tokenizer_config.json does not.
    """
    from_config, from_map = _declared(tokenizer_config), _declared(special_map)
    if isinstance(tokenizer_config, Document) and "added_tokens_decoder" in tokenizer_config.data:
        kept, stale, fields = from_config, from_map, frozenset(tokenizer_config.data)
    else:
        replaced = _fields(special_map) - {"extra_special_tokens"}
        kept = (*(token for token in from_config if _field(token) not in replaced), *from_map)
        stale = tuple(token for token in from_config if _field(token) in replaced)
        fields = _fields(tokenizer_config) | _fields(special_map)
    return (*kept, *_defaults(tokenizer_config, config, fields)), stale


def _fields(document: Document | Missing) -> frozenset[str]:
    return frozenset() if isinstance(document, Missing) else frozenset(document.data)


def _field(token: SpecialToken) -> str:
    """The field of the file that declares it: "extra_special_tokens" of "extra_special_tokens/3"."""
    return token.name.partition("/")[0]


def _declared(document: Document | Missing) -> tuple[SpecialToken, ...]:
    if isinstance(document, Missing):
        return ()
    return (*_roles(document), *_lists(document), *_named(document))


def _roles(document: Document) -> Iterator[SpecialToken]:
    for name, role in ROLE_FIELDS.items():
        if document.has(name):
            yield _special(role, name, document.data[name], document.at.child(name))


def _lists(document: Document) -> Iterator[SpecialToken]:
    for name in LISTS:
        stated = document.data.get(name)
        at = document.at.child(name)
        if isinstance(stated, list):
            for index, value in enumerate(stated):
                yield _special(None, f"{name}/{index}", value, at.child(index))
        elif isinstance(stated, dict):  # named tokens: {"image_token": "<image>"}
            for key, value in stated.items():
                yield _special(None, f"{name}/{key}", value, at.child(key))
        elif stated is not None:
            yield SpecialToken(None, name, "", at, malformed=f"{json_kind(stated)} and not a list")


def _named(document: Document) -> Iterator[SpecialToken]:
    """Tokens that only this model has, as fields of their own: "image_token" (transformers 5 adds them)."""
    for name, value in document.data.items():
        if name.endswith("_token") and name not in ROLE_FIELDS:
            token = _special(None, name, value, document.at.child(name))
            if not token.malformed:
                yield token


def _special(role: Role | None, name: str, value: object, at: Location) -> SpecialToken:
    if isinstance(value, dict):
        if "content" not in value:
            return SpecialToken(role, name, "", at, malformed="an object without content")
        at, value = at.child("content"), value["content"]
    if isinstance(value, str):
        return SpecialToken(role, name, value, at, malformed="" if value else "empty")
    return SpecialToken(role, name, "", at, malformed=f"{json_kind(value)} and not a text")


def _defaults(
    tokenizer_config: Document | Missing, config: Document | Missing, stated: frozenset[str]
) -> Iterator[SpecialToken]:
    """What the tokenizer class fills in for the roles that no file mentions (null counts as a mention)."""
    name, at = _class(tokenizer_config, config)
    for field, content in class_defaults(name).items():
        if field in ROLE_FIELDS and field not in stated:
            yield SpecialToken(ROLE_FIELDS[field], field, content, at, by_default=True)


def _class(tokenizer_config: Document | Missing, config: Document | Missing) -> tuple[str, Location]:
    """The tokenizer class that a file names, or that the model type stands for; "" where none does."""
    for document in (tokenizer_config, config):
        if not isinstance(document, Document):
            continue
        if document.has("auto_map") and document is tokenizer_config:
            break
        name = document.data.get("tokenizer_class")
        if isinstance(name, str):
            return name, document.at.child("tokenizer_class")
        model_type = document.data.get("model_type")
        if isinstance(model_type, str) and document is config:
            return loaded_class("", model_type, byte_level=False)[0], document.at.child("model_type")
    return "", Location("tokenizer_config.json")
