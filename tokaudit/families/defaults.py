"""Token ids that a configuration class fills in where config.json is silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokaudit.contract import Document
from tokaudit.errors import FactMissing
from tokaudit.families import records
from tokaudit.families.records import Record


@dataclass(frozen=True, slots=True)
class IdDefault:
    """An id field that the file leaves out, and the ids that loaders take instead.

    ``path`` is the field ("text_config.pad_token_id"). ``padding_index`` says that the class makes it the
    padding index of its input table, which refuses an index without a row.
    """

    path: str
    ids: tuple[int, ...]
    padding_index: bool = False


def id_defaults(config: Document) -> tuple[IdDefault, ...]:
    """The defaults of the class that the configuration names, as transformers 5.24 has them.

    A field that stands in the file as null is none, not silent. The defaults of a section are those of the
    model type that it names. Empty for an unknown class, and for one whose model type belongs to another.
    """
    match = records.find(config, ())
    if match is None or match.record.type != records.text_field(config, "model_type"):
        return ()
    return tuple(_defaults(config, match.record))


def _defaults(config: Document, record: Record) -> Iterator[IdDefault]:
    """The record's fields, those of a section replaced by what the section's own model type fills in."""
    sections = dict.fromkeys(path.rpartition(".")[0] for path in (*record.ids, f"{record.section}."))
    for section in sections:
        part = _part(config, section)
        if part is None:
            continue
        inner = _own(part) if section else None
        ids = _directly(record.ids, section) if inner is None else inner.ids
        pads = (record if inner is None else inner).pads and section == record.section
        for name, value in ids.items():
            if name not in part.data:
                path = f"{section}.{name}" if section else name
                found = tuple(value) if isinstance(value, list) else (value,)
                yield IdDefault(path, found, pads and name == "pad_token_id")


def _directly(ids: Mapping[str, int | list[int]], section: str) -> Mapping[str, int | list[int]]:
    """The fields of one section, by their own names."""
    return {path.rpartition(".")[2]: ids[path] for path in ids if path.rpartition(".")[0] == section}


def _own(part: Document) -> Record | None:
    """The record of the model type that a section names."""
    typed = records.by_type(records.text_field(part, "model_type"))
    return next((record for record in typed if record.input and not record.section), None)


def _part(config: Document, section: str) -> Document | None:
    """A section, or the whole config for ""; None where the file has no such section."""
    try:
        return config.section(*section.split(".")) if section else config
    except FactMissing:
        return None
