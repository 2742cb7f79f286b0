"""The same ids, in every format, give the same statistics; whatever is damaged is one line."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import token_data as writers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_data import WRITERS, Rows, counted, flat, read_all, units_of

from tokaudit.contract.data import DataOptions, DataStatistics
from tokaudit.data.blocks import BLOCK_ITEMS
from tokaudit.data.find import find
from tokaudit.data.tally import Measure
from tokaudit.errors import Unreadable

MEASURE = Measure(rows=300, bins=320, pad=0, ends=(2,))
ROWS = [[5, 7, 7, 299], [1], [310, 0, 2, 2], [9] * 5, [8, 8], [3], [300, 4]]


def expected(rows: Rows) -> DataStatistics:
    """By the book, in plain Python."""
    from array import array

    ids = flat(rows)
    counts = array("q", [ids.count(id) for id in range(MEASURE.bins)])
    return DataStatistics(counts, items=len(ids), least=min(ids), most=max(ids))


def bare(statistics: DataStatistics) -> DataStatistics:
    """Without what depends on the file's name and shape."""
    return replace(statistics, outside=None, samples=())


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_statistics(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    found = counted(tmp_path / name, MEASURE)
    assert bare(found) == expected(ROWS)
    assert found.outside is not None
    assert found.outside.id == 310
    assert found.without_row(MEASURE.rows) == 2
    assert found.samples[0].ids == tuple(flat(ROWS))
    rowed = name.endswith((".parquet", ".arrow", ".jsonl"))
    assert (found.outside.row, found.outside.item) == ((2, 0) if rowed else (0, 5))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(st.integers(0, 319), min_size=1, max_size=9), min_size=1, max_size=12))
@pytest.mark.parametrize("name", WRITERS)
def test_any_rows_are_counted_as_they_are(name: str, rows: list[list[int]], tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, rows)
    assert bare(counted(tmp_path / name, MEASURE, dtype="uint16")) == expected(rows)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("nbytes", [1, 20, 90])
