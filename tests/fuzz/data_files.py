"""Token data in every format: as the libraries write it, with odd headers, and damaged.

Where one library is the reference, the file is the only one under ``data/``; ``dtypes.json`` holds the dtype
that is given for a raw one.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from safetensors.numpy import save
from token_data import MEGATRON_CODES

from fuzz.archives import METHODS, repacked
from fuzz.values import ODD, TEXTS, bitten, damaged, written
from tokaudit.data.find import SUFFIXES

Files = dict[str, bytes]

DTYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
OTHER_DTYPES = ("float32", "bool", "complex64", "U3", "S2", "V4", "M8[s]", "float16")
ORDERS = ("<", ">", "=")
COLUMNS = st.sampled_from(["input_ids", "tokens", "ids", "labels", "attention_mask", "text", "x"])

# Most have a row in the vocabulary of 320 that they are held against; some are at the ends of dtypes.
IDS = st.integers(0, 319) | st.sampled_from(
    [-100, -1, 320, 2**7, 2**15 - 1, 2**16 - 1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63)]
)
ROWS = st.lists(st.lists(IDS, max_size=4), max_size=5)


@st.composite
def arrays(draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES) -> np.ndarray[Any, Any]:
    """An array of integers of any shape and order of bytes; ids that the dtype cannot hold wrap around."""
    dtype = np.dtype(draw(st.sampled_from(dtypes))).newbyteorder(draw(st.sampled_from(ORDERS)))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = int(np.prod(shape, dtype=int))
    ids = draw(st.lists(IDS, min_size=count, max_size=count))
    found = np.array(ids, dtype="int64").astype(dtype).reshape(shape)
    return np.asfortranarray(found) if draw(st.integers(0, 4)) == 0 else found


# .npy -----------------------------------------------------------------------------------------------------


def npy(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version)
    return out.getvalue()


HEADER_TEXTS = st.sampled_from(
    [
        *("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }", "{'shape': (3,), 'descr': '<u2'}"),
        *("{'descr': '<u2', 'fortran_order': False, 'shape': (3)}", "{'descr': '<u2', 'fortran_order': 0}"),
        *("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (3,)}", "[1]", "None", "", "{}"),
        *("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "__import__('os').system('true')"),
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), 'x': 1}",
        "{'descr': '<u2', 'descr': '<u4', 'fortran_order': False, 'shape': (1,)}",
        '{"descr": "<u2", "fortran_order": False, "shape": (3,)}',
        "{'descr': 'uint16', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<u2' 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<u2', x 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3L,)}",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '<u3', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<u16', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u2', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '=i8', 'fortran_order': True, 'shape': ()}",
        "((" * 3000,
    ]
)
SIZES = st.sampled_from(
    [
        "",
        "0",
        "1",
        "3",
        "03",
        "0x1",
        "1_0",
        "-1",
        "3.0",
        "9" * 20,
        "9" * 21,
        str(2**63),
        str(2**32),
        "3 3",
        " 3 ",
    ]
)
SHAPES = st.lists(SIZES, max_size=4).map(lambda sizes: f"({','.join(sizes)})") | st.just(
    "(" + "1," * 65 + ")"
)


@st.composite
def npy_texts(draw: st.DrawFn) -> str:
    """The text of a header, from keys and values that may be none, in any order and spacing."""
    members = {
        "descr": draw(
            st.sampled_from(["'<u2'", "'>i4'", "'|u1'", "'<f4'", "'|O'", "u'<u2'", "None", "'u2'"])
        ),
        "fortran_order": draw(st.sampled_from(["False", "False", "True", "0", "'False'"])),
        "shape": draw(SHAPES),
    }
    keys = draw(st.permutations(list(members)) | st.lists(st.sampled_from([*members, "x"]), max_size=4))
    between, after = (
        draw(st.sampled_from([", ", ",", " , ", ",  ", ",,", " "])),
        draw(st.sampled_from(["", ", "])),
    )
    colon = draw(st.sampled_from([": ", ":", " : "]))
    entries = between.join(f"'{key}'{colon}{members.get(key, '1')}" for key in keys)
    text = "{" + entries + after + "}"
    return text + " " * draw(st.sampled_from([0, 3, 60])) + draw(st.sampled_from(["\n", "\n", "", "\0", "x"]))


@st.composite
def npy_headers(draw: st.DrawFn) -> bytes:
    """A file made by hand: a version, a length and a text that may not fit."""
    text = draw(HEADER_TEXTS | npy_texts()).encode("latin-1")
    version = draw(st.sampled_from([(1, 0), (1, 0), (2, 0), (3, 0), (1, 1), (0, 1), (4, 0), (255, 255)]))
    length = len(text) + draw(st.sampled_from([0, 0, 0, 0, 1, -1, 60_000]))
    packed = struct.pack("<H" if version[0] == 1 else "<I", max(0, length) % 65_536)
    data = b"\x93NUMPY" + bytes(version) + packed + text
    return data + draw(st.binary(max_size=12))


@st.composite
def npys(draw: st.DrawFn) -> bytes:
    match draw(st.integers(0, 4)):
        case 0:
            return draw(npy_headers())
        case 1:
            return draw(bitten(arrays().map(npy)))
        case 2:
            return npy(draw(arrays((*DTYPES, *OTHER_DTYPES))))
        case _:
            version = draw(st.sampled_from([None, None, (1, 0), (2, 0), (3, 0)]))
            return npy(draw(arrays()), version) + draw(st.sampled_from([b"", b"", b"\0", b"\0" * 9]))


# .npz and .safetensors ------------------------------------------------------------------------------------


@st.composite
def npzs(draw: st.DrawFn) -> bytes:
    """A zip of arrays; compressed or not, with members that are none, repeated, or said to be longer."""
    found = []
    for name in draw(st.lists(COLUMNS, max_size=3, unique=draw(st.integers(0, 9)) > 0)):
        data = draw(arrays().map(npy) | npys()) if draw(st.integers(0, 2)) else npy(draw(arrays()))
        found.append((draw(st.sampled_from([f"{name}.npy"] * 4 + [name, f"a/{name}.npy"])), data))
    data = repacked(found, draw(METHODS))
    return draw(st.just(data) | st.just(data) | bitten(st.just(data)))


@st.composite
def tensor_files(draw: st.DrawFn) -> bytes:
    tensors = {}
    for name in draw(st.lists(COLUMNS, max_size=3, unique=True)):
        array = np.ascontiguousarray(draw(arrays()))
        tensors[name] = array.astype(array.dtype.newbyteorder("="))
    data = save(tensors)
    return draw(st.just(data) | st.just(data) | bitten(st.just(data)))


# .bin and Megatron's pair ---------------------------------------------------------------------------------


@st.composite
def raws(draw: st.DrawFn) -> bytes:
    """Ids without a header, or with that of llm.c, which may promise more than there is."""
    array = np.ascontiguousarray(draw(arrays()))
    data = array.tobytes() + draw(st.sampled_from([b"", b"", b"\1"]))
    if draw(st.integers(0, 2)):
        return data
    magic, version = draw(st.sampled_from([(20240520, 1), (20240801, 7), (20240520, 2), (0, 0)]))
    items = draw(st.sampled_from([array.size, array.size, array.size + 1, -1, 0, 2**31 - 1]))
    return struct.pack("<3i", magic, version, items) + bytes(1012) + data


NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 4, 8, 100, 2**31 - 1])


@st.composite
def megatrons(draw: st.DrawFn) -> Files:
    """A .bin file and its index: one sequence after the other, with numbers changed here and there."""
    dtype = draw(st.sampled_from(sorted(MEGATRON_CODES)))
    rows = draw(ROWS)
    ids = np.array([id for row in rows for id in row], dtype="int64").astype(dtype)
    lengths, width = [len(row) for row in rows], ids.dtype.itemsize
    offsets = [width * sum(lengths[:row]) for row in range(len(rows))]
    for numbers in (lengths, offsets):
        if numbers and draw(st.integers(0, 4)) == 0:
            numbers[draw(st.integers(0, len(numbers) - 1))] = draw(NUMBERS)
    code = draw(st.sampled_from([MEGATRON_CODES[dtype]] * 6 + [0, 6, 7, 9, 255]))
    counts = [len(rows), len(rows) + 1]
    if draw(st.integers(0, 6)) == 0:
        counts[draw(st.integers(0, 1))] = draw(st.sampled_from([0, 1, 100, 2**40, 2**63, 2**64 - 1]))
    magic = draw(st.sampled_from([b"MMIDIDX\0\0"] * 9 + [b"TNTIDX\0\0\0"]))
    index = magic + struct.pack("<QBQQ", draw(st.sampled_from([1] * 9 + [2])), code, *counts)
    index += np.array(lengths, dtype="<i4").tobytes() + np.array(offsets, dtype="<i8").tobytes()
    index += np.arange(len(rows) + 1, dtype="<i8").tobytes()
    index = draw(st.just(index) | st.just(index) | st.just(index) | bitten(st.just(index)))
    data = ids.tobytes() + draw(st.sampled_from([b"", b"", b"\0\0", b"\1"]))
    return {"ids.bin": data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 8]))], "ids.idx": index}


# .jsonl ---------------------------------------------------------------------------------------------------


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Objects or lists, one on a line; some are neither."""
    rows = draw(ROWS)
    bare = draw(st.integers(0, 3)) == 0
    column, labels = draw(st.sampled_from([("input_ids", "labels"), ("tokens", ""), ("x", "targets")]))
    lines = []
    for row in rows:
        line: Any = list(row)
        if not bare:
            line = {column: line}
            if labels and draw(st.booleans()):
                line[labels] = draw(st.just(row) | st.none() | st.lists(IDS, max_size=4))
            line |= draw(
                st.dictionaries(TEXTS, ODD, max_size=1) if draw(st.integers(0, 4)) == 0 else st.just({})
            )
        if draw(st.integers(0, 5)) == 0:
            line = draw(damaged(st.just(line), least=1, most=2))
        lines.append(written(line).replace(b"\n", b" "))
    lines += draw(
        st.lists(st.sampled_from([b"", b" ", b"\r", b"\xef\xbb\xbf[1]", b"[1] [2]", b"[1,"]), max_size=1)
    )
    data = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n"])).join(lines)
    data += draw(st.sampled_from([b"\n", b"", b"\n \n"]))
    return draw(st.just(data) | st.just(data) | st.just(data) | bitten(st.just(data)))


