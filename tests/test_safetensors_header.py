"""safetensors headers: what the library accepts is accepted, what it refuses is refused and named."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.torch import save

from tokaudit.contract import DTYPE_BITS, Damage, Shard, Tensor
from tokaudit.errors import Unreadable
from tokaudit.formats import limits
from tokaudit.formats.safetensors import DamagedWeights, read_header
from tokaudit.sources import open_source

Header = dict[str, object] | bytes


def file_bytes(header: Header, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: object, shape: object, *offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


class Folder:
    """Writes one file and reads its header."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, data: bytes) -> Shard:
        (self.path / "model.safetensors").write_bytes(data)
        with open_source(self.path).open("model.safetensors") as file:
            return read_header(file)

    def damage(self, data: bytes) -> DamagedWeights:
        with pytest.raises(DamagedWeights) as caught:
            self.read(data)
        assert caught.value.file == "model.safetensors"
        assert caught.value.message.isprintable()
        assert caught.value.hint
        return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("header"))


def test_a_header_gives_names_dtypes_shapes_and_places_in_the_file(folder: Folder) -> None:
    table = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
    data = save({"wte": table, "norm": torch.ones(3)}, metadata={"format": "pt"})
    shard = folder.read(data)
    assert shard.file == "model.safetensors"
    assert shard.size == len(data)
    assert shard.metadata == {"format": "pt"}
    assert set(shard.tensors) == {"wte", "norm"}
    tensor = shard.tensors["wte"]
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == ("BF16", (4, 3), 24)
    assert data[tensor.start : tensor.stop] == table.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    "data",
    [
        file_bytes({}),
        file_bytes(b' \n{"a": {"shape": [], "dtype": "F32", "data_offsets": [0, 4]}}  \n', bytes(4)),
        file_bytes({"__metadata__": None, "": entry("U8", [0], 0, 0)}),
        file_bytes({"a": entry("F32", [0, 2**63], 0, 0), "b": entry("I8", [1] * 100, 0, 1)}, bytes(1)),
        file_bytes({"a": entry("F4", [3, 2], 0, 3)}, bytes(3)),
        file_bytes({"b": entry("U8", [1], 1, 2), "a": entry("U8", [1], 0, 1)}, bytes(2)),
        file_bytes({"a": {**entry("U8", [1], 0, 1), "strides": [1], "order": {"C": None}}}, bytes(1)),
        file_bytes({"../../x\0\x1b[31m": entry("U8", [1], 0, 1)}, bytes(1)),
    ],
    ids=[
        "empty",
        "blanks",
        "no-metadata",
        "zero-size",
        "sub-byte",
        "unsorted",
        "more-fields",
        "hostile-name",
    ],
)
def test_unusual_headers_that_the_library_accepts_are_accepted(folder: Folder, data: bytes) -> None:
    assert set(folder.read(data).tensors) == {name for name, _ in deserialize(data)}


