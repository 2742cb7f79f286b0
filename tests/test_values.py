"""What `--deep` makes of the rows, against plain torch and on models with planted rows."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import base, build, changed
from safetensors.torch import save_file

import tokaudit
from tokaudit.contract import Contract, Indicators, Missing, Options, RowClass, TableValues, reserved_name
from tokaudit.errors import FactMissing
from tokaudit.load import load
from tokaudit.reporters import View, terminal
from tokaudit.reporters import json as json_reporter
from tokaudit.sources import open_source
from tokaudit.values.stored import DTYPES, stored

INPUT, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


def llama(folder: Path, tables: dict[str, torch.Tensor], config: dict[str, Any] | None = None) -> Contract:
    """The base model with other tables, read with --deep."""
    rows, hidden = tables[INPUT].shape
    fields = {"vocab_size": rows, "hidden_size": hidden, "intermediate_size": hidden, **(config or {})}
    out = build(changed(base("llama"), {"json": {"config.json": fields}}), folder / "model")
    norm = torch.ones(hidden, dtype=tables[INPUT].dtype)
    save_file({**tables, "model.norm.weight": norm}, out / "model.safetensors", metadata={"format": "pt"})
    return load(out, options=Options(deep=True))


def values(contract: Contract, name: str) -> TableValues:
    return next(table for table in contract.values.tables if table.table.name == name)


def noise(rows: int, hidden: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, hidden, generator=torch.Generator().manual_seed(seed))


@st.composite
def tables(draw: st.DrawFn) -> torch.Tensor:
    """Tables of 320 and more rows with odd ones among them: zero, copied, tiny, huge, not finite."""
    hidden = draw(st.sampled_from([8, 16, 33]))
    dtype = draw(st.sampled_from(list(NAMES)))
    table = noise(320 + draw(st.integers(0, 40)), hidden, draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(0, 8))):
        row, other = draw(st.integers(0, 319)), draw(st.integers(0, 319))
        what = draw(st.sampled_from(["zero", "copy", "nan", "inf", "tiny", "huge", "negative zero"]))
        if what == "zero":
            table[row] = 0
        elif what == "negative zero":
            table[row] = -0.0
        elif what == "copy":
            table[row] = table[other]
        elif what == "nan":
            table[row, draw(st.integers(0, hidden - 1))] = torch.nan
        elif what == "inf":
            table[row, 0] = -torch.inf
        else:
            table[row] *= 1e-30 if what == "tiny" else 1e20
    return table.to(dtype)


@settings(max_examples=25, deadline=None)
@given(table=tables())
def test_every_row_is_measured_as_plain_torch_does(
    table: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    contract = llama(tmp_path_factory.mktemp("values"), {INPUT: table, OUTPUT: noise(*table.shape)})
    found = values(contract, INPUT)
    exact = table.double()
    finite = exact.isfinite().all(1)
    norms = torch.linalg.vector_norm(exact, dim=1)
    norms[~finite] = torch.nan
    torch.testing.assert_close(
        torch.tensor(found.norms, dtype=torch.float64), norms, rtol=1e-5, atol=0, equal_nan=True
    )
    largest = exact.abs().amax(1)
    largest[~finite] = torch.nan
    assert array("d", largest.nan_to_num(nan=-1).tolist()) == array(
        "d", [-1 if value != value else value for value in found.largest]
    )
    counts = (~exact.isfinite()).sum(1)
    assert found.non_finite == {id: int(counts[id]) for id in range(len(table)) if counts[id]}
    zero = (exact == 0).all(1).nonzero().flatten().tolist()
    assert found.having(RowClass.ZERO) == zero
    assert found.identical == groups(table, {*zero, *found.non_finite})


def groups(table: torch.Tensor, excepted: set[int]) -> tuple[tuple[int, ...], ...]:
    """Rows of equal bytes, the slow way."""
    by_bytes: dict[bytes, list[int]] = {}
    for id, row in enumerate(table.view(torch.uint8)):
        if id not in excepted and row.numel() >= 16:
            by_bytes.setdefault(bytes(row.tolist()), []).append(id)
    return tuple(sorted(tuple(ids) for ids in by_bytes.values() if len(ids) > 1))


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
def test_every_dtype_that_tables_are_stored_in_is_read(dtype: torch.dtype, tmp_path: Path) -> None:
    table = noise(320, 16).to(dtype)
    contract = llama(tmp_path, {INPUT: table, OUTPUT: noise(320, 16, 1).to(dtype)})
    found = values(contract, INPUT)
    assert found.table.tensor.dtype == NAMES[dtype]
    assert NAMES[dtype] in DTYPES
    assert found.norms[7] == pytest.approx(float(table[7].double().norm()), rel=1e-5)


def test_a_table_of_many_chunks_is_read_whole_by_all_threads(tmp_path: Path) -> None:
    table = noise(3001, 1024)
    table[2999] = table[3]
    table[1500, 5] = torch.nan
    contract = llama(tmp_path, {INPUT: table, OUTPUT: table.flip(0).contiguous()})
    found = values(contract, INPUT)
    whole = torch.linalg.vector_norm(table.double(), dim=1)
    torch.testing.assert_close(
        torch.tensor(found.norms, dtype=torch.float64)[torch.arange(3001) != 1500],
        whole[torch.arange(3001) != 1500],
        rtol=1e-5,
        atol=0,
    )
    assert found.identical == ((3, 2999),)
    assert found.non_finite == {1500: 1}


def test_values_need_deep(tmp_path: Path) -> None:
    contract = load(build(base("llama"), tmp_path / "model"))
    with pytest.raises(FactMissing, match="needs --deep"):
        contract.values  # noqa: B018


def test_a_packed_table_is_named_with_the_reason(tmp_path: Path) -> None:
    change = {
        "json": {
            "config.json": {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
        },
        "safetensors": {"model.safetensors": {OUTPUT: {"dtype": "I8", "shape": [320, 8]}}},
    }
    contract = load(build(changed(base("llama"), change), tmp_path / "model"), options=Options(deep=True))
    assert [table.table.name for table in contract.values.tables] == [INPUT]
    assert list(contract.values.unread) == [OUTPUT]
    assert contract.values.unread[OUTPUT]


def test_rows_are_classed_by_what_they_are_for(tmp_path: Path) -> None:
    table = noise(384, 8)
    found = values(llama(tmp_path, {INPUT: table, OUTPUT: noise(384, 8, 1)}), INPUT)
    assert found.class_of(100) & RowClass.IN_USE
    assert found.having(RowClass.RESERVED) == list(range(312, 320))
    assert found.having(RowClass.PADDING) == list(range(320, 384))
    assert sum(found.counts[purpose] for purpose in list(RowClass)[:4]) == 384


def test_a_reserved_token_that_something_refers_to_is_in_use(tmp_path: Path) -> None:
    tables = {INPUT: noise(320, 8), OUTPUT: noise(320, 8, 1)}
    config = {"eos_token_id": [311, 315]}
    found = values(llama(tmp_path, tables, config), INPUT)
    assert found.class_of(315) == RowClass.IN_USE
    assert found.class_of(314) == RowClass.RESERVED


def test_a_reserved_token_that_is_only_suppressed_is_not_in_use(tmp_path: Path) -> None:
    tables = {INPUT: noise(320, 8), OUTPUT: noise(320, 8, 1)}
    found = values(llama(tmp_path, tables, {"suppress_tokens": [315]}), INPUT)
    assert found.class_of(315) == RowClass.RESERVED


def test_norms_are_judged_by_rows_in_use_that_are_finite_and_not_zero(tmp_path: Path) -> None:
    table = noise(320, 8)
    table[7] = 0
    table[8, 2] = torch.nan
    found = values(llama(tmp_path, {INPUT: table, OUTPUT: noise(320, 8, 1)}), INPUT)
    assert len(found.judged) == 310
    assert found.judged[0] > 0


def test_ids_without_a_token_are_holes(tmp_path: Path) -> None:
    change = {"tokenizer": {"remove": [200, 201]}, "safetensors": {}}
    out = build(changed(base("llama"), change), tmp_path / "model")
    found = values(load(out, options=Options(deep=True)), INPUT)
    assert found.having(RowClass.HOLE) == [200, 201]


def test_without_a_tokenizer_no_row_has_a_purpose(tmp_path: Path) -> None:
    description = base("llama")
    del description["tokenizer"]
    found = values(load(build(description, tmp_path / "model"), options=Options(deep=True)), INPUT)
    assert set(found.classes) == {0}
    assert found.class_of(0).words == "unknown"


def test_rows_without_a_purpose_are_found_by_what_is_odd_about_them(tmp_path: Path) -> None:
    description = base("llama")
    del description["tokenizer"]
    description["safetensors"]["model.safetensors"][INPUT]["fill"] = {"rows": {"7": "zeros"}}
    found = values(load(build(description, tmp_path / "model"), options=Options(deep=True)), INPUT)
    assert found.having(RowClass.ZERO) == [7]
    assert found.having(RowClass.ZERO, within=RowClass.IN_USE) == []
    assert len(found.judged) == 319


@pytest.mark.parametrize(
    "content",
    [
        "<|reserved_special_token_7|>", "[unused3]", "<unused12>", "<|reserved_3|>", "<reserved_102>",
        "<|extra_0|>", "<|dummy_85|>", "<|placeholder1|>", "<SPECIAL_12>", "[control_8]", "madeupword0001",
        "[PAD151645]", "<unk_2>", "<|unused_1|>",
    ],
)  # fmt: skip
def test_names_that_keep_a_place_are_recognised(content: str) -> None:
    assert reserved_name(content)


@pytest.mark.parametrize(
    "content",
    ["<|ctl_0|>", "<|class_0|>", "<pad>", "[PAD]", "<extra_id_0>", "unused", "<0x0A>", "<|im_start|>",
     "reserved", "<unk>", "<|image_pad|>", "[INST]", "<s>", "<think>"],
)  # fmt: skip
def test_names_of_working_tokens_keep_no_place(content: str) -> None:
    assert not reserved_name(content)


PLANTED = [40, 41, 150, 200, 303]


def trained_beside_unused(hidden: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Input and output tables in which the planted rows went the way of rows that are never a target.

    Training leaves the input rows of such tokens as they began, and pushes their output rows together.
    """
    first = noise(384, hidden) * 0.02
    unused = [*PLANTED, *range(312, 384)]
    given = first.clone()
    trained = torch.ones(384, dtype=torch.bool)
    trained[unused] = False
    given[trained] += noise(384, hidden, 1)[trained] * 0.1
    away = noise(1, hidden, 2)[0]
    logits = noise(384, hidden, 3)
    logits[unused] = away + 0.1 * logits[unused]
    return given, logits