# Parquet and Arrow ----------------------------------------------------------------------------------------

INTEGERS = [pa.type_for_alias(dtype) for dtype in DTYPES]


@st.composite
def columns(draw: st.DrawFn, rows: int) -> pa.Array[Any]:
    """A column of lists of integers, mostly: lists of every kind, with nulls, or a slice of a longer one."""
    inner = draw(st.sampled_from(INTEGERS))
    spare = draw(st.sampled_from([0, 0, 1, 3]))
    width = draw(st.integers(0, 3))
    kind = draw(
        st.sampled_from(
            [pa.list_(inner)] * 4
            + [pa.large_list(inner), pa.list_(inner, width), inner, pa.string(), pa.float32()]
            + [pa.list_(pa.list_(inner)), pa.list_(pa.float32()), pa.dictionary(pa.int8(), inner)]
            + [pa.list_(pa.string()), pa.struct([("a", inner)]), pa.list_view(inner), pa.binary()]
        )
    )
    fixed = isinstance(kind, pa.FixedSizeListType)
    numbers = st.integers(0, 100) | (st.none() if draw(st.integers(0, 5)) == 0 else st.integers(100, 127))
    lists = st.lists(numbers, min_size=width if fixed else 0, max_size=width if fixed else 4)
    if draw(st.integers(0, 3)) == 0:
        lists = lists | st.none()
    values = draw(st.lists(lists, min_size=rows + spare, max_size=rows + spare))
    match kind:
        case pa.StructType():
            values = [{"a": 1}] * len(values)
        case pa.ListType() if pa.types.is_list(kind.value_type):
            values = [None if value is None else [value] for value in values]
        case pa.ListType() if pa.types.is_string(kind.value_type):
            values = [["x"]] * len(values)
        case _ if pa.types.is_string(kind) or pa.types.is_binary(kind):
            values = ["x"] * len(values)
        case _ if not (
            pa.types.is_list(kind) or pa.types.is_large_list(kind) or fixed or pa.types.is_list_view(kind)
        ):
            values = [None if value is None else len(value) for value in values]
    return pa.array(values, type=kind).slice(draw(st.integers(0, spare)), rows)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, int]:
    """A table, and how many of its rows make a part of the file."""
    rows = draw(st.integers(0, 6))
    names = draw(st.lists(COLUMNS, min_size=1, max_size=3, unique=draw(st.integers(0, 9)) > 0))
    return pa.Table.from_arrays([draw(columns(rows)) for _ in names], names=names), draw(st.integers(1, 4))


