"""Puts the facts of an adapter together: what it holds of which table, and the base that it is applied to.

The base is the one that the caller names, or a local directory that adapter_config.json names. A stranger's
file may make tokaudit look there: it is then read as any model directory is, which runs nothing, writes
nothing and sends nothing anywhere, and only where it holds a config.json. The report says which base it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from tokaudit.contract import (
    AdaptedTable,
    Adapter,
    Base,
    Change,
    Checkpoint,
    ChosenTokens,
    Damage,
    Document,
    Embeddings,
    Missing,
    Options,
    Table,
    TableComparison,
    TableKind,
    Tensor,
    Vocabulary,
)
from tokaudit.errors import Unreadable
from tokaudit.families import resolve
from tokaudit.families.adapted import table_of
from tokaudit.findings import Location
from tokaudit.formats import adapter as layout
from tokaudit.formats import config
from tokaudit.formats.safetensors import read_header
from tokaudit.load.reader import Reader
from tokaudit.load.special_tokens import special_tokens
from tokaudit.load.tokenizer import read_tokenizer
from tokaudit.load.weights import NOT_READ, compared, read_weights
from tokaudit.sources import Source, open_source
from tokaudit.text import shown

_NO_BASE = "no --base was given"
_FIELD = "base_model_name_or_path"


def read_adapter(model: Reader, checkpoint: Checkpoint | Missing, options: Options) -> Adapter | Missing:
    """The adapter in the directory. What cannot be read of it and of its base is kept by ``model``.

    One beside a whole model's weights is only read where the caller names its base. Raises Unreadable and
    UsageError for a base that the caller names and that is no directory.
    """
    document = model.document(layout.CONFIG)  # AutoModel of transformers reads it in a whole model, too
    beside_model = any(_is_of_a_model(name) for name in model.names)
    if beside_model and options.base is None:
        return Missing("the directory is a whole model's; --base audits the adapter that lies in it")
    if isinstance(document, Missing):
        return document
    model.unreadable += layout.malformed_fields(document)
    base = _base(model, document, options)
    weights = _adapter_weights(model, options) if beside_model else checkpoint
    tables = _tables(weights, base)
    if options.read_weights and not any(layout.WEIGHTS.fullmatch(name) for name in model.names):
        words = "expected adapter_model.safetensors beside it, found no weights"
        model.unreadable.append(Unreadable("no-weights", layout.CONFIG, words, hint="save the adapter again"))
    return Adapter(
        config=document,
        method=_text(document, "peft_type"),
        base_or=base,
        tables_or=tables,
        chosen=tuple(_chosen(document, tables, base)),
        comparison_or=_comparison(model.source, tables),
        modules_or=_modules(weights),
        keeps_tie=document.data.get("ensure_weight_tying") is True,
        beside_model=beside_model,
    )


def _is_of_a_model(name: str) -> bool:
    """Whether a file of that name is a whole model's weights, or says where they are."""
    if layout.WEIGHTS.fullmatch(name):
        return False
    return bool(re.fullmatch(r"[^/]*\.safetensors(\.index\.json)?|pytorch_model[^/]*\.bin", name))


def _adapter_weights(model: Reader, options: Options) -> Checkpoint | Missing:
    """The adapter's own file, beside a model's weights, which are what the checkpoint is."""
    if not options.read_weights:
        return NOT_READ
    if layout.SAFETENSORS not in model.names:
        return Missing(f"there is no {layout.SAFETENSORS}")

    def read() -> Checkpoint:
        with model.source.open(layout.SAFETENSORS) as file:
            shard = read_header(file)
        return Checkpoint("single", (shard,), shard.tensors, Missing("an adapter has no index"))

    return model.attempt(layout.SAFETENSORS, read)


def _text(document: Document, key: str) -> str:
    value = document.data.get(key)
    return value if isinstance(value, str) else ""


# --- the base --------------------------------------------------------------------------------------------


def _base(model: Reader, document: Document, options: Options) -> Base | Missing:
    if options.base is not None:
        return _read_base(model, options.base, None, options)
    stated = _text(document, _FIELD)
    if not stated:
        return Missing(f"{_NO_BASE}, and adapter_config.json names none")
    found = next(_local(model.source, stated), None)
    if found is None:
        return Missing(f"{_NO_BASE}, and {shown(stated)} in adapter_config.json is no local model directory")
    return _read_base(model, found, document.at.child(_FIELD), options)


def _local(source: Source, stated: str) -> Iterator[str]:
    """The directories that the name may mean: as loaders read it, and beside the adapter.

    Only what has a config.json counts, so that no other directory is even listed.
    """
    if "\0" in stated or re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", stated):
        return
    for path in (stated, os.path.join(source.name, stated)):
        path = os.path.normpath(path)
        if os.path.isfile(os.path.join(path, "config.json")):
            yield path


