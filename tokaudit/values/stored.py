"""Rows of a stored table as numbers: a pass over all of them in bounded memory, or single ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from tokaudit.contract import Table
from tokaudit.errors import FactMissing
from tokaudit.families.stored import FLOATS_OF_8_BITS
from tokaudit.formats import limits
from tokaudit.sources import OpenFile, Source

# How safetensors' names of floating point types are called in torch.
DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}

CHUNK_BYTES = 1 << 20
PASS_BYTES = 1 << 22  # of each thread in a pass: more leave the processor's cache, fewer cost more calls
MOST_ROWS = 1 << 24  # a hostile header may promise any number; the results take some 40 bytes a row
MOST_ROW_BYTES = 1 << 24

# Called from several threads at once, each with chunks of its own: the first row, the rows as numbers
# [n, hidden], and their bytes [n, row bytes]. Both are valid until the call returns.
Visit = Callable[[int, torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class StoredTable:
    """A table whose rows lie one after the other in one file."""

    source: Source
    table: Table
    rows: int
    hidden: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return self.hidden * self.dtype.itemsize

    @property
    def working(self) -> torch.dtype:
        return working(self.dtype)

    def scan(self, *visits: Visit) -> None:
        """Read every row once. Raises Unreadable."""
        step = max(1, PASS_BYTES // self.row_bytes)
        starts = iter(range(0, self.rows, step))
        lock = threading.Lock()
        stopped = threading.Event()

        def work(file: OpenFile) -> None:
            data = bytearray(min(step, self.rows) * self.row_bytes)
            numbers = torch.empty(min(step, self.rows), self.hidden, dtype=self.working)
            while not stopped.is_set():
                with lock:
                    first = next(starts, None)
                if first is None:
                    return
                rows = min(step, self.rows - first)
                window = memoryview(data)[: rows * self.row_bytes]
                file.fill(self.table.tensor.start + first * self.row_bytes, window)
                raw = torch.frombuffer(window, dtype=torch.uint8).view(rows, self.row_bytes)
                chunk = numbers[:rows].copy_(raw.view(self.dtype))
                for visit in visits:
                    visit(first, chunk, raw)

        threads = os.cpu_count() or 1
        with (
            self.source.open(self.table.tensor.file) as file,
            one_thread(),
            ThreadPoolExecutor(threads, thread_name_prefix="tokaudit") as pool,
        ):
            futures = [pool.submit(work, file) for _ in range(threads)]
            try:
                for future in futures:
                    future.result()
            finally:
                stopped.set()

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], bytes]]:
        """Gives what reads the stored bytes of single rows."""
        with self.source.open(self.table.tensor.file) as file:
            start, length = self.table.tensor.start, self.row_bytes
            yield lambda row: file.read(start + row * length, length)

    def gather(self, rows: Sequence[int]) -> torch.Tensor:
        """Single rows as numbers [len(rows), hidden]."""
        with self.source.open(self.table.tensor.file) as file:
            return gather(file, self.table.tensor.start, rows, self.hidden, self.dtype)


def working(dtype: torch.dtype) -> torch.dtype:
    """What is computed in: float32, or the stored type where that is wider."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def gather(file: OpenFile, start: int, rows: Sequence[int], hidden: int, dtype: torch.dtype) -> torch.Tensor:
    """Single rows of the table that begins at byte ``start``, as numbers [len(rows), hidden].

    Raises Unreadable.
    """
    if not rows:
        return torch.empty(0, hidden, dtype=working(dtype))
    length = hidden * dtype.itemsize
    data = bytearray(len(rows) * length)
    with memoryview(data) as window:
        for place, row in enumerate(rows):
            file.fill(start + row * length, window[place * length : (place + 1) * length])
    return torch.frombuffer(data, dtype=dtype).view(len(rows), hidden).to(working(dtype))


def stored(source: Source, table: Table) -> StoredTable:
    """The table, ready to be read. Raises FactMissing where its rows cannot be had as numbers."""
    tensor = table.tensor
    if table.packed and tensor.dtype not in FLOATS_OF_8_BITS:
        raise FactMissing(f"its values are packed ({table.packed})")
    if table.malformed:
        raise FactMissing(f"it is malformed ({table.malformed})")
    if tensor.dtype not in DTYPES:
        raise FactMissing(f"its values are stored as {tensor.dtype}, which are no plain numbers")
    if table.axis != 0 or len(tensor.shape) != 2 or not tensor.nbytes:
        raise FactMissing(f"its shape {list(tensor.shape)} is not [rows, hidden]")
    rows, hidden = tensor.shape
    found = StoredTable(source, table, rows, hidden, DTYPES[tensor.dtype])
    if rows > MOST_ROWS or found.row_bytes > MOST_ROW_BYTES or tensor.nbytes > limits.TABLE_BYTES_COMPARED:
        raise FactMissing(f"its shape {list(tensor.shape)} is beyond what is read")
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling threads alone: the chunks are too small to be divided further."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