@st.composite
def table_files(draw: st.DrawFn) -> Files:
    """A table as a file of one of the three kinds; one that pyarrow cannot write as such becomes a stream."""
    table, size = draw(tables())
    out = io.BytesIO()
    kind = draw(st.sampled_from(["parquet", "arrow", "stream"]))
    if kind == "parquet":
        try:
            pq.write_table(
                table, out, row_group_size=size, compression=draw(st.sampled_from(["none", "snappy"]))
            )
        except (pa.ArrowException, NotImplementedError):
            kind, out = "stream", io.BytesIO()
    if kind != "parquet":
        compression = draw(st.sampled_from([None, None, "lz4"]))
        options = pa.ipc.IpcWriteOptions(compression=compression)
        opener = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with opener(out, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=size)
    data = out.getvalue()
    data = draw(st.just(data) | st.just(data) | st.just(data) | bitten(st.just(data)))
    return {f"ids.{'parquet' if kind == 'parquet' else 'arrow'}": data}


# Inputs ---------------------------------------------------------------------------------------------------


def _named(name: str, files: st.SearchStrategy[bytes]) -> st.SearchStrategy[Files]:
    return files.map(lambda data: {name: data})


ONE_FILE: st.SearchStrategy[Files] = (
    _named("ids.npy", npys())
    | _named("ids.npz", npzs())
    | _named("ids.safetensors", tensor_files())
    | _named("ids.bin", raws())
    | megatrons()
    | _named("ids.jsonl", json_lines())
)


