"""What the library of a format reads from a file, against what tokaudit does: each raises where they differ.

What only tokaudit refuses stands in the tables, by what the refusal says, with the reason.
"""

from __future__ import annotations

import codecs
import io
import json
import multiprocessing
import os
import re
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import deserialize
from token_data import MEGATRON_CODES

from fuzz.ledger_files import LEDGER
from fuzz.texts import is_inert, is_one_line, report_renders
from tokaudit.contract.data import DataStatistics
from tokaudit.contract.ledger import Ledger
from tokaudit.data.engines import _confine
from tokaudit.data.plan import Unit, plan
from tokaudit.data.tally import Measure, Tally
from tokaudit.errors import Unreadable
from tokaudit.formats import limits
from tokaudit.parallel import Lost, each
from tokaudit.pickles import worker
from tokaudit.reporters import View
from tokaudit.reporters._ledger import as_text
from tokaudit.training.ledger import report
from tokaudit.training.ledger_file import read, save

Ids = list[int]
Columns = dict[str, Ids | None]  # None for one that the library cannot read, or not as ids


def apart(work: Callable[[], None]) -> None:
    """Do it in a fork with limits: a library that such a file makes abort is no failure of tokaudit's."""

    def confined(item: int) -> str:
        _confine()
        try:
            work()
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            return f"line {line}: {error}\n{traceback.format_exc()}"
        return ""

    ((_, found),) = each(confined, 1, jobs=1, seconds=60, look=lambda: None)
    if isinstance(found, Lost):
        assert f"status {FORBIDDEN}" not in found.reason, "something of the file's was imported or run"
        assert "longer than" not in found.reason, found.reason
        return
    assert not found, found


# Token data -----------------------------------------------------------------------------------------------

MEASURE = Measure(rows=300, bins=320, pad=0, ends=(2,))

STRICTER_DATA: Mapping[str, tuple[str, str]] = {
    "several columns": (
        r"^\.\w+ data-columns:",
        "a library gives them all; which of them holds the ids, tokaudit does not guess.",
    ),
    "a header in another spelling": (
        r"^\.np[yz] data-(header: expected descr, fortran_order and shape|dtype: .*the type )",
        "NumPy reads any Python literal; writers of .npy in any language keep to the form of NumPy's own.",
    ),
    "another compression": (
        r"^\.npz data-header: compressed as NumPy does not compress$",
        "NumPy reads what Python's zipfile does; its own writers store or deflate.",
    ),
    "an array that ends before its member": (
        r"^\.npz data-truncated: .* does not take \d+ bytes$",
        "NumPy ignores what follows; a member is one array, so something is wrong with it.",
    ),
}
"""Token data that the library of its format reads and tokaudit refuses."""


def data_is_counted_as_the_library_does(folder: Path) -> None:
    """The one file in ``data/`` has the same ids for the library of its format, or both refuse it."""
    (path,) = (path for path in (folder / "data").iterdir() if path.suffix != ".idx")
    stated = folder / "dtypes.json"
    dtype = json.loads(stated.read_bytes()) if stated.exists() else None
    _compare(path, dtype, LIBRARIES[".idx" if path.with_suffix(".idx").exists() else path.suffix])


_CLEAN = multiprocessing.get_context("forkserver")
_CLEAN.set_forkserver_preload([__name__])


@cache
def _start_server() -> None:
    # Before Python 3.13 the server does not know our path when it imports what it is to hold.
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()


def tables_are_counted_as_pyarrow_does(folder: Path) -> None:
    """The same of a file of Parquet or Arrow. pyarrow may abort on such a file.

    The process comes from a server that has no threads: this one may have those of Arrow, Ray or torch, and a
    fork of it their locks.
    """
    (path,) = (folder / "data").iterdir()
    _start_server()
    receiving, sending = _CLEAN.Pipe(duplex=False)
    process = _CLEAN.Process(target=_compare_tables, args=(path, sending))
    process.start()
    sending.close()
    ended = receiving.poll(60)
    try:
        found = receiving.recv() if ended else "it took longer than 60 s"
    except EOFError:  # it died without a word
        found = ""
    process.kill()
    process.join()
    receiving.close()
    assert not found, found


