"""Two tables byte for byte: how many rows differ, which, by how much, in bounded memory."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tokaudit.contract import TableComparison, Tensor
from tokaudit.errors import FactMissing
from tokaudit.formats import compare, limits
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.formats.compare import ROWS_LISTED, compare_tables
from tokaudit.formats.safetensors import read_header
from tokaudit.sources import Source, open_source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def stored(folder: Path, left: torch.Tensor, right: torch.Tensor) -> tuple[Source, Tensor, Tensor]:
    save_file({"left": left.contiguous(), "right": right.contiguous()}, folder / "model.safetensors")
    source = open_source(folder)
    tensors = read_checkpoint(source).tensors
    return source, tensors["left"], tensors["right"]


def compared(
    folder: Path, left: torch.Tensor, right: torch.Tensor, *, stop_early: bool = False
) -> TableComparison:
    source, first, second = stored(folder, left, right)
    return compare_tables(source, first, second, stop_early=stop_early)


DECODED = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def test_equal_tables_are_equal(folder: Path) -> None:
    table = torch.randn(1000, 7)
    result = compared(folder, table, table.clone())
    assert result.equal
    assert (result.first, result.max_difference, result.exhaustive) == ((), None, True)


@given(
    rows=st.integers(1, 40),
    hidden=st.integers(1, 9),
    changed=st.sets(st.integers(0, 39)),
    piece=st.sampled_from([1, 7, 64, 2**20]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_rows_that_differ_are_counted_and_the_first_ones_listed(
    folder: Path, rows: int, hidden: int, changed: set[int], piece: int
) -> None:
    """The piece sizes put several rows into a piece, and several pieces into a row."""
    left = torch.arange(rows * hidden, dtype=torch.float32).reshape(rows, hidden)
    right = left.clone()
    expected = sorted(row for row in changed if row < rows)
    for row in expected:
        right[row, row % hidden] += 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "PIECE_BYTES", piece)
        result = compared(folder, left, right)
    assert result.different_rows == len(expected)
    assert result.first == tuple(expected[:ROWS_LISTED])
    if expected and hidden * 4 <= piece:
        assert result.max_difference == 0.5


@pytest.mark.parametrize("dtype", DECODED)
def test_the_largest_difference_is_that_of_the_decoded_values(folder: Path, dtype: torch.dtype) -> None:
    width = torch.tensor([], dtype=dtype).element_size()
    torch.manual_seed(0)
    left = torch.randint(0, 256, (3, 512 * width), dtype=torch.uint8).view(dtype)
    right = torch.randint(0, 256, (3, 512 * width), dtype=torch.uint8).view(dtype)
    difference = (left.double() - right.double()).abs()
    assert compared(folder, left, right).max_difference == difference[~difference.isnan()].max().item()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_8_bit_float_is_decoded_as_torch_decodes_it(folder: Path, dtype: torch.dtype) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(dtype)
    for value in range(256):
        row = values[value].reshape(1, 1)
        result = compared(folder, row, torch.zeros(1, 1, dtype=torch.uint8).view(dtype))
        expected = abs(row.double().item())
        assert result.max_difference == (None if math.isnan(expected) or result.equal else expected)


def test_values_without_a_decoder_are_compared_all_the_same(folder: Path) -> None:
    result = compared(folder, torch.zeros(4, 2, dtype=torch.int8), torch.ones(4, 2, dtype=torch.int8))
    assert (result.different_rows, result.max_difference) == (4, None)


def test_nan_takes_no_part_in_the_difference_and_equal_bytes_are_equal(folder: Path) -> None:
    table = torch.tensor([[math.nan, 1.0]])
    assert compared(folder, table, table.clone()).equal
    assert compared(folder, table, torch.tensor([[math.nan, 3.0]])).max_difference == 2.0
    assert compared(folder, table, torch.tensor([[0.0, 1.0]])).max_difference == 0.0


def test_stopping_early_tells_one_row_and_that_it_stopped(folder: Path) -> None:
    result = compared(folder, torch.zeros(9, 2), torch.ones(9, 2), stop_early=True)
    assert (result.different_rows, result.first, result.exhaustive) == (1, (0,), False)
    assert compared(folder, torch.zeros(9, 2), torch.zeros(9, 2), stop_early=True).equal


def test_tables_of_two_dtypes_differ_in_every_row(folder: Path) -> None:
    result = compared(folder, torch.ones(6, 2), torch.ones(6, 2, dtype=torch.bfloat16))
    assert (result.different_rows, result.first, result.max_difference) == (6, (), None)


def test_tables_of_other_shapes_are_not_compared(folder: Path) -> None:
    with pytest.raises(FactMissing, match="left and right have different shapes"):
        compared(folder, torch.ones(6, 2), torch.ones(4, 3))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_tables_without_values_are_equal(folder: Path, shape: tuple[int, ...]) -> None:
    assert compared(folder, torch.ones(shape), torch.ones(shape)).equal


def test_a_table_of_one_dimension_has_one_value_per_row(folder: Path) -> None:
    assert compared(folder, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).first == (1,)
    assert compared(folder, torch.tensor(1.0), torch.tensor(2.0)).different_rows == 1


def test_rows_that_end_inside_a_byte_are_not_compared(folder: Path) -> None:
    source, left, right = stored(folder, torch.zeros(3, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8))
    left, right = (replace(tensor, dtype="F4", shape=(2, 3)) for tensor in (left, right))
    with pytest.raises(FactMissing, match="do not end at whole bytes"):
        compare_tables(source, left, right)


def test_a_table_over_the_limit_is_not_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TABLE_BYTES_COMPARED", 63)
    with pytest.raises(FactMissing, match="left holds 64 B, too much to compare"):
        compared(folder, torch.ones(8, 2), torch.ones(8, 2))


def test_tables_may_lie_in_two_files(folder: Path) -> None:
    save_file({"left": torch.ones(4, 2)}, folder / "a.safetensors")
    save_file({"other": torch.ones(3), "right": torch.ones(4, 2)}, folder / "b.safetensors")
    source = open_source(folder)
    shards = []
    for name in ("a.safetensors", "b.safetensors"):
        with source.open(name) as file:
            shards.append(read_header(file))
    assert compare_tables(source, shards[0].tensors["left"], shards[1].tensors["right"]).equal


MEASURE = """
import resource, sys
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.formats.compare import compare_tables
from tokaudit.sources import open_source
source = open_source(sys.argv[1])
tensors = read_checkpoint(source).tensors
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = compare_tables(source, tensors["left"], tensors["right"])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(result.different_rows, grown // (1024 if sys.platform == "linux" else 1024**2))
"""


def test_memory_stays_small_for_large_tables_that_differ_everywhere(tmp_path: Path) -> None:
    stored(tmp_path, torch.zeros(2**22, 8), torch.ones(2**22, 8))
    output = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    rows, megabytes = map(int, output.split())
    assert rows == 2**22
    assert megabytes < 32