@st.composite
def alone(draw: st.DrawFn, files: st.SearchStrategy[Files] = ONE_FILE) -> Files:
    """One file of token data, and perhaps a dtype for it."""
    found = {f"data/{name}": data for name, data in draw(files).items()}
    if "data/ids.bin" in found and draw(st.integers(0, 3)):
        found["dtypes.json"] = json.dumps(draw(st.sampled_from(DTYPES))).encode()
    return found


STATES = st.sampled_from(
    [
        {"_data_files": [{"filename": "ids.arrow"}]},
        {"_data_files": [{"filename": "../ids.arrow"}]},
        {"_data_files": [{"filename": "\x1b[31m"}]},
        {"_data_files": 3},
        {"splits": ["train", "../x"]},
    ]
)


@st.composite
def folders(draw: st.DrawFn) -> Files:
    """A folder of files under any names, some of another format; perhaps a saved data set."""
    found: Files = {}
    for _ in range(draw(st.integers(1, 3))):
        files = draw(ONE_FILE | table_files())
        place = draw(st.sampled_from(["", "", "train/"]))
        for name, data in files.items():
            name = name if draw(st.integers(0, 3)) else f"ids{draw(st.sampled_from(SUFFIXES))}"
            found[f"data/{place}{name}"] = data
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(["state.json", "dataset_dict.json", "train/state.json"]))
        found[f"data/{name}"] = written(draw(damaged(STATES)))
    return found