def _compare_tables(path: Path, told: Connection) -> None:
    _confine()
    try:
        _compare(path, None, _arrow)
    except Exception:
        told.send(traceback.format_exc())
    else:
        told.send("")


def _compare(path: Path, dtype: str | None, library: Callable[[Path, str], Columns]) -> None:
    try:
        units = plan(str(path), dtype, MEASURE.bins, 1)
        column = units[0].column.column if units else ""
        found = counted(units)
    except Unreadable as error:
        is_one_line(error)
        refusal = f"{path.suffix} {error.code}: {error.message}"
        if error.code.startswith("weights-"):  # the target "parser" compares headers of safetensors
            return
        known = any(re.search(form, refusal) for form, _ in STRICTER_DATA.values())
        columns = _read(library, path, dtype or "")
        assert known or not columns or None in columns.values(), refusal
        return
    if units:
        ids = _read(library, path, units[0].column.dtype).get(column)
        assert ids is not None, f"accepted, and the library reads no {column!r}"
        assert_counts(found, ids)


def _read(library: Callable[[Path, str], Columns], path: Path, dtype: str) -> Columns:
    """What the library reads; nothing where it refuses the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy about headers that Python 2 wrote
        try:
            return library(path, dtype)
        except Exception:  # whatever it raises, it refuses the file
            return {}


def counted(units: list[Unit]) -> DataStatistics:
    tally = Tally(MEASURE)
    for unit in units:
        tally.take(unit)
    return tally.result()


def assert_counts(found: DataStatistics, ids: Ids) -> None:
    """The statistics are those of the ids in their order."""
    within = [id for id in ids if 0 <= id < MEASURE.bins]
    assert found.items == len(ids)
    assert [id for id, count in enumerate(found.counts) for _ in range(count)] == sorted(within)
    assert found.negative == sum(id < 0 for id in ids)
    assert found.beyond == sum(id >= MEASURE.bins for id in ids)
    assert (found.least, found.most) == (min(ids, default=None), max(ids, default=None))
    outside = next((id for id in ids if not 0 <= id < MEASURE.rows), None)
    assert (found.outside.id if found.outside else None) == outside


def _integers(name: str, array: object) -> Columns:
    """The ids in the order of the file, if they are any."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        return {}
    return {name: array.ravel(order="K").tolist()}


def _npy(path: Path, dtype: str) -> Columns:
    file = io.BytesIO(path.read_bytes())
    return _integers(
        "", np.lib.format.read_array(file, allow_pickle=False, max_header_size=limits.NPY_HEADER_BYTES)
    )


def _npz(path: Path, dtype: str) -> Columns:
    found: Columns = {}
    with np.load(path, allow_pickle=False, max_header_size=limits.NPY_HEADER_BYTES) as archive:
        for member in archive.zip.namelist():
            name = member.removesuffix(".npy")
            if name == member:
                continue
            try:
                array = archive[member]
            except Exception as error:  # of one member; the others are read
                if "Object arrays" not in str(error):
                    found[name] = None
                continue
            found |= _integers(name, array) if isinstance(array, np.ndarray) else {name: None}
    return found


def _raw(path: Path, dtype: str) -> Columns:
    """The only reference is the dtype, which tokaudit was given or deduced."""
    data = path.read_bytes()
    if len(data) >= 1024:
        magic, version, items = struct.unpack("<3i", data[:12])
        known = {(20240520, 1): "<u2", (20240801, 7): "<u4"}.get((magic, version))
        if known is not None:
            return {"": _exactly(data, 1024, items, known)}
    width = np.dtype(dtype).itemsize
    return {} if len(data) % width else {"": np.frombuffer(data, dtype).tolist()}


def _exactly(data: bytes, start: int, items: int, dtype: str) -> Ids:
    size = items * np.dtype(dtype).itemsize
    if items < 0 or start < 0 or start + size > len(data):
        raise ValueError("outside of the data")
    return list(np.frombuffer(data[start : start + size], dtype).tolist())


