"""The checkpoints that the benchmarks build are ones that loaders accept."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks/checkpoint.py"
INPUT, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checkpoint", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizer(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    script.synthesise_tokenizer(file, tokens=1000)
    return file


def build(script: ModuleType, out: Path, tokenizer: Path, tables: str, **options: Any) -> Any:
    rows = script.rows_for(tokenizer)
    shape = script.Shape(rows, layers=2, hidden=64, intermediate=96, heads=4, kv_heads=2)
    return script.build(out, tokenizer, shape, script.Tables(tables), **options)


def tensor(made: Any, name: str) -> torch.Tensor:
    with safe_open(made.spans[name].file, "pt") as stored:
        read: torch.Tensor = stored.get_tensor(name)
    return read


@pytest.mark.parametrize("shard_bytes", [100_000, 10_000_000])
@pytest.mark.parametrize("tables", ["untied", "tied", "both"])
def test_transformers_loads_every_tensor(
    script: ModuleType, tokenizer: Path, tmp_path: Path, tables: str, shard_bytes: int
) -> None:
    made = build(script, tmp_path / "model", tokenizer, tables, shard_bytes=shard_bytes)
    assert (made.shards > 1) == (shard_bytes == 100_000)
    assert (made.path / "model.safetensors.index.json").exists() == (made.shards > 1)
    load: Any = AutoModelForCausalLM.from_pretrained
    model, info = load(made.path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == (tables != "untied")
    loaded = AutoTokenizer.from_pretrained(made.path)
    assert [loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id] == [0, 1, 2]


@pytest.mark.parametrize(("tables", "equal"), [("untied", False), ("both", True)])
def test_stored_tables_are_equal_only_under_a_tie(
    script: ModuleType, tokenizer: Path, tmp_path: Path, tables: str, equal: bool
) -> None:
    made = build(script, tmp_path / "model", tokenizer, tables)
    assert torch.equal(tensor(made, INPUT), tensor(made, OUTPUT)) is equal


def test_rows_are_finite_and_no_two_are_the_same(script: ModuleType, tokenizer: Path, tmp_path: Path) -> None:
    shape = script.Shape(rows=20_000, layers=1, hidden=64, intermediate=96, heads=4, kv_heads=2)
    assert shape.rows * shape.hidden * 2 > 2 * script.BLOCK_BYTES
    table = tensor(script.build(tmp_path / "model", tokenizer, shape, script.Tables.TIED), INPUT)
    assert table.isfinite().all()
    assert len({row.numpy().tobytes() for row in table.view(torch.int16)}) == len(table)


def test_spans_say_where_the_bytes_are(script: ModuleType, tokenizer: Path, tmp_path: Path) -> None:
    made = build(script, tmp_path / "model", tokenizer, "untied")
    span = made.spans[OUTPUT]
    stored = span.file.read_bytes()[span.start : span.start + span.nbytes]
    assert stored == tensor(made, OUTPUT).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("tables", ["untied", "tied", "both"])
def test_a_shape_comes_within_half_a_layer_of_the_asked_size(script: ModuleType, tables: str) -> None:
    asked = 4_500_000_000
    kind = script.Tables(tables)
    shape = script.shape_for(asked, 128_256, kind)
    layer = sum(part.nbytes for part in script._tensors(shape, kind) if ".layers.0." in part.name)
    assert abs(sum(part.nbytes for part in script._tensors(shape, kind)) - asked) <= layer / 2


def test_the_synthetic_tokenizer_has_as_many_tokens_as_asked(script: ModuleType, tokenizer: Path) -> None:
    loaded = Tokenizer.from_file(str(tokenizer))
    assert sorted(loaded.get_vocab().values()) == list(range(1000))
    assert loaded.decode(loaded.encode("Zwölf 狐狸 jump.").ids) == "Zwölf 狐狸 jump."
    assert script.rows_for(tokenizer) == 1024
    assert json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]["ab"] > 255
