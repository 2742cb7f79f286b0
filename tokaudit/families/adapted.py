"""Which table of a model a module's name means, as an adapter gives it.

Adapters have the names of modules in memory, checkpoints those on disk: they may differ in front
(``model.language_model.embed_tokens`` and ``language_model.model.embed_tokens.weight``), and an output table
that is tied is not stored at all.
"""

from __future__ import annotations

import re

from tokaudit.contract import Embeddings, Missing, Table, TableKind
from tokaudit.families.guess import OTHER_THINGS, is_input_name, is_output_name
from tokaudit.families.wrappers import IN_FRONT

_NUMBERED = re.compile(r"(^|\.)\d+(\.|$)")  # a part of one of many layers
_SIDES = (TableKind.INPUT, TableKind.OUTPUT)


def table_of(module: str, embeddings: Embeddings | None) -> TableKind | None:
    """INPUT or OUTPUT; None for a module that is no table of token rows, or one of the others.

    ``embeddings`` are those of the model, where it is known: the names of its tables count first.
    """
    tables = () if embeddings is None else embeddings.tables
    for table in tables:
        if _stem(table.name) == module:
            return table.kind if table.kind in _SIDES else None
    if OTHER_THINGS.search(module) or _NUMBERED.search(module):
        return None
    last = module.rpartition(".")[2]
    sides = {table.kind for table in tables if _stem(table.name).rpartition(".")[2] == last}
    if len(sides) == 1:
        side = sides.pop()
        return side if side in _SIDES else None
    if is_output_name(module) and not _has(embeddings, TableKind.OUTPUT):
        return TableKind.OUTPUT
    return TableKind.INPUT if is_input_name(module) and not _has(embeddings, TableKind.INPUT) else None


def parameter_name(name: str) -> str:
    """The module of a parameter, without a wrapper's prefix: ``module.lm_head.weight`` -> ``lm_head``."""
    wrapped = IN_FRONT.match(name)
    return _stem(name[wrapped.end() :] if wrapped else name)


def _has(embeddings: Embeddings | None, kind: TableKind) -> bool:
    """Whether the model stores a table of that kind, which then goes by its own name."""
    if embeddings is None:
        return False
    found: Table | Missing = embeddings.input_or if kind is TableKind.INPUT else embeddings.output_or
    return isinstance(found, Table)


def _stem(tensor: str) -> str:
    return tensor.removesuffix(".weight")
