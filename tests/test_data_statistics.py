"""Statistics of parts are merged into those of the whole: in any order, by any engine, to the last count."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import token_data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_data import WRITERS, read_all

from tokaudit.contract.data import (
    LEAST_JUDGED,
    DataColumn,
    DataOptions,
    DataStatistics,
    DecodedSample,
    LabelStatistics,
    Place,
    Sample,
    TokenData,
    capacity,
)
from tokaudit.data import read
from tokaudit.data.engines import engine
from tokaudit.data.find import find
from tokaudit.data.read import UNIT_BYTES, Found
from tokaudit.data.spans import SpanUnit
from tokaudit.data.tally import Measure, merged
from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.parallel import Lost

MEASURE = Measure(rows=300, bins=320, pad=0, ends=(2,))
COLUMNS = [DataColumn(file, "input_ids", "", labels="labels") for file in "abc"]

counts = st.integers(0, 1000)
places = st.none() | st.builds(
    Place, st.sampled_from("ab"), st.just(""), st.integers(0, 3), st.integers(0, 3), st.integers(-5, 500)
)
extremes = st.none() | st.integers(-5, 500)
labels = st.builds(
    LabelStatistics,
    *[counts] * 12,
    outside=places,
    pad_trained=places,
    end_masked=places,
)
statistics = st.builds(
    DataStatistics,
    st.lists(counts, min_size=4, max_size=4).map(lambda values: array("q", values)),
    items=counts,
    beyond=counts,
    negative=counts,
    least=extremes,
    most=extremes,
    outside=places,
    labelled=st.dictionaries(st.sampled_from(COLUMNS), labels, max_size=2),
    samples=st.lists(
        st.builds(Sample, st.sampled_from("abcdef"), st.just(""), st.just((1,))), max_size=3
    ).map(lambda samples: tuple(sorted(samples))),
)


@given(statistics, statistics, statistics)
def test_merging_is_associative_and_commutative(
    a: DataStatistics, b: DataStatistics, c: DataStatistics
) -> None:
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).merge(c) == a.merge(b.merge(c))


@given(statistics)
def test_nothing_is_the_neutral_element(a: DataStatistics) -> None:
    assert a.merge(DataStatistics(array("q", bytes(32)))) == a


@given(st.lists(statistics, min_size=1, max_size=5))
def test_merging_in_one_table_is_merging_one_by_one(parts: list[DataStatistics]) -> None:
    assert merged(parts, 4) == reduce(DataStatistics.merge, parts)


def test_counts_of_other_lengths_are_not_merged() -> None:
    with pytest.raises(ValueError, match="1 and 2 ids"):
        DataStatistics(array("q", [1])).merge(DataStatistics(array("q", [1, 2])))


def test_counts_have_64_bits() -> None:
    part = DataStatistics(array("q", [2**40]))
    assert part.merge(part).counts[0] == merged([part, part], 1).counts[0] == 2**41


def sample(file: str, length: int) -> Sample:
    return Sample(file, "", tuple(range(length)))


def told(text: str, length: int = LEAST_JUDGED, **of_all: object) -> TokenData:
    """Data of which one sample is as long as that, with the text that the tokenizer gives for it."""
    statistics = DataStatistics(array("q", [1, 0, 2]), **of_all)  # type: ignore[arg-type]
    return TokenData((), statistics, 3, True, (DecodedSample(sample("a", length), text),))


def test_the_first_samples_of_all_parts_are_kept_and_no_more() -> None:
    parts = [DataStatistics(array("q", [1]), samples=(sample(name, 1),)) for name in "fbdaec"]
    assert [kept.file for kept in merged(parts, 1).samples] == ["a", "b", "c", "d"]
    assert merged(parts, 1) == reduce(DataStatistics.merge, parts)


@pytest.mark.parametrize(
    ("trained", "same", "followed", "shifted", "of_inputs", "moved"),
    [
        (100, 100, 90, 0, True, False),
        (100, 50, 100, 90, True, False),
        (100, 49, 100, 90, False, True),
        (100, 49, 100, 89, False, False),
        (100, 0, 0, 0, False, False),
        (100, 0, 1, 1, False, True),
        (0, 0, 0, 0, True, False),
    ],
)
def test_labels_are_the_inputs_or_the_inputs_moved_by_one_where_most_say_so(
    trained: int, same: int, followed: int, shifted: int, of_inputs: bool, moved: bool
) -> None:
    labels = LabelStatistics(trained=trained, same=same, followed=followed, shifted=shifted)
    assert (labels.of_inputs, labels.moved) == (of_inputs, moved)


def test_without_labels_it_is_said_whether_they_are_absent_or_of_another_length() -> None:
    with pytest.raises(FactMissing, match="the data has no labels"):
        _ = told("").labels
    with pytest.raises(FactMissing, match="no row has as many labels as inputs"):
        _ = told("", labelled={COLUMNS[0]: LabelStatistics(unaligned=1)}).labels
    labels = LabelStatistics(unaligned=1, items=1)
    assert told("", labelled={COLUMNS[0]: labels}).labels == labels


def test_a_file_with_few_labels_goes_by_those_of_all_files() -> None:
    enough, few = LEAST_JUDGED, LEAST_JUDGED - 1
    moved, right = {"shifted": enough}, {"same": enough}

    def labels(count: int, of: dict[str, int]) -> LabelStatistics:
        return LabelStatistics(items=count, trained=count, followed=count, **of)

    mostly_right = {COLUMNS[2]: labels(9 * enough, {"same": 9 * enough})}
    judged = dict(zip(COLUMNS, [labels(enough, moved), labels(few, {"shifted": few})], strict=False))
    assert told("", labelled={**judged, **mostly_right}).moved == COLUMNS[:1]
    assert told("", labelled=judged).moved == COLUMNS[:2]
    assert told("", labelled={COLUMNS[1]: labels(few, {}), COLUMNS[0]: labels(enough, right)}).moved == []


def test_fewer_than_64_ids_tell_nothing_of_their_tokenizer() -> None:
    assert told("", items=64).telling.items == 64
    assert told("text", 64).garbled == 0
    for asked in (lambda: told("", items=63).telling, lambda: told("text", 63).garbled):
        with pytest.raises(FactMissing, match="fewer than 64 ids are too few"):
            asked()


def test_broken_characters_count_once_for_each_run_and_not_at_the_end() -> None:
    assert told("a\ufffd\ufffdb\ufffdc\ufffd", 100).garbled == 0.02


def test_frequent_ids_come_first_the_smaller_of_two_and_none_that_never_occurs() -> None:
    assert DataStatistics(array("q", [1, 0, 2, 1])).frequent(9) == [(2, 2), (0, 1), (3, 1)]
    assert DataStatistics(array("q", [1, 0, 2, 1])).frequent(2) == [(2, 2), (0, 1)]


def test_ids_without_a_row_are_negative_beyond_the_counts_or_beyond_the_rows() -> None:
    found = DataStatistics(array("q", [1, 5, 7]), negative=10, beyond=100)
    assert [found.without_row(rows) for rows in (3, 2, 1)] == [110, 117, 122]
    assert [found.count(id) for id in (-1, 0, 2, 3)] == [0, 1, 7, 0]


rows_of_ids = st.lists(st.lists(st.integers(-5, 400), min_size=1, max_size=6), min_size=1, max_size=20)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_ids, seed=st.integers(0, 99), nbytes=st.integers(1, 200))
def test_units_in_any_order_give_what_one_pass_gives(
    rows: list[list[int]], seed: int, nbytes: int, tmp_path: Path
) -> None:
    labels = [[-100 if id % 7 == seed % 7 else id for id in row] for row in rows]
    token_data.write_lines(tmp_path / "a.jsonl", rows, labels)
    units = token_data.units_of(tmp_path / "a.jsonl", nbytes=nbytes)
    order = np.random.default_rng(seed).permutation(len(units))
    parts = [read.count_units([units[number]], measure=MEASURE).statistics for number in order]
    whole = token_data.counted(tmp_path / "a.jsonl", MEASURE)
    assert replace(merged(parts, MEASURE.bins), samples=()) == replace(whole, samples=())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [[(7 * n + m) % 310 for m in range(1 + n % 9)] for n in range(60)]
    for name, write in WRITERS.items():
        write(tmp_path / name, rows)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    return tmp_path


def test_any_number_of_processes_gives_the_same(folder: Path) -> None:
    one = read_all(DataOptions((str(folder),), jobs=1), MEASURE)
    many = read_all(DataOptions((str(folder),), jobs=3), MEASURE)
    assert one[0] == many[0]
    assert [error.code for error in many[1]] == ["data-header"]


def test_a_cluster_of_ray_gives_the_same(folder: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        found, problems = read_all(DataOptions((str(folder),), engine="ray"), MEASURE)
    finally:
        ray.shutdown()
    assert found == read_all(DataOptions((str(folder),)), MEASURE)[0]
    assert [error.code for error in problems] == ["data-header"]


def test_without_ray_the_call_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match="Ray, which is not installed") as raised:
        engine(DataOptions(("x",), engine="ray"))
    assert "tokaudit[ray]" in raised.value.hint


def test_without_pyarrow_its_files_are_unreadable_and_the_others_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    found, problems = read_all(DataOptions((str(folder),)), MEASURE)
    missing = [error for error in problems if error.code == "no-package"]
    assert len(missing) == 3
    assert all("tokaudit[data]" in error.hint for error in missing)
    assert found.items > 0


def test_a_file_that_kills_its_process_is_lost_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import faulthandler
    import os
    import signal

    for name in ("a.npy", "b.npy", "c.npy"):
        np.save(tmp_path / name, np.array([1, 2], dtype="uint16"))
    blocks = SpanUnit.blocks

    def deadly(unit: SpanUnit) -> object:
        if unit.path.endswith("b.npy"):
            faulthandler.disable()  # pytest's, which would tell of it
            os.kill(os.getpid(), signal.SIGSEGV)
        return blocks(unit)

    monkeypatch.setattr(SpanUnit, "blocks", deadly)
    found, problems = read_all(DataOptions((str(tmp_path),), jobs=2), MEASURE)
    assert found.items == 4
    assert [(error.code, error.file) for error in problems] == [("no-result", str(tmp_path / "b.npy"))]
    assert "SIGSEGV" in problems[0].message


def test_a_file_that_asks_for_all_memory_is_lost_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2], dtype="uint16"))
    np.save(tmp_path / "b.npy", np.array([1], dtype="uint16"))
    blocks = SpanUnit.blocks

    def greedy(unit: SpanUnit) -> object:
        bytearray(1 << 44 if unit.path.endswith("a.npy") else 1)
        return blocks(unit)

    monkeypatch.setattr(SpanUnit, "blocks", greedy)
    found, problems = read_all(DataOptions((str(tmp_path),)), MEASURE)
    assert found.items == 1
    assert [error.code for error in problems] == ["no-result"]


def test_files_that_change_while_they_are_read_are_no_crash(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000, dtype="uint16"))
    units = token_data.units_of(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:500])
    found = read.count_units(units, measure=MEASURE)
    assert isinstance(found, Found)
    assert [error.code for error in found.problems] == ["truncated"]


def test_units_and_what_they_find_can_be_sent(folder: Path) -> None:
    import pickle

    files, _ = find([str(folder)])
    units, failed = read.plan_files(files, dtype=None, required_rows=320)
    for each in units.values():
        assert pickle.loads(pickle.dumps(each)) == each
    found = read.count_units([unit for each in units.values() for unit in each], measure=MEASURE)
    assert pickle.loads(pickle.dumps(found)).statistics == found.statistics
    assert isinstance(pickle.loads(pickle.dumps(failed[0])), Unreadable)
    assert isinstance(pickle.loads(pickle.dumps(Lost("x"))), Lost)


def test_large_files_are_many_units_and_small_ones_share_one(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(3 * UNIT_BYTES)
    units = token_data.units_of(large, dtype="uint16", nbytes=UNIT_BYTES)
    assert len(units) == len(list(read.grouped(units, UNIT_BYTES))) == 3
    assert len(list(read.grouped(units, 2 * UNIT_BYTES))) == 2
    assert sum(unit.nbytes for unit in units) == 3 * UNIT_BYTES
    np.save(tmp_path / "small.npy", np.array([1]))
    small = token_data.units_of(tmp_path / "small.npy") * 10
    assert len(list(read.grouped(small, UNIT_BYTES))) == 1


@pytest.mark.parametrize(
    ("dtype", "most"), [("int8", 127), ("uint8", 255), ("uint16", 65535), ("int32", 2**31 - 1)]
)
def test_the_capacity_of_a_dtype(dtype: str, most: int) -> None:
    assert capacity(dtype) == most == np.iinfo(dtype).max


def test_memory_stays_bounded_whatever_the_size_of_the_file(tmp_path: Path) -> None:
    """A sparse file of a gibibyte: only its blocks are ever in memory."""
    import resource

    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = token_data.counted(large, MEASURE, dtype="uint16")
    assert found.count(0) == 1 << 29
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_parts_that_are_merged_while_others_are_counted_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        WRITERS["ids.npy"](tmp_path / f"{number}.npy", [[number, 7, 310]])
    options = DataOptions((str(tmp_path),))
    at_the_end, _ = read_all(options, MEASURE)
    monkeypatch.setattr(read, "LEAST_BYTES", 1)  # each file by itself
    monkeypatch.setattr(read, "_WAITING_BYTES", 1)
    assert read_all(options, MEASURE)[0] == at_the_end
    assert at_the_end.items == 15