def test_units_of_any_size_give_the_same_statistics(name: str, nbytes: int, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    found, whole = counted(tmp_path / name, MEASURE, nbytes=nbytes), counted(tmp_path / name, MEASURE)
    assert replace(found, samples=()) == replace(whole, samples=())


@pytest.mark.parametrize("items", [BLOCK_ITEMS - 1, BLOCK_ITEMS, BLOCK_ITEMS + 1, 2 * BLOCK_ITEMS + 7])
def test_nothing_is_lost_at_the_boundaries_of_blocks(items: int, tmp_path: Path) -> None:
    ids = np.arange(items, dtype="uint16") % 300
    ids[[0, -1]] = 315
    np.save(tmp_path / "ids.npy", ids)
    found = counted(tmp_path / "ids.npy", MEASURE, nbytes=1)
    assert len(units_of(tmp_path / "ids.npy", nbytes=1)) == -(-items // BLOCK_ITEMS)
    assert list(found.counts) == np.bincount(ids, minlength=320).tolist()
    assert found.outside is not None
    assert found.outside.item == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", ">u2", "<i2", ">i4", "uint32", "<i8", ">u8", "uint64"])
def test_every_integer_dtype_and_byte_order_is_read(dtype: str, tmp_path: Path) -> None:
    ids = np.array([1, 2, 2, 100, 0], dtype=dtype)
    np.save(tmp_path / "ids.npy", ids)
    found = counted(tmp_path / "ids.npy", MEASURE)
    assert list(found.counts) == np.bincount(ids.astype("int64"), minlength=320).tolist()
    assert (found.least, found.most) == (0, 100)


@pytest.mark.parametrize(
    ("dtype", "ids", "least", "most", "negative", "beyond"),
    [
        ("int8", [-1, -128, 5], -128, 5, 2, 0),
        ("uint8", [255, 0], 0, 255, 0, 0),
        ("int16", [-100, 32767], -100, 32767, 1, 1),
        ("uint16", [65535, 1], 1, 65535, 0, 1),
        ("int32", [-(2**31), 2**31 - 1], -(2**31), 2**31 - 1, 1, 1),
        ("uint32", [2**32 - 1, 3], 3, 2**32 - 1, 0, 1),
        ("int64", [-(2**63), 2**63 - 1], -(2**63), 2**63 - 1, 1, 1),
        ("uint64", [2**64 - 1, 2**63, 7], 7, 2**64 - 1, 0, 2),
    ],
)
def test_the_extremes_of_a_dtype_are_counted_as_what_they_are(
    dtype: str, ids: Sequence[int], least: int, most: int, negative: int, beyond: int, tmp_path: Path
) -> None:
    np.save(tmp_path / "ids.npy", np.array(ids, dtype=dtype))
    found = counted(tmp_path / "ids.npy", MEASURE)
    assert (found.least, found.most, found.negative, found.beyond) == (least, most, negative, beyond)
    assert found.items == len(ids) == found.negative + found.beyond + sum(found.counts)


def test_a_matrix_knows_its_rows_and_fortran_order_only_its_items(tmp_path: Path) -> None:
    matrix = np.array([[1, 2, 3], [4, 305, 6]], dtype="int32")
    np.save(tmp_path / "c.npy", matrix)
    np.save(tmp_path / "f.npy", np.asfortranarray(matrix))
    place = counted(tmp_path / "c.npy", MEASURE).outside
    assert place is not None
    assert (place.row, place.item, place.flat) == (1, 1, False)
    found = counted(tmp_path / "f.npy", MEASURE)
    assert found.outside is not None
    assert (found.outside.item, found.outside.flat) == (3, True)
    assert found.counts == counted(tmp_path / "c.npy", MEASURE).counts


@pytest.mark.parametrize("name", ["train.parquet", "train.arrow", "stream.arrow", "train.jsonl"])
def test_labels_are_held_against_their_inputs(name: str, tmp_path: Path) -> None:
    rows = [[5, 6, 2, 0, 0], [7, 8, 2], [9, 2], [4, 4]]
    labels = [[5, 6, 2, -100, 0], [7, 8, -100], [9, 2, 2], None]
    write = {
        "train.parquet": writers.write_parquet,
        "train.arrow": writers.write_arrow,
        "stream.arrow": writers.write_arrow_stream,
        "train.jsonl": writers.write_lines,
    }[name]
    write(tmp_path / name, rows, labels)  # type: ignore[arg-type]
    found = counted(tmp_path / name, MEASURE).labels
    assert (found.items, found.unaligned, found.trained) == (8, 1, 6)
    assert (found.same, found.pads, found.pads_trained) == (6, 2, 1)
    assert (found.ends, found.ends_masked) == (2, 1)
    assert found.pad_trained is not None
    assert (found.pad_trained.row, found.pad_trained.item) == (0, 4)
    assert found.end_masked is not None
    assert found.end_masked.row == 1
    assert counted(tmp_path / name, MEASURE, nbytes=1).labels == found


@pytest.mark.parametrize("name", ["pair.npz", "pair.safetensors"])
def test_arrays_of_one_shape_are_inputs_and_labels(name: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    ids = np.arange(12, dtype="int64").reshape(3, 4)
    arrays = {"input_ids": ids, "labels": np.where(ids == 5, -100, ids)}
    (np.savez if name.endswith("npz") else save_file)(
        *([tmp_path / name] if name.endswith("npz") else [arrays, tmp_path / name]),
        **(arrays if name.endswith("npz") else {}),
    )
    found = counted(tmp_path / name, MEASURE).labels
    assert (found.items, found.trained, found.same, found.followed) == (12, 11, 11, 8)


def test_shifted_labels_are_counted_within_rows(tmp_path: Path) -> None:
    rows = [[1, 3, 4, 5], [6, 7, 8]]
    writers.write_lines(tmp_path / "a.jsonl", rows, [[*row[1:], 9] for row in rows])
    found = counted(tmp_path / "a.jsonl", MEASURE).labels
    assert (found.followed, found.shifted, found.same) == (5, 5, 0)
    assert found.moved


# Raw files


@pytest.mark.parametrize(("dtype", "found"), [("uint16", "uint16"), ("uint32", "uint32"), ("int64", "int64")])
def test_the_dtype_of_a_raw_file_is_deduced(dtype: str, found: str, tmp_path: Path) -> None:
    writers.write_bin(tmp_path / "train.bin", [list(range(300))], dtype)
    (unit,) = units_of(tmp_path / "train.bin")
    assert (unit.column.dtype, unit.column.deduced) == (found, True)
    assert counted(tmp_path / "train.bin", MEASURE).items == 300


def test_short_ids_are_not_taken_for_numbers_below_zero(tmp_path: Path) -> None:
    writers.write_bin(tmp_path / "train.bin", [[1, 2, 3, 40_000] * 8], "uint16")
    (unit,) = units_of(tmp_path / "train.bin")
    assert unit.column.dtype == "uint16"


def test_a_header_may_promise_no_ids(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(struct.pack("<3i", 20240520, 1, 0) + bytes(1012))
    (unit,) = units_of(tmp_path / "train.bin")
    assert (unit.column.dtype, unit.column.deduced) == ("uint16", False)
    assert counted(tmp_path / "train.bin", MEASURE).items == 0


@pytest.mark.parametrize("rows", [[[1, 2]], [[3, 0, 1, 2, 2, 0] * 100], [[200, 1, 0, 3]]])
def test_pairs_of_small_ids_are_not_taken_for_wider_ones(rows: Rows, tmp_path: Path) -> None:
    writers.write_bin(tmp_path / "train.bin", rows, "uint16")
    assert counted(tmp_path / "train.bin", MEASURE).counts[: 1 + max(flat(rows))].tolist() == [
        flat(rows).count(id) for id in range(1 + max(flat(rows)))
    ]


@pytest.mark.parametrize("stray", [70_000, 131_073])
def test_wide_ids_are_read_as_such_though_some_have_no_row(stray: int, tmp_path: Path) -> None:
    writers.write_bin(tmp_path / "train.bin", [[*range(1, 200), stray]], "uint32")
    found = counted(tmp_path / "train.bin", MEASURE)
    assert (found.items, found.most) == (200, stray)


def test_a_stated_dtype_is_taken_as_it_is(tmp_path: Path) -> None:
    writers.write_bin(tmp_path / "train.bin", [[1, 2, 3, 4]], "uint32")
    (unit,) = units_of(tmp_path / "train.bin", dtype="uint16")
    assert (unit.column.dtype, unit.column.deduced) == ("uint16", False)
    assert counted(tmp_path / "train.bin", MEASURE, dtype="uint16").items == 8


# Directories


def test_a_data_set_saved_by_datasets_is_read_as_its_state_lists_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [[n % 300, 1, 2] for n in range(100)]
    saved = datasets.Dataset.from_dict({"input_ids": rows, "labels": rows})
    split = datasets.DatasetDict({"train": saved, "test": saved.select(range(10))})
    saved.save_to_disk(str(tmp_path / "one"), num_shards=3)
    split.save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "one" / "cache-123.arrow").write_bytes(b"not listed")
    found, problems = read_all(DataOptions((str(tmp_path / "one"),)), MEASURE)
    assert not problems
    assert bare(replace(found, labelled={})) == expected(rows)
    assert found.labels.same == 300
    found, problems = read_all(DataOptions((str(tmp_path / "splits"),)), MEASURE)
    assert (found.items, problems) == (330, [])


@pytest.mark.parametrize("name", ["../secret.arrow", "/etc/passwd", "a/b.arrow", "", ".."])
def test_a_state_file_cannot_name_files_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    files, problems = find([str(tmp_path)])
    assert not files
    assert problems[0].code == "path-escape"


def test_directories_patterns_and_prefixes_find_the_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.npy", "deep/a.npy"):
        np.save(tmp_path / name, np.array([1]))
    (tmp_path / "notes.txt").write_text("no data")
    writers.write_megatron(tmp_path / "m_document.bin", [[1, 2]])
    root = str(tmp_path)
    names = [f"{root}/b.npy", f"{root}/deep/a.npy", f"{root}/m_document.bin"]
    assert find([root]) == (names, [])
    assert find([f"{root}/**/*.npy"]) == (names[:2], [])
    assert find([f"{root}/m_document"]) == ([names[2]], [])
    assert find([f"{root}/m_document.idx", f"{root}/m_document.*"]) == ([names[2]], [])
    assert [error.code for error in find([f"{root}/*.zip", f"{root}/none", f"{root}/deep"])[1]] == [
        *("no-such-path", "no-such-path"),
    ]
    (tmp_path / "empty").mkdir()
    assert find([f"{root}/empty"])[1][0].code == "no-data"


# Damage


def npy(header: str, payload: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + payload


def megatron(
    sizes: list[int], pointers: list[int], *, code: int = 8, count: int | None = None, version: int = 1
) -> bytes:
    index = b"MMIDIDX\x00\x00" + struct.pack(
        "<QBQQ", version, code, len(sizes) if count is None else count, 1
    )
    return index + struct.pack(f"<{len(sizes)}i{len(pointers)}qq", *sizes, *pointers, 0)


GOOD = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }"
DAMAGED = {
    "objects.npy": (
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04."),
        "data-dtype",
    ),
    "floats.npy": (npy(GOOD.replace("<u2", "<f4"), bytes(8)), "data-dtype"),
    "bools.npy": (npy(GOOD.replace("<u2", "|b1"), bytes(2)), "data-dtype"),
    "records.npy": (npy(GOOD.replace("'<u2'", "[('a', '<u2')]"), bytes(4)), "data-dtype"),
    "huge.npy": (npy(GOOD.replace("(2,)", "(9999999999999999999, 9999999999999)")), "data-header"),
    "large.npy": (npy(GOOD.replace("(2,)", "(999999999999999999, 9999999999999)")), "data-truncated"),
    "sizes.npy": (npy(GOOD.replace("(2,)", "(2)")), "data-header"),
    "junk.npy": (npy(GOOD.replace("False", "False\0")), "data-header"),
    "minor.npy": (npy(GOOD, bytes(4), b"\x01\x01"), "data-header"),
    "negative.npy": (npy(GOOD.replace("(2,)", "(-2,)")), "data-header"),
    "cut.npy": (npy(GOOD, b"\x01\x00\x02"), "data-truncated"),
    "code.npy": (npy("__import__('os').system('true')"), "data-header"),
    "version.npy": (npy(GOOD, bytes(4), b"\x09\x00"), "data-header"),
    "length.npy": (b"\x93NUMPY\x01\x00\xff\xff{}", "data-header"),
    "odd.bin": (b"\x01\x02\x03", "data-truncated"),
    "lfs.bin": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "data-format"),
    "header.bin": (struct.pack("<3i", 20240520, 1, 10**9) + bytes(1012), "data-truncated"),
    "below-zero.bin": (struct.pack("<3i", 20240520, 1, -1) + bytes(1012), "data-truncated"),
    "html.parquet": (b"<!DOCTYPE html><html>", "data-format"),
    "empty.arrow": (b"", "data-format"),
    "cut.parquet": (b"PAR1" + bytes(50), "data-damaged"),
    "cut.arrow": (b"ARROW1\x00\x00" + bytes(50), "data-damaged"),
    "cut-stream.arrow": (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "data-damaged"),
    "zip.npz": (b"PK\x03\x04" + bytes(40), "data-header"),
    "syntax.jsonl": (b'{"input_ids": [1]}\n{"input_ids": [1,\n', "data-syntax"),
    "float.jsonl": (b'{"input_ids": [1, 2.0]}\n', "data-dtype"),
    "bool.jsonl": (b'{"input_ids": [true]}\n', "data-dtype"),
    "text.jsonl": (b'{"text": "no ids"}\n', "data-columns"),
    "huge.jsonl": (b'{"input_ids": [' + b"9" * 30 + b"]}\n", "data-dtype"),
    "digits.jsonl": (b'{"input_ids": [' + b"9" * 5000 + b"]}\n", "data-syntax"),
    "deep.jsonl": (b'{"a":' + b"[" * 100_000 + b"\n", "data-syntax"),
    "latin.jsonl": (b'{"input_ids": [1], "text": "\xe9"}\n', "data-syntax"),
    "blank.jsonl": (b"{\n", "data-syntax"),
    "header.safetensors": (b"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "weights-header"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_line_and_the_other_files_are_counted(name: str, tmp_path: Path) -> None:
    data, code = DAMAGED[name]
    (tmp_path / name).write_bytes(data)
    writers.write_npy(tmp_path / "good.npy", [[1, 2, 3]])
    found, problems = read_all(DataOptions((str(tmp_path),)), MEASURE)
    assert [error.code for error in problems] == [code], problems
    assert problems[0].file.startswith(str(tmp_path / name))
    assert "\n" not in problems[0].message
    assert found.items - found.count(1) == 2


@pytest.mark.parametrize(
    ("index", "code"),
    [
        (megatron([2, 2], [0, 4]), None),
        (megatron([2, 2], [0, 6]), "data-outside"),
        (megatron([2, 3], [0, 4]), "data-outside"),
        (megatron([-1, 2], [0, 4]), "data-outside"),
        (megatron([2, 2], [-4, 4]), "data-outside"),
        (megatron([2, 2], [0, 2**62]), "data-outside"),
        (megatron([2, 2], [0, 4], count=2**60), "data-truncated"),
        (megatron([2, 2], [0, 4], code=7), "data-dtype"),
        (megatron([2, 2], [0, 4], code=99), "data-dtype"),
        (megatron([2, 2], [0, 4], version=2), "data-header"),
        (b"MMID", "data-header"),
        (b"", "data-header"),
    ],
)
def test_an_index_of_megatron_may_not_lie(index: bytes, code: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(struct.pack("<4H", 1, 2, 3, 4))
    (tmp_path / "a.idx").write_bytes(index)
    if code is None:
        assert counted(tmp_path / "a.bin", MEASURE).items == 4
        return
    with pytest.raises(Unreadable) as raised:
        units_of(tmp_path / "a.bin")
    assert raised.value.code == code


def test_the_first_sequence_outside_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(struct.pack("<4H", 1, 2, 3, 4))
    (tmp_path / "a.idx").write_bytes(megatron([2, 2, 2], [0, -4, 8]))
    with pytest.raises(Unreadable, match="sequence 1 has 2 ids from byte -4 on"):
        units_of(tmp_path / "a.bin")


def test_an_archive_that_numpy_did_not_write_is_not_unpacked(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(9))
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("input_ids.npy", array.getvalue())
        with pytest.raises(Unreadable, match="compressed as NumPy does not") as caught:
            units_of(tmp_path / "a.npz")
        assert caught.value.code == "data-header"


def test_nulls_among_ids_are_damage_and_rows_of_null_are_empty(tmp_path: Path) -> None:
    kind = pa.list_(pa.int32())
    pq.write_table(pa.table({"input_ids": pa.array([[1, 2], None, [3]], kind)}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"input_ids": pa.array([[1, None]], kind)}), tmp_path / "ids.parquet")
    assert counted(tmp_path / "rows.parquet", MEASURE).items == 3
    with pytest.raises(Unreadable, match="1 nulls among the ids"):
        counted(tmp_path / "ids.parquet", MEASURE)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint16()), pa.large_list(pa.int64()), pa.list_(pa.int8(), 2)], ids=str
)
def test_every_kind_of_list_column_is_read(kind: pa.DataType, tmp_path: Path) -> None:
    pq.write_table(pa.table({"input_ids": pa.array([[1, 2], [3, 4]], kind)}), tmp_path / "a.parquet")
    found = counted(tmp_path / "a.parquet", MEASURE)
    assert (found.items, found.least, found.most) == (4, 1, 4)


def test_the_columns_must_be_clear(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1]], "b": [[2]]}), tmp_path / "two.parquet")
    pq.write_table(pa.table({"content": [[1]], "attention_mask": [[1]]}), tmp_path / "one.parquet")
    with pytest.raises(Unreadable, match='found "a", "b"'):
        units_of(tmp_path / "two.parquet")
    assert units_of(tmp_path / "one.parquet")[0].column.column == "content"


