"""Composite models whose text part is a model of another class: its record, seen from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tokaudit.contract import Document
from tokaudit.errors import FactMissing
from tokaudit.families import records
from tokaudit.families.records import GENERATES, Record, TableRecord

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
    for section in (outer.section,) if outer else SECTIONS:
        other = outer.output_section if outer and outer.output else section
        inner = _inner(config, section, wants_output=other == section and not (outer and not outer.output))
        decoder = inner if other == section else _inner(config, other, wants_output=True)
        if inner is None or decoder is None:
            continue
        record = _outside(inner, section)
        if other != section:
            record = _pair(record, _outside(decoder, other))
        name = f"{inner.name} in {section}"
        yield replace(record, name=name, type=outer.type if outer else "", loaders=_loaders(outer, record))


def _loaders(outer: Record | None, record: Record) -> dict[str, records.TieRule]:
    """The composite's own way to read the flags; that of the part under its section where it is unknown."""
    if outer is not None:
        return dict(outer.loaders)
    section = record.section
    return {
        loader: replace(rule, section=section, rule="sub" if rule.rule == "flag" else rule.rule)
        for loader, rule in record.loaders.items()
    }


def _inner(config: Document, section: str, wants_output: bool) -> Record | None:
    """The record of the class, or of the model type, that a section names."""
    try:
        part = config.section(*section.split(".")) if section in SECTIONS else None
    except FactMissing:
        part = None
    if part is None:
        return None
    named = records.by_class(records.class_name(part))
    typed = records.by_type(records.text_field(part, "model_type"))
    fitting = [record for record in (*named, *typed) if record.input and not record.section]
    with_output = [record for record in fitting if record.output and GENERATES.search(record.name)]
    chosen = with_output or [record for record in fitting if record.output] if wants_output else fitting
    return next(iter(chosen or fitting), None)


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