def test_tensors_come_in_the_order_of_their_bytes(folder: Folder) -> None:
    header: Header = {"c": entry("U8", [1], 2, 3), "a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 1, 2)}
    assert list(folder.read(file_bytes(header, bytes(3))).tensors) == ["a", "b", "c"]


ONE = entry("F32", [4], 0, 16)
BYTE = b'{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
TWICE = b'{"a":%b,"a":%b}' % (BYTE, BYTE)
DTYPE_TWICE = b'{"a":{"dtype":"F32","dtype":"U8","shape":[1],"data_offsets":[0,1]}}'


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "weights-truncated", "0 bytes in all"),
        (b"1234567", "weights-truncated", "7 bytes in all"),
        (bytes(4096), "weights-header", "expected a JSON object as header, found nothing (its length is 0)"),
        (b"\xff" * 8, "weights-header", "at most 100000000 bytes"),
        (file_bytes({"a": ONE}, bytes(16), length=1000), "weights-header", "the header ends at byte 1008"),
        (file_bytes({"a": ONE}, bytes(16), length=40), "weights-header", "not valid"),
        (file_bytes(b'{"\xff": 1}'), "weights-header", "expected UTF-8"),
        (file_bytes(b"\xef\xbb\xbf{}"), "weights-header", "expected a JSON object"),
        (file_bytes(b"[]"), "weights-header", 'expected a JSON object as header, found "[]"'),
        (file_bytes(b'{"a": ' + b"[" * 100_000), "weights-header", "not valid"),
        (file_bytes(b'{"\\ud800": 1}'), "weights-header", "surrogate"),
        (file_bytes(b'{"__metadata__": {"a": NaN}}'), "weights-header", "NaN"),
        (file_bytes({"a": 1}), "weights-header", '"a": expected an object, found 1'),
        (file_bytes(TWICE, bytes(1)), "weights-duplicate-key", '"/a" twice'),
        (file_bytes(DTYPE_TWICE, bytes(1)), "weights-duplicate-key", '"/a/dtype" twice'),
        (file_bytes({"__metadata__": {"a": 1}}), "weights-metadata", "expected texts only"),
        (file_bytes({"__metadata__": []}), "weights-metadata", "expected texts only"),
        (file_bytes({"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 20, 36)}, bytes(36)),
         "weights-offsets", '4 bytes in front of "b" belong to no tensor'),
        (file_bytes({"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 8, 24)}, bytes(24)),
         "weights-offsets", '"b" starts 8 bytes inside another tensor'),
        (file_bytes({"a": ONE}, bytes(15)), "weights-truncated", "the data ends at byte"),
        (file_bytes({"a": ONE}, bytes(16) + b"PK\x03\x04"), "weights-trailing", "4 bytes after the last"),
        *[(file_bytes({"a": entry("F32", [4], *offsets)}, bytes(16)), "weights-offsets", "data_offsets")
          for offsets in [(16, 0), (-16, 0), (0.0, 16.0), ("0", "16"), (0, 2**64), (0, 16, 16), (),
                          (False, 16)]],
        *[(file_bytes({"a": entry("F32", shape, 0, 16)}, bytes(16)), "weights-shape", '"a": ')
          for shape in [[2, 2**64 - 2], [2**32, 2**32], [2**62, 1], [2**65], [-2, -2], [4.0], [True, 4], "4",
                        None, [5], [2**63, 2**63, 0], [2**64, 0], [1] * 100_000 + [5]]],
        *[(file_bytes({"a": entry("F32", shape, 0, 0)}), "weights-shape", "is impossible")
          for shape in [[2**63, 2**63, 0], [2**64, 0], [0, 2**64]]],
        *[(file_bytes({"a": entry(dtype, [4], 0, 16)}, bytes(16)), "weights-dtype", "expected a dtype")
          for dtype in ["F17", "f32", 4, "", "torch.float32", None, ["F32"]]],
        (file_bytes({"a": entry("F4", [3], 0, 1)}, bytes(1)), "weights-shape", "F4 of shape [3]"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_cause(folder: Folder, data: bytes, code: str, words: str) -> None:
    error = folder.damage(data)
    assert (error.damage, error.code) == (Damage.BROKEN, code)
    assert words in error.message
    assert len(error.message) < 200


def zipped() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 600)
    return buffer.getvalue()


def torch_saved(**options: bool) -> bytes:
    buffer = BytesIO()
    torch.save({"a": torch.zeros(300)}, buffer, **options)
    return buffer.getvalue()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 4976698672\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "a web page (HTML)"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML"),
        (b'{"error":"Repository not found"}', "JSON text, as a server's error message is"),
        (b"Entry not found", 'the text "Entry not found"'),
        (zipped(), "a zip archive, as torch.save writes it"),
        (torch_saved(), "a zip archive, as torch.save writes it"),
        (torch_saved(_use_new_zipfile_serialization=False), "a pickle, as torch.save writes it"),
        (pickle.dumps({"a": [1.5] * 100}, protocol=2), "a pickle"),
        (pickle.dumps({"a": [1.5] * 100}, protocol=4), "a pickle"),
        (b"GGUF\x03\0\0\0" + bytes(100), "a GGUF file"),
        (gzip.compress(np.random.default_rng(0).bytes(600_000), mtime=0), "a gzip archive"),
        (b"\x93NUMPY\x01\0v\0" + bytes(100), "a NumPy array"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_name(folder: Folder, data: bytes, words: str) -> None:
    error = folder.damage(data)
    assert (error.damage, error.code) == (Damage.NOT_WEIGHTS, "not-safetensors")
    assert f"expected safetensors, found {words}" in error.message


def test_a_git_lfs_pointer_says_how_to_fetch_the_file(folder: Folder) -> None:
    error = folder.damage(POINTER)
    assert (error.damage, error.code) == (Damage.NOT_WEIGHTS, "lfs-pointer")
    assert "git lfs pull" in error.hint


@pytest.mark.parametrize("length", [0x3C, 0x5B, 0x7B, 0x0280, 0x0480, 0x8B1F])
def test_a_broken_header_is_not_mistaken_for_another_kind_by_the_bytes_of_its_length(
    folder: Folder, length: int
) -> None:
    """The lengths begin like XML, JSON, a pickle and a gzip archive."""
    assert folder.damage(file_bytes(b"x" * length)).damage is Damage.BROKEN


def test_a_header_at_the_limit_is_read_and_one_byte_more_is_not(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file_bytes({"a": ONE}, bytes(16))
    length = len(data) - 8 - 16
    monkeypatch.setattr(limits, "SAFETENSORS_HEADER_BYTES", length)
    assert list(folder.read(data).tensors) == ["a"]
    monkeypatch.setattr(limits, "SAFETENSORS_HEADER_BYTES", length - 1)
    assert folder.damage(data).code == "weights-header"


def test_only_the_header_of_a_sparse_tebibyte_is_read(tmp_path: Path) -> None:
    header = file_bytes({"wte": entry("F32", [2**36, 4], 0, 2**40)})
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 2**40)
    with open_source(tmp_path).open("model.safetensors") as opened:
        assert read_header(opened).tensors["wte"].shape == (2**36, 4)


def test_a_valid_file_cut_anywhere_is_refused(shared_folder: Folder) -> None:
    data = save({"a": torch.ones(3), "b": torch.ones(2, 2)})
    for length in range(len(data)):
        assert shared_folder.damage(data[:length]).damage is Damage.BROKEN


SIZES = st.integers(0, 3)
DTYPES = st.sampled_from(sorted(DTYPE_BITS))


@st.composite
def headers(draw: st.DrawFn) -> tuple[dict[str, object], int]:
    """A header whose tensors lie back to back, with the length of its data."""
    header: dict[str, object] = {}
    end = 0
    for name in draw(st.lists(st.text(max_size=5), max_size=4, unique=True)):
        dtype, shape = draw(DTYPES), draw(st.lists(SIZES, max_size=3))
        start, end = end, end + int(np.prod(shape, dtype=int)) * DTYPE_BITS[dtype] // 8
        header[name] = entry(dtype, shape, start, end)
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2))
    return header, end


ODD = st.sampled_from([-1, 0, 1, 2, 2.0, 2**63, 2**64, None, True, "F32", "f32", [], [0], [0, 1], {}, 10**41])


@st.composite
def mutated_files(draw: st.DrawFn) -> bytes:
    header, length = draw(headers())
    data = bytes(length)
    names = [name for name in header if name != "__metadata__"]
    if names and draw(st.booleans()):
        fields = header[draw(st.sampled_from(names))]
        assert isinstance(fields, dict)
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets", "extra"]))
        value = fields.get(field)
        if isinstance(value, list) and value and draw(st.booleans()):
            value[draw(st.integers(0, len(value) - 1))] = draw(ODD)
        else:
            fields[field] = draw(ODD)
    written = bytearray(file_bytes(header, data + bytes(draw(st.sampled_from([0, 0, 0, 1])))))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        written[draw(st.integers(0, len(written) - 1))] = draw(st.integers(0, 255))
    return bytes(written[: len(written) - draw(st.sampled_from([0, 0, 0, 1]))])


def library_names(data: bytes) -> set[str] | None:
    try:
        return {name for name, _ in deserialize(data)}
    except SafetensorError:
        return None


def stricter_than_the_library(error: Unreadable) -> bool:
    """The refusals that the module's docstring announces."""
    return error.code == "weights-duplicate-key" or "40 digits" in error.message


@given(mutated_files() | st.binary(max_size=64).map(lambda tail: struct.pack("<Q", len(tail)) + tail))
@example(file_bytes({"a": {**ONE, "extra": 10**41}}, bytes(16)))
@settings(max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_generated_files_are_judged_as_the_library_judges_them(shared_folder: Folder, data: bytes) -> None:
    expected = library_names(data)
    try:
        found = set(shared_folder.read(data).tensors)
    except DamagedWeights as error:
        assert expected is None or stricter_than_the_library(error)  # noqa: PT017
    else:
        assert found == expected


def test_a_hundred_thousand_tensors_are_all_read(folder: Folder) -> None:
    count = 100_000
    header: Header = {f"layers.{i}.weight": entry("U8", [1], i, i + 1) for i in range(count)}
    tensors = folder.read(file_bytes(header, bytes(count))).tensors
    assert len(tensors) == count
    assert isinstance(tensors["layers.99999.weight"], Tensor)
