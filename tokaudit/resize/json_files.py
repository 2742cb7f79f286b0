"""Carry out the edits of one JSON file."""

from __future__ import annotations

from collections.abc import Sequence

from tokaudit.formats.json_edit import append_items, replace_value, set_member, set_members
from tokaudit.resize.plan import FileEdit


def apply_edits(text: str, edits: Sequence[FileEdit]) -> str:
    """The text with the edits applied in order, and every other character as it stands."""
    for edit in edits:
        text = _apply(text, edit)
    return text


def _apply(text: str, edit: FileEdit) -> str:
    *parent, last = edit.path or ("",)
    match edit.operation, edit.after:
        case "extend", dict() as members:
            return set_members(text, edit.path, list(members.items()))
        case "append", list() as items:
            try:
                return append_items(text, edit.path, items)
            except KeyError:  # a tokenizer.json without added tokens
                return set_member(text, tuple(parent), str(last), items)
        case "set", value:
            return set_member(text, tuple(parent), str(last), value)
        case "replace", value:
            return replace_value(text, edit.path, value)
    raise ValueError(edit.operation)