def test_planted_rows_are_found_in_an_untied_model_by_norm_and_by_direction(tmp_path: Path) -> None:
    given, logits = trained_beside_unused()
    contract = llama(tmp_path, {INPUT: given, OUTPUT: logits})
    for name in (INPUT, OUTPUT):
        found = values(contract, name)
        assert found.having(RowClass.UNDER_TRAINED, within=RowClass.IN_USE) == PLANTED
    assert "like the 72 unused rows" in values(contract, INPUT).signs[40]
    assert "to 72 unused rows" in values(contract, OUTPUT).signs[40]


def test_planted_rows_are_found_in_a_tied_model_by_direction_alone(tmp_path: Path) -> None:
    _, logits = trained_beside_unused()
    logits[100] *= 0.05  # short, and trained
    found = values(llama(tmp_path, {INPUT: logits}, {"tie_word_embeddings": True}), INPUT)
    assert found.having(RowClass.UNDER_TRAINED, within=RowClass.IN_USE) == PLANTED


def test_without_known_unused_rows_only_far_smaller_norms_are_reported(tmp_path: Path) -> None:
    given = noise(312, 64) * 0.1
    given[PLANTED] *= 0.1
    description = base("llama")
    description["tokenizer"]["added"] = description["tokenizer"]["added"][:8]
    out = build(
        changed(description, {"json": {"config.json": {"vocab_size": 312, "hidden_size": 64}}}),
        tmp_path / "m",
    )
    save_file({INPUT: given, OUTPUT: noise(312, 64, 1)}, out / "model.safetensors", metadata={"format": "pt"})
    contract = load(out, options=Options(deep=True))
    assert values(contract, INPUT).having(RowClass.UNDER_TRAINED) == PLANTED
    assert isinstance(values(contract, OUTPUT).indicators_or, Missing)


