"""Token data in every format, written by the libraries of the format; Megatron's by its layout."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from tokaudit.contract.data import DataOptions, DataStatistics
from tokaudit.data import read
from tokaudit.data.engines import engine
from tokaudit.data.find import find
from tokaudit.data.plan import Unit, plan
from tokaudit.data.tally import Measure, Tally
from tokaudit.errors import Unreadable

Rows = Sequence[Sequence[int]]
MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def flat(rows: Rows) -> list[int]:
    return [id for row in rows for id in row]


def write_npy(path: Path, rows: Rows, dtype: str = "uint16") -> None:
    np.save(path, np.array(flat(rows), dtype=dtype))


def write_npz(path: Path, rows: Rows) -> None:
    np.savez(path, input_ids=np.array(flat(rows), dtype="int32"), other=np.array([1.5]))


def write_compressed_npz(path: Path, rows: Rows) -> None:
    np.savez_compressed(path, tokens=np.array(flat(rows), dtype="uint16"))


def write_bin(path: Path, rows: Rows, dtype: str = "uint16") -> None:
    np.array(flat(rows), dtype=dtype).tofile(path)


def write_llm_c(path: Path, rows: Rows) -> None:
    ids = flat(rows)
    header = np.zeros(256, dtype="int32")
    header[:3] = 20240520, 1, len(ids)
    path.write_bytes(header.tobytes() + np.array(ids, dtype="uint16").tobytes())


def write_megatron(path: Path, rows: Rows, dtype: str = "uint16") -> None:
    """The .bin file, and the index as Megatron-LM's indexed_dataset.py documents it."""
    sizes = [len(row) for row in rows]
    width = np.dtype(dtype).itemsize
    pointers = [width * sum(sizes[:row]) for row in range(len(rows))]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, MEGATRON_CODES[dtype], len(rows), len(rows) + 1)
    index += np.array(sizes, dtype="<i4").tobytes() + np.array(pointers, dtype="<i8").tobytes()
    index += np.arange(len(rows) + 1, dtype="<i8").tobytes()
    path.with_suffix(".idx").write_bytes(index)
    write_bin(path, rows, dtype)


def table(rows: Rows, labels: Rows | None = None, dtype: str = "int32") -> pa.Table:
    columns: dict[str, Any] = {
        "text": pa.array([f"row {n}" for n in range(len(rows))]),
        "input_ids": pa.array([list(row) for row in rows], type=pa.list_(pa.type_for_alias(dtype))),
    }
    if labels is not None:
        columns["labels"] = pa.array(
            [None if row is None else list(row) for row in labels], type=pa.list_(pa.int64())
        )
    return pa.table(columns)


def write_parquet(path: Path, rows: Rows, labels: Rows | None = None) -> None:
    pq.write_table(table(rows, labels), path, row_group_size=3)


def write_arrow(path: Path, rows: Rows, labels: Rows | None = None) -> None:
    whole = table(rows, labels)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=3)


def write_arrow_stream(path: Path, rows: Rows, labels: Rows | None = None) -> None:
    whole = table(rows, labels)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=3)


def write_lines(path: Path, rows: Rows, labels: Rows | None = None) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            line: dict[str, object] = {"text": f"row {number}", "input_ids": list(row)}
            if labels is not None:
                line["labels"] = labels[number]
            file.write(json.dumps(line) + "\n")


def write_bare_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(list(row)) + "\n" for row in rows), encoding="utf-8")


def write_safetensors(path: Path, rows: Rows) -> None:
    save_file({"input_ids": np.array(flat(rows), dtype="int64"), "scale": np.ones(3, dtype="float32")}, path)


# Each writes one file of that name. Where the ids lie in one flat array, the rows do not show.
WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "ids.npy": write_npy,
    "ids.npz": write_npz,
    "compressed.npz": write_compressed_npz,
    "train.bin": write_bin,
    "llm_c.bin": write_llm_c,
    "text_document.bin": write_megatron,
    "train.parquet": write_parquet,
    "train.arrow": write_arrow,
    "stream.arrow": write_arrow_stream,
    "train.jsonl": write_lines,
    "bare.jsonl": write_bare_lines,
    "ids.safetensors": write_safetensors,
}


def units_of(
    path: Path, *, dtype: str | None = None, required_rows: int = 320, nbytes: int = 1 << 28
) -> list[Unit]:
    return plan(str(path), dtype, required_rows, nbytes)


def counted(
    path: Path, measure: Measure, *, dtype: str | None = None, nbytes: int = 1 << 28
) -> DataStatistics:
    """One file, counted in this process, in units of about so many bytes that are merged."""
    total = Tally(measure).result()
    for unit in units_of(path, dtype=dtype, required_rows=measure.bins, nbytes=nbytes):
        tally = Tally(measure)
        tally.take(unit)
        total = total.merge(tally.result())
    return total


def read_all(options: DataOptions, measure: Measure) -> tuple[DataStatistics, list[Unreadable]]:
    """Everything that the options name, by their engine."""
    files, problems = find(options.paths)
    run = engine(options)
    units = list(read._plans(run, files, options, measure, problems))
    return read.count(run, units, measure, options, problems), problems
