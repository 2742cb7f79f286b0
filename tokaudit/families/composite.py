"""Composite models whose text part is a model of another class: its record, seen from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tokaudit.contract import Document
from tokaudit.errors import FactMissing
from tokaudit.families import records
from tokaudit.families.records import GENERATES, Record, TableRecord, TieRule

# Config sections that hold the text model, in the order that loaders look, and the prefixes of its tensors.
SECTIONS = {
    "text_config": (
        "language_model.",
        "model.language_model.",
        "text_model.",
        "model.text_model.",
        "text_decoder.",
        "llm.",
        "model.llm.",
        "model.",
        "",
    ),
    "llm_config": ("language_model.", "llm.", "model.language_model.", "model.llm."),
    "language_config": ("language_model.", "language.", "model.language_model.", "model."),
    "decoder": ("decoder.",),
    "encoder": ("encoder.",),
    "text_encoder": ("text_encoder.",),
    "thinker_config.text_config": ("thinker.", "thinker.language_model."),
}


def inner_records(config: Document, outer: Record | None) -> Iterator[Record]:
    """The records of a composite's parts, with their names and fields as the composite has them.

    ``outer`` is the composite's own record; without one every section is tried. Where an encoder and a
    decoder of two classes form a pair, the output side comes from the decoder's.
    """
    if outer is not None and outer.is_pair:
        encoder = _inner(config, outer.section, wants_output=False)
        decoder = _inner(config, outer.output_section, wants_output=True)
        if encoder is not None and decoder is not None:
            yield replace(_pair(encoder, decoder), type=outer.type, loaders=outer.loaders)
        return
    for section in (outer.section,) if outer else SECTIONS:
        inner = _inner(config, section, wants_output=outer is None or bool(outer.output))
        if inner is not None:
            loaders = outer.loaders if outer else _in_section(inner.loaders, section)
            yield replace(inner, type=outer.type if outer else "", loaders=loaders)


def _in_section(loaders: Mapping[str, TieRule], section: str) -> dict[str, TieRule]:
    """How the flags of a part are read where nothing is known of the whole: from its section."""
    return {
        loader: replace(rule, section=section, rule="sub" if rule.rule == "flag" else rule.rule)
        for loader, rule in loaders.items()
    }


def _inner(config: Document, section: str, wants_output: bool) -> Record | None:
    """The record of the class, or of the model type, that a section names, as seen from outside."""
    if section not in SECTIONS:
        return None
    try:
        part = config.section(*section.split("."))
    except FactMissing:
        return None
    named = records.by_class(records.class_name(part))
    typed = records.by_type(records.text_field(part, "model_type"))
    fitting = [record for record in (*named, *typed) if record.input and not record.section]
    fitting.sort(key=lambda record: (bool(record.output) is not wants_output, not _generates(record)))
    return _outside(fitting[0], section) if fitting else None


def _generates(record: Record) -> bool:
    return bool(GENERATES.search(record.name))


def _pair(encoder: Record, decoder: Record) -> Record:
    """An encoder and a decoder with a vocabulary each; the decoder's tables form a group of their own."""
    group = "decoder"
    given = tuple(replace(entry, group=group, aliases=()) for entry in decoder.input)
    return replace(
        encoder,
        output=tuple(replace(entry, group=group, tied_to=_names(given)) for entry in decoder.output),
        bias=tuple(replace(entry, group=group) for entry in decoder.bias),
        others=(*given, *(replace(entry, group=group, copy=False) for entry in decoder.others)),
    )


def _names(tables: tuple[TableRecord, ...]) -> tuple[str, ...]:
    return tuple(name for table in tables for name in table.names)


def _outside(inner: Record, section: str) -> Record:
    def table(entry: TableRecord) -> TableRecord:
        return replace(
            entry,
            names=_prefixed(entry.names, section),
            aliases=_prefixed(entry.aliases, section),
            tied_to=_prefixed(entry.tied_to, section),
            rows=tuple(_within(rows, section) for rows in entry.rows),
            width=_within(entry.width, section),
        )

    def tables(entries: tuple[TableRecord, ...]) -> tuple[TableRecord, ...]:
        return tuple(table(entry) for entry in entries)

    return replace(
        inner,
        name=f"{inner.name} in {section}",
        input=tables(inner.input),
        output=tables(inner.output),
        bias=tables(inner.bias),
        others=tables(inner.others),
        extra_inputs=tables(inner.extra_inputs),
    )


def _prefixed(names: tuple[str, ...], section: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(prefix + name for prefix in SECTIONS[section] for name in names))


def _within(expression: str, section: str) -> str:
    """The expression with every field moved into the section."""
    return re.sub(r"(?<![\w.])(?!or\b|len\()([A-Za-z_]\w*)", rf"{section}.\1", expression)
