"""Special strings: tokenizer_config.json, special_tokens_map.json, and what the tokenizer class fills in.

Precedence as transformers 4 and 5 apply it (measured): with ``added_tokens_decoder`` in
tokenizer_config.json, special_tokens_map.json and added_tokens.json are not read; without it, a
special_tokens_map.json in the directory overrides tokenizer_config.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokaudit.contract import Document, Missing, Role, SpecialToken
from tokaudit.families.tokenizer_classes import class_defaults
from tokaudit.findings import Location

LISTS = ("additional_special_tokens", "extra_special_tokens")


def special_tokens(
    tokenizer_config: Document | Missing, special_map: Document | Missing
) -> tuple[tuple[SpecialToken, ...], tuple[SpecialToken, ...]]:
    """The special tokens as loaders read them, and the stale ones of the file that is overridden."""
    from_config = () if isinstance(tokenizer_config, Missing) else tuple(_declared(tokenizer_config))
    from_map = () if isinstance(special_map, Missing) else tuple(_declared(special_map))
    if isinstance(tokenizer_config, Missing):
        winners, losers = from_map, from_config
    elif tokenizer_config.has("added_tokens_decoder"):
        winners, losers = from_config, from_map
    else:
        winners, losers = from_map, from_config
    stated = {token.name: token for token in (*losers, *winners)}
    stale = tuple(token for token in losers if stated[token.name] is not token)
    return (*stated.values(), *_defaults(tokenizer_config, frozenset(stated))), stale


def _declared(document: Document) -> Iterator[SpecialToken]:
    for role in Role:
        name = f"{role.value}_token"
        if document.has(name):
            yield _special(role, name, document.data[name], document.at.child(name))
    for name in LISTS:
        stated = document.data.get(name)
        if isinstance(stated, list):
            for index, value in enumerate(stated):
                yield _special(None, f"{name}/{index}", value, document.at.child(name, index))
        elif isinstance(stated, dict):  # transformers 4: named tokens, {"image_token": "<image>"}
            for key, value in stated.items():
                yield _special(None, f"{name}/{key}", value, document.at.child(name, key))
        elif stated is not None:
            yield _special(None, name, None, document.at.child(name))


def _special(role: Role | None, name: str, value: object, at: Location) -> SpecialToken:
    if isinstance(value, dict):
        at = at.child("content")
        value = value.get("content")
    if isinstance(value, str):
        return SpecialToken(role, name, value, at, malformed="" if value else "empty")
    kinds = {int: "a number", float: "a number", bool: "true or false", list: "a list"}
    return SpecialToken(role, name, "", at, malformed=kinds.get(type(value), "not a text"))


def _defaults(tokenizer_config: Document | Missing, stated: frozenset[str]) -> Iterator[SpecialToken]:
    """What the tokenizer class fills in for the roles that no file mentions (null counts as a mention)."""
    if isinstance(tokenizer_config, Missing):
        return
    name = tokenizer_config.data.get("tokenizer_class")
    if not isinstance(name, str):
        return
    at = tokenizer_config.at.child("tokenizer_class")
    for field, content in class_defaults(name).items():
        role = next((role for role in Role if field == f"{role.value}_token"), None)
        if role is not None and field not in stated and field not in tokenizer_config.data:
            yield replace(SpecialToken(role, field, content, at), by_default=True)
