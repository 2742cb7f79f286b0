"""Special strings: tokenizer_config.json, special_tokens_map.json, and what the tokenizer class fills in.

Precedence as transformers 4 and 5 apply it (read in their source and measured): with
``added_tokens_decoder`` in tokenizer_config.json, special_tokens_map.json is not read; without it, every
field of a special_tokens_map.json in the directory replaces the one of tokenizer_config.json, null too, and
only ``extra_special_tokens`` are joined.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Document, Missing, Role, SpecialToken
from tokaudit.families.tokenizer_classes import class_defaults
from tokaudit.findings import Location
from tokaudit.text import json_kind

LISTS = ("additional_special_tokens", "extra_special_tokens")
ROLE_FIELDS = {f"{role.value}_token": role for role in Role}


def special_tokens(
    tokenizer_config: Document | Missing, special_map: Document | Missing
) -> tuple[tuple[SpecialToken, ...], tuple[SpecialToken, ...]]:
    """The special tokens as loaders read them, and the stale ones of the file that is overridden."""
    from_config, from_map = _declared(tokenizer_config), _declared(special_map)
    if isinstance(tokenizer_config, Document) and "added_tokens_decoder" in tokenizer_config.data:
        kept, stale, fields = from_config, from_map, frozenset(tokenizer_config.data)
    else:
        replaced = _fields(special_map) - {"extra_special_tokens"}
        kept = (*(token for token in from_config if _field(token) not in replaced), *from_map)
        stale = tuple(token for token in from_config if _field(token) in replaced)
        fields = _fields(tokenizer_config) | _fields(special_map)
    return (*kept, *_defaults(tokenizer_config, fields)), stale


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


def _defaults(tokenizer_config: Document | Missing, stated: frozenset[str]) -> Iterator[SpecialToken]:
    """What the tokenizer class fills in for the roles that no file mentions (null counts as a mention)."""
    if isinstance(tokenizer_config, Missing):
        return
    name = tokenizer_config.data.get("tokenizer_class")
    if not isinstance(name, str):
        return
    at = tokenizer_config.at.child("tokenizer_class")
    for field, content in class_defaults(name).items():
        if field in ROLE_FIELDS and field not in stated:
            yield SpecialToken(ROLE_FIELDS[field], field, content, at, by_default=True)