def test_rows_that_nothing_tells_apart_are_not_reported(tmp_path: Path) -> None:
    contract = llama(tmp_path, {INPUT: noise(384, 64), OUTPUT: noise(384, 64, 1)})
    for name in (INPUT, OUTPUT):
        assert values(contract, name).counts[RowClass.UNDER_TRAINED] == 0
        assert isinstance(values(contract, name).indicators_or, Missing)


def test_padding_that_repeats_the_last_row_says_nothing_about_it(tmp_path: Path) -> None:
    logits = noise(384, 64)
    logits[312:] = logits[311]  # Megatron's converter fills with the last row
    found = values(llama(tmp_path, {INPUT: noise(384, 64, 1), OUTPUT: logits}), OUTPUT)
    assert isinstance(found.indicators_or, Missing)
    assert found.counts[RowClass.UNDER_TRAINED] == 0


def test_the_indicators_are_those_of_the_publication(tmp_path: Path) -> None:
    """Against the formulas, written down plainly; mean and component are of the rows in use, all sampled."""
    _, logits = trained_beside_unused()
    logits += 1  # tables of real models have one direction in common
    contract = llama(tmp_path, {INPUT: noise(384, 64), OUTPUT: logits})
    found = values(contract, OUTPUT).indicators_or
    assert isinstance(found, Indicators)
    rows = logits.double()
    used, unused = rows[:312], rows[312:]
    c = unused.mean(0)
    mean = used.mean(0)
    component = torch.linalg.svd(used, full_matrices=False).Vh[0]

    def cosine_distance(some: torch.Tensor, to: torch.Tensor) -> list[float]:
        return (1 - torch.nn.functional.cosine_similarity(some, to[None])).tolist()

    without = rows - (rows @ component)[:, None] * component
    assert found.unused == 72
    assert list(found.cosine) == pytest.approx(cosine_distance(rows, c), abs=1e-5)
    assert list(found.centred) == pytest.approx(cosine_distance(rows - mean, c - mean), abs=1e-5)
    assert list(found.without_component) == pytest.approx(
        cosine_distance(without, c - (c @ component) * component), abs=1e-4
    )
    assert list(found.distance) == pytest.approx((rows - c).norm(dim=1).tolist(), abs=1e-3)