def test_a_line_of_wild_size_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokaudit.formats import limits

    monkeypatch.setattr(limits, "JSON_LINE_BYTES", 100)
    (tmp_path / "a.jsonl").write_text('{"input_ids": [1]}\n{"input_ids": [' + "1," * 200 + "1]}\n")
    with pytest.raises(Unreadable, match="line 2 has more than 100 bytes") as raised:
        counted(tmp_path / "a.jsonl", MEASURE)
    assert raised.value.code == "data-line"


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(Unreadable) as raised:
        units_of(tmp_path / "pipe.npy")
    assert raised.value.code == "not-a-regular-file"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), cut=st.integers(0, 500)
)
@pytest.mark.parametrize("name", WRITERS)
def test_whatever_the_bytes_are_a_file_is_counted_or_unreadable(
    name: str, changes: list[tuple[int, int]], cut: int, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path / name, ROWS)
    data = bytearray((tmp_path / name).read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    (tmp_path / name).write_bytes(data[: max(1, len(data) - max(0, cut - 250))])
    try:
        found = counted(tmp_path / name, MEASURE)
    except Unreadable as error:
        message, items = error.message, 0
    else:
        message, items = "", found.items - sum(found.counts) - found.negative - found.beyond
    assert ("\n" in message, items) == (False, 0)


@pytest.mark.parametrize(
    ("dtype", "rows", "ids", "first"),
    [
        ("int8", 300, [44, -100], 1),  # 300 is 44 in 8 bits
        ("int16", 128_256, [5, -100], 1),
        ("int32", 3_000_000_000, [1, -5], 1),
        ("uint64", 2**63 - 1, [1, 2**63], 1),
    ],
)
def test_the_first_id_without_a_row_is_found_where_its_dtype_cannot_hold_the_rows(
    dtype: str, rows: int, ids: list[int], first: int, tmp_path: Path
) -> None:
    np.save(tmp_path / "ids.npy", np.array(ids, dtype=dtype))
    place = counted(tmp_path / "ids.npy", Measure(rows=rows, bins=320)).outside
    assert place is not None
    assert (place.item, place.id) == (first, ids[first])


def test_an_archive_with_a_damaged_array_is_not_read_by_its_other_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", input_ids=np.arange(4), scores=np.arange(3))
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole, zipfile.ZipFile(tmp_path / "ids.npz", "w") as file:
        file.writestr("input_ids.npy", whole.read("input_ids.npy")[:-1])
        file.writestr("scores.npy", whole.read("scores.npy"))
    with pytest.raises(Unreadable) as caught:
        units_of(tmp_path / "ids.npz")
    assert caught.value.code == "data-truncated"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    ids = pa.array([[1, 2]])
    pq.write_table(pa.Table.from_arrays([ids, ids], ["input_ids", "input_ids"]), tmp_path / "ids.parquet")
    with pytest.raises(Unreadable, match="more than one column is named") as caught:
        units_of(tmp_path / "ids.parquet")
    assert caught.value.code == "data-columns"


def test_the_name_of_a_column_is_inert_in_a_message(tmp_path: Path) -> None:
    name = "\x1b[31m\n::error::x"
    lines = [json.dumps({name: ids}) + "\n" for ids in ([1], "no ids")]
    (tmp_path / "ids.jsonl").write_text("".join(lines))
    with pytest.raises(Unreadable) as caught:
        counted(tmp_path / "ids.jsonl", MEASURE)
    assert caught.value.message.isprintable()
    assert "::" not in caught.value.message