def _megatron(path: Path, dtype: str) -> Columns:
    """By NumPy, as indexed_dataset.py reads them."""
    data, index = path.read_bytes(), path.with_suffix(".idx").read_bytes()
    magic, version, code, sequences, documents = struct.unpack("<9sQBQQ", index[:34])
    if (magic, version) != (b"MMIDIDX\0\0", 1):
        raise ValueError("no index")
    (dtype,) = (name for name, known in MEGATRON_CODES.items() if known == code)
    lengths = _exactly(index, 34, sequences, "<i4")
    offsets = _exactly(index, 34 + 4 * sequences, sequences, "<i8")
    _exactly(index, 34 + 12 * sequences, documents, "<i8")
    rows = [_exactly(data, offset, length, dtype) for offset, length in zip(offsets, lengths, strict=True)]
    width = np.dtype(dtype).itemsize
    if offsets == [width * sum(lengths[:row]) for row in range(len(rows))]:
        return {"": [id for row in rows for id in row]}
    covered = max(offset + width * length for offset, length in zip(offsets, lengths, strict=True))
    return {"": _exactly(data, 0, covered // width, dtype)}


def _lines(path: Path, dtype: str) -> Columns:
    rows = [json.loads(line.decode()) for line in path.read_bytes().split(b"\n") if line.strip()]
    if isinstance(rows[0], list):
        rows = [{"": row} for row in rows]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("no objects")
    found: Columns = {}
    for name in (name for name, value in rows[0].items() if isinstance(value, list)):
        sound = all(isinstance(row.get(name), list) and all(map(_is_id, row[name])) for row in rows)
        found[name] = [id for row in rows for id in row[name]] if sound else None
    return found


def _is_id(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _tensors(path: Path, dtype: str) -> Columns:
    found: Columns = {}
    for name, tensor in deserialize(path.read_bytes()):
        letter, bits = tensor["dtype"][0], tensor["dtype"][1:]
        if letter in "UI" and bits.isdecimal():
            array = np.frombuffer(bytes(tensor["data"]), f"<{letter.lower()}{int(bits) // 8}")
            found[name] = array.tolist()
    return found


def _arrow(path: Path, dtype: str) -> Columns:
    """Each column by itself: one that pyarrow cannot read leaves the others."""
    found: Columns = {}
    for name, loaded in _columns(path):
        try:
            column = loaded()
            column.validate(full=True)
        except (pa.ArrowException, OSError):
            found[name] = None
            continue
        rows = column.to_pylist()
        if pa.types.is_integer(column.type):
            rows = [rows]
        elif pa.types.is_dictionary(column.type) or not pa.types.is_integer(
            getattr(column.type, "value_type", pa.null())
        ):
            continue
        ids = [id for row in rows if row is not None for id in row]
        found[name] = None if None in ids else ids
    return found


def _columns(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        for name in file.schema_arrow.names:
            yield name, lambda name=name: file.read(columns=[name], use_threads=False).column(name)
        return
    data = path.read_bytes()
    opener = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
    table = opener(data, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
    for name in table.column_names:
        yield name, lambda name=name: table.column(name)


LIBRARIES: Mapping[str, Callable[[Path, str], Columns]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".bin": _raw,
    ".idx": _megatron,
    ".jsonl": _lines,
    ".safetensors": _tensors,
}

# States of optimizers -------------------------------------------------------------------------------------

STRICTER_STATES: Mapping[str, tuple[str, str]] = {
    "an archive that Python cannot open": (
        r"it is a damaged archive: ",
        "torch's own reader of archives passes over some damage; torch writes none.",
    ),
    "a compressed pickle": (
        r" is not stored as torch stores it$",
        "torch stores everything as it is; a pickle may grow a thousandfold when it is unpacked.",
    ),
    "several pickles in one archive": (
        r"it is an archive without the one data\.pkl",
        "which of them a version of torch reads is not stated anywhere.",
    ),
}
"""Files that `torch.load(weights_only=True)` loads and tokaudit refuses."""

FORBIDDEN = 77  # how a process ends in which the file's program got something done
_HARMLESS = re.compile(r"object\.|gc\.|sys\._getframe$|array\.|cpython\.")


def state_is_read_as_torch_does(folder: Path) -> None:
    """The shapes are those of the tensors that torch loads; nothing is imported, opened or run for them."""
    (path,) = (path for path in (folder / "optimizer").rglob("*") if path.is_file() and path.name != "latest")
    apart(lambda: _compare_state(path))


def _compare_state(path: Path) -> None:
    refusal, layout, parameters = "", "", []
    with path.open("rb") as file, Watched():
        try:
            found: Any = worker.shapes(file.fileno())
            layout, parameters = found["layout"], found["parameters"]
        except Exception as error:  # as tokaudit.isolation.child.respond, which makes a refusal of it
            refusal = f"{type(error).__name__}: {error}"
    if refusal.startswith("MemoryError"):
        return
    expected = list(_of_torch(path))
    if not expected:
        return
    known = any(re.search(form, refusal) for form, _ in STRICTER_STATES.values())
    assert not refusal or known, refusal
    if refusal:
        return
    assert layout == "torch", layout
    shapes = dict(parameters)
    for key, name, shape in expected:
        assert shapes[key].get(name) == shape, (key, name, shape, shapes)


class Watched:
    """While it lasts, this process ends where anything is imported, opened, compiled or run."""

    _watching = False
    _added = False

    def __enter__(self) -> None:
        codecs.lookup("cp437")  # that of names in archives, which is imported when it is needed
        if not Watched._added:
            sys.addaudithook(Watched._look)
            Watched._added = True
        Watched._watching = True

    def __exit__(self, *error: object) -> None:
        Watched._watching = False

    @staticmethod
    def _look(event: str, args: tuple[Any, ...]) -> None:
        if not Watched._watching or _HARMLESS.match(event):
            return
        if event == "open" and isinstance(args[0], int):
            return
        os.write(2, f"audit: {event} {args!r:.200}\n".encode())
        os._exit(FORBIDDEN)


def _of_torch(path: Path) -> Iterator[tuple[Any, str, list[int]]]:
    """(parameter, name, shape) of each dense tensor in the first state; none where torch refuses the file."""
    torch.set_num_threads(1)
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # whatever it raises, it refuses the file
        return
    if not isinstance(document, dict) or "param_shapes" in document:
        return
    candidates = [document]
    for place in worker.NESTED:
        inner = document.get(place)
        candidates += inner if isinstance(inner, list) else [inner]
    states = [
        one["state"] for one in candidates if isinstance(one, dict) and isinstance(one.get("state"), dict)
    ]
    for key, kept in (states or [{}])[0].items():
        if isinstance(key, (str, int)) and isinstance(kept, dict):
            names = [str(name) for name in kept]
            for name, value in kept.items():
                plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
                if plain and names.count(str(name)) == 1:
                    yield key, str(name), list(value.shape)


# Ledgers --------------------------------------------------------------------------------------------------


def ledger_is_read_or_refused(folder: Path) -> None:
    """One line, or a ledger that is the same once it is written and read again, and that can be shown."""
    try:
        found = read(folder / LEDGER)
    except Unreadable as error:
        is_one_line(error)
        return
    with tempfile.TemporaryDirectory() as name:
        again = Path(name, LEDGER)
        save(found, again)
        assert plain(read(again)) == plain(found)
    report_renders(report(found, "model"))
    is_inert(as_text(found, View()), "the table of a ledger")


def plain(ledger: Ledger) -> list[object]:
    """All that a file holds of it, comparable: NaN is one text."""
    lists = [
        list(map(repr, numbers))
        for table in ledger.tables
        for numbers in (table.input_gradients, table.output_gradients, table.updates, table.untouched)
    ]
    facts = [repr(table) for table in ledger.tables]
    return [
        ledger.steps,
        ledger.passes,
        list(ledger.visits),
        list(ledger.new_ids),
        ledger.pad_id,
        facts,
        lists,
    ]
