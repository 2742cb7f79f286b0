"""Parquet and Arrow files with columns of lists of integers, read with pyarrow.

Arrow files come in two forms: with a footer (ARROW1), and as a stream, which Hugging Face `datasets` writes.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from tokaudit.contract.data import DataColumn
from tokaudit.data.blocks import DTYPES, Block, Flat, Ragged, tensor
from tokaudit.data.columns import choose
from tokaudit.data.lines import runs
from tokaudit.errors import Unreadable, UsageError
from tokaudit.sources import open_named
from tokaudit.text import inert, shown

_ROWS_AT_ONCE = 256
_CAUSE = 120  # characters


@dataclass(frozen=True, slots=True)
class TableUnit:
    """The row groups or record batches from ``first`` up to ``past``; ``row`` rows come before them.

    ``kind`` is "parquet", "arrow" or "arrow-stream". ``parts`` holds the rows and bytes of each part of the
    whole file.
    """

    path: str
    column: DataColumn
    kind: str
    first: int
    past: int
    row: int
    parts: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.parts[self.first : self.past])

    @property
    def begins(self) -> bool:
        return self.first == 0

    def split(self, nbytes: int) -> Iterator[TableUnit]:
        first, row, size = self.first, self.row, 0
        for part in range(self.first, self.past):
            size += self.parts[part][1]
            if size >= nbytes or part == self.past - 1:
                yield replace(self, first=first, past=part + 1, row=row)
                row += sum(rows for rows, _ in self.parts[first : part + 1])
                first, size = part + 1, 0

    def blocks(self) -> Iterator[Block]:
        """Raises Unreadable."""
        names = [self.column.column, *filter(None, [self.column.labels])]
        row = self.row
        with _opened(self.path, self.column.file) as source:
            for batch in _BATCHES[self.kind](source, names, self.first, self.past):
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    piece = batch.slice(start, _ROWS_AT_ONCE)
                    yield from self._blocks(piece, row)
                    row += piece.num_rows

    def _blocks(self, batch: Any, row: int) -> Iterator[Block]:
        column = batch.column(self.column.column)
        if not _is_list(column.type):
            yield Block(_numbers(column), Flat(row))
            return
        lengths, ids = _lists(column)
        if not self.column.labels:
            yield Block(ids, Ragged(row, lengths))
            return
        labels = batch.column(self.column.labels)
        label_lengths, label_ids = _lists(labels)
        null = torch.zeros(len(labels), dtype=torch.bool)
        if labels.null_count:
            null = torch.tensor(labels.is_null().to_pylist(), dtype=torch.bool)
        fits = label_lengths == lengths
        aligned = fits & ~null
        if not aligned.all():
            label_ids = label_ids[torch.repeat_interleave(aligned, label_lengths)]
        labelled = torch.where(null, 0, torch.where(fits, 1, -1)).tolist()
        yield from runs(ids, lengths, label_ids, array("b", labelled), row)


def plan(path: str, name: str, kind: str) -> list[TableUnit]:
    """The columns of ids and their parts. Raises Unreadable, and UsageError where pyarrow is not there."""
    with _opened(path, name) as source:
        schema, parts = _PARTS[kind](source)
        repeated = next((one for one, times in Counter(schema.names).items() if times > 1), None)
        if repeated is not None:
            raise Unreadable("data-columns", name, f"more than one column is named {shown(repeated)}")
        lists = {field.name: _holds_integers(field.type) for field in schema if _is_list(field.type)}
        if not any(lists.values()):
            lists = {field.name: _holds_integers(field.type) for field in schema}
        ids, labels = choose(name, lists, what="a column of lists")
        type = schema.field(ids).type
        made = DataColumn(name, ids, str(type.value_type if _is_list(type) else type), labels=labels)
        return [TableUnit(path, made, kind, 0, len(parts), 0, tuple(parts))]


def _is_list(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _holds_integers(type: Any) -> bool:
    return str(type.value_type if _is_list(type) else type) in DTYPES


def _lists(column: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The length of each row [rows], 0 for null, and all items [items]."""
    import pyarrow.compute as pc

    counts = pc.fill_null(pc.list_value_length(column), 0).cast("int64")
    return _numbers(counts), _numbers(pc.list_flatten(column))