def test_added_tokens_that_an_initialiser_wrote_are_told_apart_from_trained_ones(tmp_path: Path) -> None:
    table = noise(320, 64) + 0.5
    table[308] = table[:304].mean(0)
    table[309] = noise(1, 64, 5)[0] * 0.02
    contract = llama(
        tmp_path, {INPUT: table, OUTPUT: noise(320, 64, 1)}, {"initializer_range": 0.02, "vocab_size": 320}
    )
    signs = values(contract, INPUT).signs
    assert signs[308] == "still the mean of the table"
    assert "still what the initialiser drew" in signs[309]
    assert 310 not in signs


def test_added_tokens_have_their_nearest_tokens(tmp_path: Path) -> None:
    table = noise(320, 64)
    table[310] = 3 * table[42] + 0.01 * noise(1, 64, 7)[0]
    found = values(llama(tmp_path, {INPUT: table, OUTPUT: noise(320, 64, 1)}), INPUT)
    best, *_ = found.new[310]
    assert best.id == 42
    assert best.cosine == pytest.approx(1, abs=1e-3)
    assert all(other.id not in range(312, 320) for other in found.new[310])


def test_tables_that_should_be_one_are_measured_row_by_row(tmp_path: Path) -> None:
    table = noise(320, 8)
    other = table.clone()
    other[5] *= 2
    other[6] += 0.001
    contract = llama(tmp_path, {INPUT: table, OUTPUT: other}, {"tie_word_embeddings": True})
    (found,) = contract.values.divergences
    assert found.relative[5] == pytest.approx(0.5, rel=1e-5)
    assert found.distances[5] == pytest.approx(float(table[5].norm()), rel=1e-5)
    assert found.ordered[-1] == 5
    assert found.relative[found.ordered[0]] == 0


