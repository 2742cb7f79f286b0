"""Ids of added tokens outside tokenizer.json: ``added_tokens_decoder`` and added_tokens.json."""

from __future__ import annotations

import re

from tokaudit.contract import AddedToken, Document, TokenTable, Witness
from tokaudit.formats.tokenizer_json import added_token, entry_table, is_id

_ID = re.compile(r"[0-9]{1,10}")


def decoder_table(tokenizer_config: Document) -> TokenTable | None:
    """``added_tokens_decoder`` of tokenizer_config.json (transformers 4): id to token object."""
    stated = tokenizer_config.data.get("added_tokens_decoder")
    if not isinstance(stated, dict):
        return None
    at = tokenizer_config.at.child("added_tokens_decoder")
    entries = (
        added_token(int(key), entry, at.child(key))
        for key, entry in stated.items()
        if _ID.fullmatch(key) and is_id(int(key))
        if isinstance(entry, dict) and isinstance(entry.get("content"), str)
    )
    return entry_table(Witness.DECODER, at, entries, style="id")


def added_file_table(document: Document) -> TokenTable:
    """added_tokens.json: content to id."""
    entries = (
        AddedToken(id, content, document.at.child(content))
        for content, id in document.data.items()
        if isinstance(id, int) and is_id(id)
    )
    return entry_table(Witness.ADDED_FILE, document.at, entries, style="key")
