"""What cannot be done right is refused: one clear line, exit code 2, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models import Description, base, build, changed
from resizing import EMBED, HEAD, another, data, in_shards, predictor, tables, tensor, untied

from tokaudit.cli import main
from tokaudit.resize import NewToken, Refused, Request, plan_resize, resize

ASKED = Request(tokens=(NewToken("<|new|>"),))
LLAMA = {
    key: value
    for key, value in base("llama")["json"]["config.json"].items()
    if key not in ("architectures", "model_type")
}


def llama(tensors: Description, **quantization: Any) -> Description:
    config = {**LLAMA, "model_type": "llama"}
    if quantization:
        config["quantization_config"] = quantization
    return another("LlamaForCausalLM", config, tensors)


def mllama() -> Description:
    text = {"model_type": "mllama_text_model", "vocab_size": 320, "hidden_size": 8}
    config = {"model_type": "mllama", "text_config": text}
    given, out = "language_model.model.embed_tokens.weight", "language_model.lm_head.weight"
    return another("MllamaForConditionalGeneration", config, {given: tensor(328, 8), out: tensor(320, 8)})


def moshi() -> Description:
    config = {"model_type": "moshi", "vocab_size": 320, "hidden_size": 8}
    return another("MoshiForCausalLM", config, {EMBED: tensor(321, 8), HEAD: tensor(320, 8)})


def musicgen() -> Description:
    config = {
        "model_type": "musicgen",
        "text_encoder": {"model_type": "t5", "vocab_size": 320, "d_model": 8},
        "decoder": {"model_type": "musicgen_decoder", "vocab_size": 64, "hidden_size": 8},
    }
    tensors = {
        "text_encoder.shared.weight": tensor(320, 8),
        "decoder.lm_heads.0.weight": tensor(64, 8),
        "decoder.model.decoder.embed_tokens.0.weight": tensor(65, 8),
    }
    return another("MusicgenForConditionalGeneration", config, tensors)


def idefics() -> Description:
    config = {"model_type": "idefics", "vocab_size": 320, "additional_vocab_size": 2, "hidden_size": 8}
    tensors = {
        EMBED: tensor(320, 8),
        HEAD: tensor(320, 8),
        "model.embed_tokens.additional_embedding.weight": tensor(2, 8),
        "lm_head.additional_fc.weight": tensor(2, 8),
    }
    return another("IdeficsForVisionText2Text", config, tensors)


def marian() -> Description:
    config = {
        "model_type": "marian",
        "vocab_size": 320,
        "decoder_vocab_size": 330,
        "share_encoder_decoder_embeddings": False,
        "d_model": 8,
        "decoder_start_token_id": 306,
    }
    tensors = {
        "model.encoder.embed_tokens.weight": tensor(320, 8),
        "model.decoder.embed_tokens.weight": tensor(330, 8),
        "final_logits_bias": tensor(1, 330),
    }
    return another("MarianMTModel", config, tensors)


def mobilebert() -> Description:
    config = {"model_type": "mobilebert", "vocab_size": 320, "hidden_size": 16, "embedding_size": 8}
    tensors = {
        "mobilebert.embeddings.word_embeddings.weight": tensor(320, 8),
        "cls.predictions.dense.weight": tensor(8, 320),
    }
    return another("MobileBertForMaskedLM", config, tensors)


def routed() -> Description:
    config = {"model_type": "deepseek_v4", "vocab_size": 320, "hidden_size": 8}
    experts = "model.layers.0.ffn.gate.tid2eid"
    tensors = {EMBED: tensor(320, 8), "head.weight": tensor(320, 8), experts: tensor(320, 2, dtype="I64")}
    return another("DeepseekV4ForCausalLM", config, tensors)


def hashed() -> Description:
    config = {"model_type": "qwen4_exp_text", "vocab_size": 320, "hidden_size": 8}
    ngrams = "model.layers.0.ple.ple_embedding.ngram_embedding.shard_0.weight"
    return another(
        "Qwen4ExpForCausalLM", config, {EMBED: tensor(320, 8), HEAD: tensor(320, 8), ngrams: tensor(64, 2)}
    )


def inkling() -> Description:
    config = {"model_type": "inkling2_text", "vocab_size": 320, "unpadded_vocab_size": 318, "hidden_size": 8}
    tensors = {"model.llm.embed.weight": tensor(320, 8), "model.llm.unembed.weight": tensor(320, 8)}
    return another("Inkling2ForCausalLM", config, tensors)


FAMILIES = [
    (mllama, "text_config.vocab_size + 8 rows by design"),
    (moshi, "vocab_size + 1 rows by design"),
    (musicgen, "another vocabulary"),
    (idefics, "go on in another input table"),
    (marian, "another vocabulary"),
    (mobilebert, "along axis 1"),
    (routed, "I64 values per token id"),
    (hashed, "hash that depends on vocab_size"),
    (inkling, "cut to unpadded_vocab_size"),
]

PLAIN = {EMBED: tensor(320, 8), HEAD: tensor(320, 8)}
PACKED = {
    "bitsandbytes, 4 bits": {
        EMBED: tensor(320, 8),
        HEAD: tensor(1280, 1, dtype="U8"),
        f"{HEAD}.absmax": tensor(20),
        f"{HEAD}.quant_map": tensor(16),
    },
    "bitsandbytes, 8 bits": {
        EMBED: tensor(320, 8),
        HEAD: tensor(320, 8, dtype="I8"),
        "lm_head.SCB": tensor(320),
    },
    "GPTQ": {
        EMBED: tensor(320, 8),
        "lm_head.qweight": tensor(1, 320, dtype="I32"),
        "lm_head.qzeros": tensor(1, 40, dtype="I32"),
        "lm_head.scales": tensor(1, 320),
        "lm_head.g_idx": tensor(8, dtype="I32"),
    },
    "AWQ": {
        EMBED: tensor(320, 8),
        "lm_head.qweight": tensor(8, 40, dtype="I32"),
        "lm_head.qzeros": tensor(1, 40, dtype="I32"),
        "lm_head.scales": tensor(1, 320),
    },
    "compressed-tensors": {
        "model.embed_tokens.weight_packed": tensor(320, 1, dtype="I32"),
        "model.embed_tokens.weight_scale": tensor(320, 1),
        "model.embed_tokens.weight_shape": tensor(2, dtype="I64"),
        HEAD: tensor(320, 8),
    },
    "8-bit floats": {EMBED: tensor(320, 8, dtype="F8_E4M3"), HEAD: tensor(320, 8)},
}


def refused(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The command line refuses: its one line (and hint); nothing else happens."""
    before = sorted(path.name for path in tmp_path.iterdir())
    arguments = arguments or ("--add-token", "<|new|>")
    assert main(["resize", str(source), str(tmp_path / "out"), *arguments]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    printed, said = capfd.readouterr()
    assert printed == ""
    line, *hint = said.splitlines()
    assert line.startswith("tokaudit: error")
    assert all(text.startswith("  hint: ") for text in hint)
    assert len(hint) <= 1
    return line


@pytest.mark.parametrize(("make", "says"), FAMILIES, ids=lambda value: getattr(value, "__name__", ""))
def test_families_whose_rows_mean_more_are_refused(
    make: Any, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(build(make(), tmp_path / "source"), tmp_path, capfd)


@pytest.mark.parametrize("kind", PACKED)
def test_packed_tables_are_refused(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = build(llama(PACKED[kind]), tmp_path / "source")
    assert f"is packed ({kind})" in refused(source, tmp_path, capfd)


def test_plain_tables_in_a_quantised_model_are_resized(tmp_path: Path) -> None:
    inner = "model.layers.0.self_attn.q_proj.qweight"
    description = llama({**PLAIN, inner: tensor(1, 8, dtype="I32")}, quant_method="gptq", bits=4)
    source = build(description, tmp_path / "source")
    resize(source, tmp_path / "out", ASKED)
    assert len(tables(tmp_path / "out")[EMBED]) == 321


def test_unknown_tables_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    odd = another("OddForCausalLM", {"model_type": "odd", "vocab_size": 320}, {"a.b": tensor(320, 8)})
    assert "no input table" in refused(build(odd, tmp_path / "source"), tmp_path, capfd)


def test_a_class_that_is_not_known_is_resized_by_its_tables_names_and_it_is_said(tmp_path: Path) -> None:
    odd = another("OddForCausalLM", {"model_type": "odd", "vocab_size": 320}, PLAIN)
    plan = plan_resize(build(odd, tmp_path / "source"), ASKED)
    assert [edit.table.name for edit in plan.tensors] == [EMBED, HEAD]
    assert any("tables were found by name and shape" in note for note in plan.notes)


@pytest.mark.parametrize("config", [True, False])
def test_adapters_are_refused(config: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    adapter = {"adapter_config.json": {"peft_type": "LORA", "base_model_name_or_path": "x"}}
    description = changed(untied(), {"json": adapter})
    if not config:
        del description["json"]["config.json"]
        del description["safetensors"]
        lora = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
        description["safetensors"] = {"adapter_model.safetensors": {lora: tensor(2, 8)}}
    assert "adapter_config.json" in refused(build(description, tmp_path / "source"), tmp_path, capfd)


def test_a_tokenizer_without_tokenizer_json_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    description = changed(base("bert"), {"text": {"vocab.txt": "\n".join(f"w{i}" for i in range(320))}})
    del description["tokenizer"]
    del description["json"]["tokenizer_config.json"]
    del description["json"]["special_tokens_map.json"]
    source = build(description, tmp_path / "source")
    assert "tokenizer.json, and there is none" in refused(source, tmp_path, capfd)
    assert plan_resize(source, Request(tokens=(NewToken("w7"),))).nothing_to_do  # it has that one
    resize(source, tmp_path / "out", Request(rows=384))  # rows alone need none
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == 384


def test_weights_alone_have_nothing_to_add_a_token_to(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    description = {
        "json": {"config.json": untied()["json"]["config.json"]},
        "safetensors": untied()["safetensors"],
    }
    assert "no tokenizer to add a token to" in refused(
        build(description, tmp_path / "source"), tmp_path, capfd
    )


def test_a_table_in_two_shards_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    description = in_shards(untied(), 2)
    first, second = description["safetensors"].values()
    second[EMBED] = first[EMBED]
    assert "stored in" in refused(build(description, tmp_path / "source"), tmp_path, capfd)


def test_predictor_copies_that_differ_from_their_originals_follow_by_their_own_rows(tmp_path: Path) -> None:
    description = predictor()
    del description["safetensors"]["model.safetensors"]["model.layers.1.embed_tokens.weight"]["fill"]
    source = build(description, tmp_path / "source")
    resize(source, tmp_path / "out", ASKED)
    grown = tables(tmp_path / "out")
    assert len(grown["model.layers.1.embed_tokens.weight"]) == 321
    assert grown["model.layers.1.embed_tokens.weight"][320] != grown[EMBED][320]
    assert grown["model.layers.1.shared_head.head.weight"] == grown[HEAD]


def test_a_class_that_nobody_knows_may_leave_its_sizes_to_the_tables(tmp_path: Path) -> None:
    config = {"model_type": "strange", "hidden_size": 8, "tie_word_embeddings": False}
    source = build(another("StrangeForCausalLM", config, PLAIN), tmp_path / "source")
    plan = plan_resize(source, ASKED)
    assert [(edit.table.name, edit.rows_after) for edit in plan.tensors] == [(EMBED, 321), (HEAD, 321)]
    assert {edit.at.file for edit in plan.files} == {"tokenizer.json"}


# --- a source that fails its audit -----------------------------------------------------------------------


BROKEN = {
    "rows differ": (
        {"safetensors": {"model.safetensors": {HEAD: {"shape": [318, 8]}}}},
        "output-rows-mismatch",
    ),
    "tied differ": ({"json": {"config.json": {"tie_word_embeddings": True}}}, "tied-tables-differ"),
    "no output": ({"safetensors": {"model.safetensors": {HEAD: None}}}, "untied-output-missing"),
    "cut short": ({"truncate": {"model.safetensors": -100}}, "shard-damaged"),
    "eos": ({"json": {"generation_config.json": {"eos_token_id": 309}}}, "eos-disagree"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_source_with_errors_is_refused(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, slug = BROKEN[kind]
    source = build(changed(untied(), change), tmp_path / "source")
    assert slug in refused(source, tmp_path, capfd)


@pytest.mark.parametrize("kind", ["tied differ", "eos"])
def test_force_goes_on_where_the_outcome_is_well_defined(kind: str, tmp_path: Path) -> None:
    change, slug = BROKEN[kind]
    source = build(changed(untied(), change), tmp_path / "source")
    with pytest.raises(Refused) as refusal:
        plan_resize(source, ASKED)
    assert "--force" in refusal.value.hint
    result = resize(source, tmp_path / "out", Request(tokens=ASKED.tokens, force=True))
    assert [finding.slug for finding in result.report.findings if finding.severity.word == "error"] == [slug]
    before, after = tables(source), tables(tmp_path / "out")
    for name in (EMBED, HEAD):
        assert after[name][:320] == before[name]
        assert len(after[name]) == 321


@pytest.mark.parametrize("kind", ["rows differ", "cut short"])
def test_force_does_not_help_where_it_is_not(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, slug = BROKEN[kind]
    source = build(changed(untied(), change), tmp_path / "source")
    assert slug in refused(source, tmp_path, capfd, "--add-token", "<|new|>", "--force")


@pytest.mark.parametrize("slug", ["token-id-out-of-range", "vocab-size-mismatch"])
def test_errors_that_a_resize_mends_are_mended(slug: str, tmp_path: Path) -> None:
    import tokaudit

    rows = 308 if slug == "token-id-out-of-range" else 320
    shapes = {EMBED: {"shape": [rows, 8]}, HEAD: {"shape": [rows, 8]}}
    sizes = {"vocab_size": 308}
    change = {"safetensors": {"model.safetensors": shapes}, "json": {"config.json": sizes}}
    source = build(changed(untied(), change), tmp_path / "source")
    assert slug in {finding.slug for finding in tokaudit.check(source).findings}
    result = resize(source, tmp_path / "out", ASKED)
    assert not any(finding.severity.word == "error" for finding in result.report.findings)
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == 321


def test_what_is_no_id_is_refused_before_anything_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change = {"json": {"config.json": {"eos_token_id": "2"}}}
    source = build(changed(untied(), change), tmp_path / "source")
    assert "eos_token_id is no token id" in refused(source, tmp_path, capfd, "--dry-run", "--rows", "400")


def test_a_tokenizer_that_cannot_be_read_is_no_target(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = build(untied(), tmp_path / "source")
    target = build(untied(), tmp_path / "target")
    (target / "tokenizer.json").write_text("{", encoding="utf-8")
    said = refused(source, tmp_path, capfd, "--to-tokenizer", str(target))
    assert f"the tokenizer in {target} cannot be used: tokenizer.json: " in said


def test_an_id_that_no_resize_gives_a_row_is_refused_before_anything_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change = {"json": {"config.json": {"bos_token_id": 900}}}
    source = build(changed(untied(), change), tmp_path / "source")
    assert "bos_token_id names id 900" in refused(source, tmp_path, capfd, "--dry-run", "--rows", "400")
    resize(source, tmp_path / "out", Request(rows=901))
    assert data(tmp_path / "out" / "config.json")["vocab_size"] == 901