def test_the_finding_on_tied_tables_that_differ_says_how_far_they_are_apart(tmp_path: Path) -> None:
    table = noise(320, 8)
    other = table.clone()
    other[5] *= 2
    llama(tmp_path, {INPUT: table, OUTPUT: other}, {"tie_word_embeddings": True})
    (plain,) = tokaudit.check(tmp_path / "model", select=["TA201"]).findings
    (deep,) = tokaudit.check(tmp_path / "model", select=["TA201"], deep=True).findings
    assert "apart" not in plain.message
    assert "apart by 0 of their norm in the median and by at most 0.5, in row 5" in deep.message


def test_rows_that_are_not_finite_have_no_distance(tmp_path: Path) -> None:
    table = noise(320, 8)
    other = table.clone()
    other[0, 3] = torch.nan
    other[5] *= 2
    llama(tmp_path, {INPUT: table, OUTPUT: other}, {"tie_word_embeddings": True})
    (finding,) = tokaudit.check(tmp_path / "model", select=["TA201"], deep=True).findings
    assert "by at most 0.5, in row 5" in finding.message
    llama(tmp_path, {INPUT: table, OUTPUT: other * torch.nan}, {"tie_word_embeddings": True})
    (finding,) = tokaudit.check(tmp_path / "model", select=["TA201"], deep=True).findings
    assert "apart" not in finding.message


def test_equal_tied_tables_are_read_once(tmp_path: Path) -> None:
    table = noise(320, 8)
    contract = llama(tmp_path, {INPUT: table, OUTPUT: table.clone()}, {"tie_word_embeddings": True})
    assert [found.table.name for found in contract.values.tables] == [INPUT]
    assert contract.values.divergences == ()


def test_percentiles_count_the_rows_in_use(tmp_path: Path) -> None:
    table = noise(384, 8)
    table[:320] *= torch.linspace(1, 2, 320)[:, None] / table[:320].norm(dim=1, keepdim=True)
    found = values(llama(tmp_path, {INPUT: table, OUTPUT: noise(384, 8, 1)}), INPUT)
    assert found.percentile(0) == 0
    assert found.percentile(311) == pytest.approx(100 * 311 / 312)
    assert found.worst()[0] not in range(312, 384)


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    out = build(base("llama"), tmp_path / "model")
    contract = load(out)
    table = stored(open_source(out), contract.embeddings.input)
    file = out / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(Exception, match="ends at byte"):
        table.scan(lambda first, chunk, raw: None)


def test_a_header_of_too_many_rows_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    rows = 2**25
    header = json.dumps(
        {INPUT: {"dtype": "F8_E4M3", "shape": [rows, 8], "data_offsets": [0, rows * 8]}}
    ).encode()
    out = build(base("llama"), tmp_path / "model")
    with open(out / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + rows * 8)
    contract = load(out, options=Options(deep=True))
    assert contract.values.unread == {INPUT: f"its shape [{rows}, 8] is beyond what is read"}


def test_the_report_carries_the_values_and_every_format_shows_them(tmp_path: Path) -> None:
    out = build(base("llama"), tmp_path / "model")
    report = tokaudit.check(out, deep=True)
    document = json.loads(json_reporter.render([report], View()))
    given, logits = document["facts"]["values"]["tables"]
    assert (given["tensor"], logits["tensor"]) == (INPUT, OUTPUT)
    assert given["classes"]["reserved"] == 8
    assert list(given["norms"]) == ["0", "0.01", "0.05", "0.25", "0.5", "0.75", "0.95", "0.99", "1"]
    schema = Path(json_reporter.__file__).with_name("report.schema.json").read_text("utf-8")
    jsonschema.validate(document, json.loads(schema))
    lines = terminal.render([report], View()).splitlines()
    assert sum("norms" in line and "median" in line for line in lines) == 2
    plain = terminal.render([report], View(unicode=False))
    assert plain.isascii()
    assert tokaudit.check(out).summary.values is None


def test_a_histogram_counts_every_row_once(tmp_path: Path) -> None:
    found = values(llama(tmp_path, {INPUT: noise(320, 8), OUTPUT: noise(320, 8, 1)}), INPUT)
    counts = found.histogram(10)
    assert len(counts) == 10
    assert sum(counts) == len(found.judged) == 312
    assert counts[0] > 0
    assert counts[-1] > 0