def _numbers(column: Any) -> torch.Tensor:
    """The integers of an array, in memory of their own. Raises ValueError for nulls among them."""
    if column.null_count:
        raise ValueError(f"{column.null_count} nulls among the ids")
    dtype = str(column.type)
    size = DTYPES[dtype].itemsize
    data = column.buffers()[1]
    if data is None or not len(column):
        return torch.empty(0, dtype=DTYPES[dtype])
    begin = column.offset * size
    return tensor(bytearray(memoryview(data)[begin : begin + len(column) * size]), dtype)


# How the parts of a file are listed, and how some of them are read.


def _parquet_parts(source: Any) -> tuple[Any, list[tuple[int, int]]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source)
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return file.schema_arrow, [(group.num_rows, group.total_byte_size) for group in groups]


def _parquet_batches(source: Any, names: list[str], first: int, past: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source, pre_buffer=False, memory_map=False)
    if first < past:
        yield from file.iter_batches(
            _ROWS_AT_ONCE, row_groups=list(range(first, past)), columns=names, use_threads=False
        )


def _arrow_parts(source: Any) -> tuple[Any, list[tuple[int, int]]]:
    import pyarrow as pa

    file = pa.ipc.open_file(source)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return file.schema, [(batch.num_rows, batch.nbytes) for batch in batches]


def _arrow_batches(source: Any, names: list[str], first: int, past: int) -> Iterator[Any]:
    import pyarrow as pa

    file = pa.ipc.open_file(source)
    for number in range(first, past):
        yield _checked(file.get_batch(number), names)


def _stream_parts(source: Any) -> tuple[Any, list[tuple[int, int]]]:
    import pyarrow as pa

    stream = pa.ipc.open_stream(source)
    return stream.schema, [(batch.num_rows, batch.nbytes) for batch in stream]


def _stream_batches(source: Any, names: list[str], first: int, past: int) -> Iterator[Any]:
    import pyarrow as pa

    for number, batch in enumerate(pa.ipc.open_stream(source)):
        if number >= past:
            return
        if number >= first:
            yield _checked(batch, names)


def _checked(batch: Any, names: list[str]) -> Any:
    """The columns of a stranger's batch, once their offsets and lengths were looked at."""
    chosen = batch.select(names)
    chosen.validate(full=True)
    return chosen


_PARTS: dict[str, Callable[[Any], tuple[Any, list[tuple[int, int]]]]] = {
    "parquet": _parquet_parts,
    "arrow": _arrow_parts,
    "arrow-stream": _stream_parts,
}
_BATCHES: dict[str, Callable[[Any, list[str], int, int], Iterator[Any]]] = {
    "parquet": _parquet_batches,
    "arrow": _arrow_batches,
    "arrow-stream": _stream_batches,
}


@contextmanager
def _opened(path: str, name: str) -> Iterator[Any]:
    """The file as pyarrow maps it into memory; what pyarrow raises becomes Unreadable."""
    try:
        import pyarrow as pa
    except ImportError:
        raise UsageError(
            f"{name} is a file of Parquet or Arrow, which pyarrow reads", hint="pip install 'tokaudit[data]'"
        ) from None
    with open_named(path) as file, ExitStack() as stack:
        try:
            yield stack.enter_context(pa.memory_map(f"/dev/fd/{file.fileno()}"))
        except (pa.ArrowException, MemoryError, OSError, ValueError, KeyError, IndexError) as error:
            cause = " ".join(inert(str(error)).split())[:_CAUSE]
            raise Unreadable("data-damaged", name, f"pyarrow cannot read it: {cause}") from error