def _read_base(model: Reader, path: str, named_by: Location | None, options: Options) -> Base:
    reader = Reader(open_source(path))
    document = reader.document("config.json")
    if isinstance(document, Document):
        reader.unreadable += config.malformed_fields(document)
        reader.unreadable += config.unstated_size(document)
    checkpoint = read_weights(reader, document, options, "the base's weights")
    if isinstance(checkpoint, Checkpoint):
        reader.unreadable += [
            file.unreadable
            for file in checkpoint.damaged
            if file.damage is not Damage.ABSENT  # a base without weights tells its rows in config.json
        ]
    embeddings = resolve(document, checkpoint)
    base = Base(
        path,
        named_by,
        document,
        embeddings,
        _vocabulary(reader, document, options),
        _base_comparison(reader.source, embeddings),
        _words(checkpoint),
    )
    stored = isinstance(checkpoint, Checkpoint) and layout.CONFIG not in reader.names
    if named_by is None and isinstance(document, Missing) and not stored:
        reader.unreadable += [
            Unreadable("no-model", "", "expected a model with config.json, found none", hint="see --base")
        ]
    model.unreadable += [
        Unreadable(error.code, base.at(Location(error.file)).file, error.message, hint=error.hint)
        for error in (*reader.unreadable, *(file.unreadable for file in reader.outside))
    ]
    return base


def _vocabulary(reader: Reader, document: Document | Missing, options: Options) -> Vocabulary | Missing:
    """The tokens that the base's own files declare; the library is not asked."""
    tokenizer_config = reader.document("tokenizer_config.json")
    special, _ = special_tokens(tokenizer_config, reader.document("special_tokens_map.json"), document)
    alone = replace(options, deep=False, lock=None, snapshot=False)
    vocabulary, _, _ = read_tokenizer(
        reader, Missing("a base's tokenizer is not loaded"), tokenizer_config, document, special, alone
    )
    return vocabulary


def _base_comparison(source: Source, embeddings: Embeddings) -> TableComparison | Missing:
    """Compare the base's tables where its flags tie them and both are stored: only equal ones become one."""
    given, output, tie = embeddings.tie_partner_or, embeddings.output_or, embeddings.tie_or
    if not (isinstance(given, Table) and isinstance(output, Table)):
        return Missing("the base stores one table")
    if isinstance(tie, Missing) or not tie.tied:
        return Missing("the base's tables are not tied")
    return compared(source, given.tensor, output.tensor)


# --- what the adapter holds --------------------------------------------------------------------------------


def _whole(checkpoint: Checkpoint | Missing) -> Checkpoint | Missing:
    """The checkpoint, if all of it could be read."""
    if isinstance(checkpoint, Checkpoint) and checkpoint.damaged:
        return Missing(f"{checkpoint.damaged[0].file} could not be read")
    return checkpoint


def _words(base: Checkpoint | Missing) -> frozenset[str] | Missing:
    base = _whole(base)
    if isinstance(base, Missing):
        return base
    return frozenset(word for name in base.tensors for word in name.split("."))


def _modules(weights: Checkpoint | Missing) -> dict[str, Tensor] | Missing:
    weights = _whole(weights)
    if isinstance(weights, Missing):
        return weights
    parts = filter(None, map(layout.part, weights.tensors.values()))
    return {part.module: part.tensor for part in parts if part.change in (Change.LOW_RANK, Change.OTHER)}


def _tables(checkpoint: Checkpoint | Missing, base: Base | Missing) -> tuple[AdaptedTable, ...] | Missing:
    checkpoint = _whole(checkpoint)
    if isinstance(checkpoint, Missing):
        return checkpoint
    known = base.embeddings if isinstance(base, Base) else None
    found: dict[tuple[str, Change], AdaptedTable] = {}
    for tensor in checkpoint.tensors.values():
        part = layout.part(tensor)
        kind = table_of(part.module, known) if part else None
        if part is None or kind is None:
            continue
        table = _table(part, kind)
        key = part.module, part.change
        if key not in found or isinstance(found[key].rows_or, Missing):
            found[key] = table
    return tuple(sorted(found.values(), key=lambda table: (table.kind is TableKind.OUTPUT, table.module)))


def _table(part: layout.Part, kind: TableKind) -> AdaptedTable:
    """``kind`` is what the module is in the base."""
    shape, axis = part.tensor.shape, part.axis
    tells = axis is not None and part.change is not Change.ROWS
    sound = len(shape) == 2 and all(shape)
    return AdaptedTable(
        kind=kind,
        module=part.module,
        change=part.change,
        tensor=part.tensor,
        axis=axis or 0,
        rows_or=shape[axis or 0] if tells and sound else Missing(f"{part.tensor.name} does not tell rows"),
        hidden=shape[1] if part.change in (Change.WHOLE, Change.ROWS) and sound else None,
        malformed=f"it has the shape {list(shape)}" if tells and not sound else "",
    )


def _chosen(
    document: Document, tables: tuple[AdaptedTable, ...] | Missing, base: Base | Missing
) -> Iterator[ChosenTokens]:
    held = () if isinstance(tables, Missing) else [t for t in tables if t.change is Change.ROWS]
    known = base.embeddings if isinstance(base, Base) else None
    for chosen in layout.token_lists(document):
        kind = TableKind.INPUT
        if chosen.module:
            kind = table_of(chosen.module, known) or kind
        stored = next((table.tensor for table in held if table.kind is kind), None)
        yield ChosenTokens(kind, chosen.ids, chosen.malformed, stored)


def _comparison(source: Source, tables: tuple[AdaptedTable, ...] | Missing) -> TableComparison | Missing:
    if isinstance(tables, Missing):
        return tables
    whole = [table for table in tables if table.change is Change.WHOLE]
    given = [table for table in whole if table.kind is TableKind.INPUT]
    output = [table for table in whole if table.kind is TableKind.OUTPUT]
    if not (given and output):
        return Missing("the adapter holds no two whole tables")
    return compared(source, given[0].tensor, output[0].tensor)
