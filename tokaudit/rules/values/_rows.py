"""What the rules about the values of rows have in common: which tables, and what stands in a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import hexdigits

from tokaudit.contract import Contract, Loaded, Pipeline, TableKind, TableValues, Vocabulary
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim

_BYTE_TOKENS = frozenset(f"<0x{high}{low}>" for high in hexdigits for low in hexdigits)
# The symbols that byte-level vocabularies give to the bytes that no UTF-8 text contains.
_IMPOSSIBLE_BYTES = frozenset(map(chr, (0xC0, 0xC1, *range(0xF5, 0x100))))


def token_tables(contract: Contract) -> Iterator[TableValues]:
    """The input and output tables that were read.

    Raises FactMissing in the end where one could not be: the findings about the others stand.
    """
    values = contract.values
    main = (TableKind.INPUT, TableKind.OUTPUT)
    yield from (table for table in values.tables if table.table.kind in main)
    names = {table.name for table in contract.embeddings.tables if table.kind in main}
    for name, reason in values.unread.items():
        if name in names:
            raise FactMissing(f"{name} was not read: {reason}")


def row_claims(table: TableValues, ids: Iterable[int], most: int = 3) -> list[Claim]:
    """What stands in the first few of these rows."""
    return [
        Claim(table.at(id), f"{table.class_of(id).words}; norm {table.norm(id):.3g}")
        for id, _ in zip(ids, range(most), strict=False)
    ]


def never_encoded(vocabulary: Vocabulary) -> frozenset[int]:
    """Ids of tokens that encoding a text does not yield, as far as that is known.

    These are tokens that their own text does not lead to, bytes that no text contains, and byte tokens of
    vocabularies that fall back to bytes, which are for rare characters only.
    """
    found: set[int] = set()
    loaded, pipeline = vocabulary.loaded_or, vocabulary.pipeline_or
    if isinstance(loaded, Loaded) and isinstance(loaded.unreachable, tuple):
        found.update(loaded.unreachable)
    if isinstance(pipeline, Pipeline):
        ids = vocabulary.by_content
        found.update(ids[content] for content in _BYTE_TOKENS & ids.keys())
        if pipeline.byte_level:
            found.update(ids[content] for content in _IMPOSSIBLE_BYTES & ids.keys())
    return frozenset(found)


def leaves_nothing_unknown(vocabulary: Vocabulary) -> bool:
    """Whether the tokenizer can spell any text in bytes, so that it never yields its unk token."""
    pipeline = vocabulary.pipeline_or
    if not isinstance(pipeline, Pipeline):
        return False
    return pipeline.byte_level or pipeline.model.data.get("byte_fallback") is True
