"""`check ADAPTER --base BASE`: adapters that PEFT saved, every layout, and the ways to find the base."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from models import base, build, changed

import tokaudit
from tokaudit.contract import Change, Document, TableKind, Tensor
from tokaudit.errors import UsageError
from tokaudit.families.adapted import table_of
from tokaudit.findings import Location, Severity
from tokaudit.formats import adapter as layout
from tokaudit.load import load
from tokaudit.report import Report, Verdict

ADAPTER_RULES = {"TA801", "TA802", "TA803", "TA804", "TA805", "TA806"}


def adapter_findings(report: Report) -> dict[str, Severity]:
    return {finding.rule: finding.severity for finding in report.findings if finding.rule in ADAPTER_RULES}


def skipped(report: Report) -> dict[str, str]:
    return {skip.rule.code: skip.reason for skip in report.skipped}


def loud(report: Report) -> list[str]:
    return [finding.message for finding in report.findings if finding.severity > Severity.NOTE]


# --- adapters that PEFT saves -----------------------------------------------------------------------------

VOCABULARY, HIDDEN = 320, 8


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """A tiny Llama, tied or not, as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    out = tmp_path_factory.mktemp("bases")

    def saved(tied: bool) -> Path:
        folder = out / ("tied" if tied else "untied")
        if not folder.exists():
            config = transformers.LlamaConfig(
                vocab_size=VOCABULARY,
                hidden_size=HIDDEN,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                tie_word_embeddings=tied,
            )
            transformers.LlamaForCausalLM(config).save_pretrained(folder)
        return folder

    return saved


@contextmanager
def quiet() -> Iterator[None]:
    """PEFT and transformers warn about each other's deprecated names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@quiet()
def trained(model: Path, out: Path, *, rows: int | None = None, tokens: Any = None, **options: Any) -> Path:
    """The adapter that PEFT saves after something was trained; ``rows`` resizes the base in memory first."""
    import peft
    import torch
    import transformers

    loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
    if rows is not None:
        loaded.resize_token_embeddings(rows, mean_resizing=False)
    if tokens is None:
        config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", **{"target_modules": ["q_proj"], **options})
    else:
        config = peft.TrainableTokensConfig(token_indices=tokens, task_type="CAUSAL_LM", **options)
    wrapped = peft.get_peft_model(loaded, config)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    wrapped.save_pretrained(out)
    return out


BOTH = ["embed_tokens", "lm_head"]
PEFT_CASES: list[tuple[str, bool, dict[str, Any], set[str], set[tuple[str, Change]]]] = [
    ("plain", True, {}, set(), set()),
    (
        "whole tables",
        False,
        {"modules_to_save": BOTH},
        set(),
        {("model.embed_tokens", Change.WHOLE), ("lm_head", Change.WHOLE)},
    ),
    ("one whole table", False, {"modules_to_save": ["lm_head"]}, set(), {("lm_head", Change.WHOLE)}),
    (
        "one whole table of a tie",
        True,
        {"modules_to_save": ["lm_head"]},
        {"TA802"},
        {("lm_head", Change.WHOLE)},
    ),
    (
        "whole tables of a tie, trained apart",
        True,
        {"modules_to_save": BOTH},
        {"TA803"},
        {("model.embed_tokens", Change.WHOLE), ("lm_head", Change.WHOLE)},
    ),
    (
        "a tie that PEFT keeps",
        True,
        {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
        set(),
        {("model.embed_tokens", Change.WHOLE), ("lm_head", Change.WHOLE)},
    ),
    (
        "embedding LoRA",
        False,
        {"target_modules": ["embed_tokens"]},
        set(),
        {("model.embed_tokens", Change.LOW_RANK), ("model.embed_tokens", Change.WHOLE)},
    ),
    (
        "DoRA of both",
        False,
        {"target_modules": BOTH, "use_dora": True},
        set(),
        {
            (name, change)
            for name in ("model.embed_tokens", "lm_head")
            for change in (Change.LOW_RANK, Change.WHOLE)
        },
    ),
    (
        "output LoRA of a tie",
        True,
        {"target_modules": ["lm_head"]},
        {"TA802"},
        {("lm_head", Change.LOW_RANK), ("lm_head", Change.WHOLE)},
    ),
    (
        "factors of their own for both sides of a tie",
        True,
        {"target_modules": BOTH},
        {"TA802"},
        {
            (name, change)
            for name in ("model.embed_tokens", "lm_head")
            for change in (Change.LOW_RANK, Change.WHOLE)
        },
    ),
    (
        "chosen tokens",
        True,
        {"trainable_token_indices": [3, 319]},
        set(),
        {("model.embed_tokens", Change.ROWS)},
    ),
    (
        "chosen tokens of both",
        False,
        {"trainable_token_indices": {"embed_tokens": [3], "lm_head": [4, 5]}},
        set(),
        {("model.embed_tokens", Change.ROWS), ("lm_head", Change.ROWS)},
    ),
    ("the method for tokens alone", False, {"tokens": [3, 5]}, set(), {("model.embed_tokens", Change.ROWS)}),
    (
        "a base that was grown in memory",
        False,
        {"rows": 328},
        {"TA801"},
        {("model.embed_tokens", Change.WHOLE), ("lm_head", Change.WHOLE)},
    ),
    (
        "a tied base that was cut in memory",
        True,
        {"rows": 300},
        {"TA801"},
        {("model.embed_tokens", Change.WHOLE), ("lm_head", Change.WHOLE)},
    ),
]


@pytest.mark.parametrize(
    ("tied", "options", "rules", "holds"),
    [case[1:] for case in PEFT_CASES],
    ids=[case[0] for case in PEFT_CASES],
)
def test_an_adapter_that_peft_saves_is_read_as_it_is(
    tied: bool,
    options: dict[str, Any],
    rules: set[str],
    holds: set[tuple[str, Change]],
    bases: Callable[[bool], Path],
    tmp_path: Path,
) -> None:
    pytest.importorskip("peft")
    model = bases(tied)
    adapter = trained(model, tmp_path / "adapter", **options)
    report = tokaudit.check(adapter, base=model)
    assert set(adapter_findings(report)) == rules, [finding.message for finding in report.findings]
    assert not report.unreadable
    undecided = {"TA805"}  # no tokenizer beside it
    if "tokens" in options:
        undecided.add("TA806")  # no module but the tables
    assert {ref.code for ref in report.checked} >= ADAPTER_RULES - undecided
    contract = load(adapter, options=tokaudit.contract.Options(base=str(model)))
    assert {(table.module, table.change) for table in contract.adapter.tables} == holds


def test_an_adapter_is_clean_without_its_base(bases: Callable[[bool], Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    shutil.copytree(bases(False), tmp_path / "base")
    adapter = trained(tmp_path / "base", tmp_path / "adapter", modules_to_save=BOTH)
    shutil.rmtree(tmp_path / "base")
    report = tokaudit.check(adapter)
    assert report.verdict() is Verdict.PASS
    assert loud(report) == []
    assert "no local model directory" in skipped(report)["TA801"]


def test_peft_fails_where_the_rows_mismatch_is_found(bases: Callable[[bool], Path], tmp_path: Path) -> None:
    """The error says what happens: this is it."""
    peft = pytest.importorskip("peft")
    import transformers

    model = bases(False)
    adapter = trained(model, tmp_path / "adapter", rows=328)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
    with quiet(), pytest.raises(RuntimeError, match="size mismatch"):
        peft.PeftModel.from_pretrained(loaded, adapter)


@pytest.mark.parametrize(
    ("options", "one_table", "changed_sides"),
    [
        ({"target_modules": ["lm_head"]}, True, {"input", "output"}),
        ({"target_modules": BOTH}, True, {"input", "output"}),
        ({"modules_to_save": ["lm_head"]}, False, {"output"}),
        ({"modules_to_save": BOTH}, False, {"input", "output"}),
        ({"trainable_token_indices": [3]}, True, {"input", "output"}),
    ],
)
def test_merging_into_a_tied_base_does_what_the_rules_say(
    options: dict[str, Any],
    one_table: bool,
    changed_sides: set[str],
    bases: Callable[[bool], Path],
    tmp_path: Path,
) -> None:
    """Factors change both sides (TA802), whole tables untie (TA802, TA803), chosen rows are shared."""
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    model = bases(True)
    adapter = trained(model, tmp_path / "adapter", **options)
    before = transformers.AutoModelForCausalLM.from_pretrained(model).get_input_embeddings().weight
    with quiet():
        loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
        merged = peft.PeftModel.from_pretrained(loaded, adapter).merge_and_unload()
    given, output = merged.get_input_embeddings().weight, merged.get_output_embeddings().weight
    assert (given is output) is one_table
    sides = {"input": given, "output": output}
    assert {side for side, table in sides.items() if not torch.equal(table, before)} == changed_sides


def test_an_adapter_of_another_family_is_what_peft_refuses(
    bases: Callable[[bool], Path], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    import transformers

    found = trained(bases(False), tmp_path / "adapter", target_modules="all-linear")
    assert "TA806" not in adapter_findings(tokaudit.check(found, base=bases(False)))
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=1, n_head=2)
    other = transformers.GPT2LMHeadModel(config)
    other.save_pretrained(tmp_path / "gpt2")
    assert adapter_findings(tokaudit.check(found, base=tmp_path / "gpt2"))["TA806"] is Severity.ERROR
    with pytest.raises(ValueError, match="not found in the base model"):
        peft.PeftModel.from_pretrained(other, found)


# --- adapters made by hand --------------------------------------------------------------------------------


def model(out: Path, change: dict[str, Any] | None = None, remove: tuple[str, ...] = ()) -> Path:
    return build(changed(base("llama"), change or {}, remove), out)


def adapter(out: Path, change: dict[str, Any] | None = None, remove: tuple[str, ...] = ()) -> Path:
    return build(changed(base("adapter"), change or {}, remove), out)


def whole(rows: int, module: str = "model.embed_tokens") -> dict[str, Any]:
    """A change that gives the adapter a whole table."""
    tensor = {"dtype": "F32", "shape": [rows, HIDDEN]}
    return {"safetensors": {"adapter_model.safetensors": {f"base_model.model.{module}.weight": tensor}}}


def naming(path: object) -> dict[str, Any]:
    return {"json": {"adapter_config.json": {"base_model_name_or_path": path}}}


def test_the_base_is_found_beside_the_adapter(tmp_path: Path) -> None:
    model(tmp_path / "model")
    report = tokaudit.check(adapter(tmp_path / "adapter", whole(324)))
    assert adapter_findings(report) == {"TA801": Severity.ERROR}
    facts = report.summary.adapter
    assert facts is not None
    assert facts.base is not None
    assert os.path.samefile(facts.base, tmp_path / "model")
    assert (facts.named_by, facts.architecture, facts.rows) == (
        "adapter_config.json#/base_model_name_or_path",
        "LlamaForCausalLM",
        VOCABULARY,
    )


def test_the_base_is_looked_for_in_the_working_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is where loaders look, and only there."""
    model(tmp_path / "model")
    (tmp_path / "here").mkdir()
    model(tmp_path / "here/model", {"json": {"config.json": {"vocab_size": 324}}}, ("safetensors",))
    found = adapter(tmp_path / "adapter", {**whole(324), **naming("model")})
    monkeypatch.chdir(tmp_path / "here")
    facts = tokaudit.check(found).summary.adapter
    assert facts is not None
    assert (facts.base, facts.rows) == ("model", 324)


def test_an_absolute_base_is_read(tmp_path: Path) -> None:
    found = adapter(tmp_path / "adapter", {**whole(324), **naming(str(model(tmp_path / "elsewhere")))})
    assert adapter_findings(tokaudit.check(found)) == {"TA801": Severity.ERROR}


@pytest.mark.parametrize(
    "named",
    [
        "org/name",
        "https://host.invalid/model",
        "file:///etc",
        "/etc",
        "../adapter",
        "",
        None,
        "a\0b",
        "~root",
    ],
)
def test_a_name_that_is_no_local_model_skips_the_rules_on_the_base(named: str | None, tmp_path: Path) -> None:
    report = tokaudit.check(adapter(tmp_path / "adapter", {**whole(324), **naming(named)}))
    assert report.verdict() is Verdict.PASS
    assert loud(report) == []
    assert "no --base was given" in skipped(report)["TA801"]


def test_a_directory_without_a_configuration_is_not_even_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/model.safetensors").write_bytes(b"")
    found = adapter(tmp_path / "adapter", naming("../private"))
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(os.fspath(path)) or scandir(path))
    tokaudit.check(found)
    assert listed
    assert not any("private" in path for path in listed)


def test_the_base_that_is_given_goes_before_the_one_that_is_named(tmp_path: Path) -> None:
    model(tmp_path / "model")
    other = model(tmp_path / "other", {"json": {"config.json": {"vocab_size": 324}}}, ("safetensors",))
    report = tokaudit.check(adapter(tmp_path / "adapter", whole(324)), base=other)
    assert adapter_findings(report) == {}
    assert report.summary.adapter is not None
    assert report.summary.adapter.named_by == "--base"


def test_a_base_is_wrong_where_there_is_no_adapter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no adapter_config\.json"):
        tokaudit.check(model(tmp_path / "a"), base=model(tmp_path / "b"))


def test_a_base_that_is_no_model_leaves_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report = tokaudit.check(adapter(tmp_path / "adapter"), base=tmp_path / "empty")
    assert [error.code for error in report.unreadable] == ["no-model"]


def test_another_adapter_is_no_base(tmp_path: Path) -> None:
    report = tokaudit.check(adapter(tmp_path / "adapter"), base=adapter(tmp_path / "other"))
    assert [error.code for error in report.unreadable] == ["no-model"]


def test_damage_in_the_base_is_named_with_its_path(tmp_path: Path) -> None:
    broken = model(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    report = tokaudit.check(adapter(tmp_path / "adapter"), base=broken)
    assert [error.file for error in report.unreadable] == [f"{broken}/config.json"]


def test_a_base_with_pickled_weights_tells_its_rows_in_its_configuration(tmp_path: Path) -> None:
    pickled = model(tmp_path / "pickled", remove=("safetensors",))
    (pickled / "pytorch_model.bin").write_bytes(b"PK")
    report = tokaudit.check(adapter(tmp_path / "adapter", whole(324)), base=pickled)
    assert adapter_findings(report) == {"TA801": Severity.ERROR}


def test_a_pickled_adapter_is_noted_and_not_opened(tmp_path: Path) -> None:
    found = adapter(tmp_path / "adapter", remove=("safetensors",))
    (found / "adapter_model.bin").write_bytes(b"\x80\x02cposix\nsystem\n.")
    report = tokaudit.check(found, base=model(tmp_path / "model"))
    assert [finding.rule for finding in report.findings] == ["TA710"]
    assert "pickled weights are never opened" in skipped(report)["TA801"]
    assert report.verdict() is Verdict.PASS


def test_an_adapter_without_weights_leaves_no_verdict(tmp_path: Path) -> None:
    report = tokaudit.check(adapter(tmp_path / "adapter", remove=("safetensors",)))
    assert [error.code for error in report.unreadable] == ["no-weights"]


def test_a_damaged_adapter_file_is_a_finding_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = adapter(tmp_path / "adapter", {"truncate": {"adapter_model.safetensors": -4}})
    report = tokaudit.check(found, base=model(tmp_path / "model"))
    assert [finding.rule for finding in report.findings] == ["TA702"]
    assert "adapter_model.safetensors could not be read" in skipped(report)["TA801"]


@pytest.mark.parametrize(
    "field", [{"modules_to_save": "embed_tokens"}, {"r": -1}, {"r": True}, {"peft_type": 3}]
)
def test_a_malformed_field_leaves_no_verdict(field: dict[str, Any], tmp_path: Path) -> None:
    report = tokaudit.check(adapter(tmp_path / "adapter", {"json": {"adapter_config.json": field}}))
    assert [error.code for error in report.unreadable] == ["adapter-field"]


@pytest.mark.parametrize("rank", [1, None])
def test_a_rank_of_one_and_none_at_all_are_no_malformed_fields(rank: int | None) -> None:
    assert not list(layout.malformed_fields(Document(Location("adapter_config.json"), {"r": rank})))


def test_a_configuration_beside_the_adapter_raises_no_false_alarm(tmp_path: Path) -> None:
    """Some trainers copy the base's config.json, whose untied output table is not in the adapter."""
    copied = base("llama")["json"]
    found = adapter(tmp_path / "adapter", {"json": copied, "tokenizer": base("llama")["tokenizer"]})
    report = tokaudit.check(found, base=model(tmp_path / "model"))
    assert [finding.rule for finding in report.findings] == []
    assert {"TA101", "TA111", "TA203"} <= skipped(report).keys()


def test_a_model_with_an_adapter_beside_its_weights_is_audited_as_a_model(tmp_path: Path) -> None:
    both = model(tmp_path / "model")
    alone = tokaudit.check(both)
    adapter(both, whole(324))
    report = tokaudit.check(both)
    assert report.findings == alone.findings
    assert report.summary == alone.summary
    assert "a whole model's" in skipped(report)["TA801"]
    with_base = tokaudit.check(both, base=both)
    assert adapter_findings(with_base) == {"TA801": Severity.ERROR}
    assert {ref.code for ref in alone.checked} <= {ref.code for ref in with_base.checked}


def test_a_damaged_adapter_config_beside_a_whole_model_leaves_no_verdict(tmp_path: Path) -> None:
    """AutoModel of transformers opens it, where PEFT is installed."""
    for name, damage in (("cut", "json-syntax"), ("fifo", "not-a-regular-file")):
        model = build(base("llama"), tmp_path / name)
        if name == "fifo":
            os.mkfifo(model / "adapter_config.json")
        else:
            (model / "adapter_config.json").write_text('{"peft_type": ')
        (part,) = tokaudit.check(model).unreadable
        assert (part.code, part.file) == (damage, "adapter_config.json")


def test_without_weights_what_needs_them_is_skipped(tmp_path: Path) -> None:
    model(tmp_path / "model")
    report = tokaudit.check(adapter(tmp_path / "adapter", whole(324)), read_weights=False)
    assert report.verdict() is Verdict.PASS
    assert skipped(report)["TA801"] == "--no-weights was given"


def test_a_quantised_base_tells_its_rows_in_its_configuration(tmp_path: Path) -> None:
    packed = {
        "json": {"config.json": {"quantization_config": {"quant_method": "bitsandbytes"}}},
        "safetensors": {
            "model.safetensors": {"model.embed_tokens.weight": {"dtype": "U8", "shape": [1280, 1]}}
        },
    }
    report = tokaudit.check(adapter(tmp_path / "adapter", whole(320)), base=model(tmp_path / "model", packed))
    assert "TA801" not in adapter_findings(report)
    assert "TA801" in {ref.code for ref in report.checked}


def test_names_of_an_older_peft_are_understood() -> None:
    def part(name: str) -> tuple[str, Change, int | None] | None:
        found = layout.part(Tensor(name, "F32", (4, 8), "adapter_model.safetensors", 0, 128))
        return None if found is None else (found.module, found.change, found.axis)

    prefix = "base_model.model."
    assert part(f"{prefix}lm_head.modules_to_save.default.weight") == ("lm_head", Change.WHOLE, 0)
    assert part(f"{prefix}lm_head.lora_B.default.weight") == ("lm_head", Change.LOW_RANK, 0)
    assert part(f"{prefix}wte.lora_embedding_A.default") == ("wte", Change.LOW_RANK, 1)
    assert part(f"{prefix}wte.lora_embedding_B") == ("wte", Change.LOW_RANK, None)
    assert part(f"{prefix}wte.trainable_tokens_delta") == ("wte", Change.ROWS, 0)
    assert part(f"{prefix}{prefix}wte.weight") == ("wte", Change.WHOLE, 0)
    assert part(f"{prefix}wte.hada_w1_a") == ("wte", Change.OTHER, None)
    assert part("prompt_embeddings") is None


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("model.embed_tokens", TableKind.INPUT),
        ("transformer.model.embed_tokens", TableKind.INPUT),
        ("lm_head", TableKind.OUTPUT),
        ("model.layers.0.self_attn.q_proj", None),
        ("qformer.embeddings.word_embeddings", None),
        ("score", None),
        ("model.encoder.layer.0.lm_head", None),
        ("model.vision_tower.embed_tokens", None),
    ],
)
def test_a_module_is_the_table_that_it_is_in_the_base(
    module: str, kind: TableKind | None, tmp_path: Path
) -> None:
    tied = {
        "json": {"config.json": {"tie_word_embeddings": True}},
        "safetensors": {"model.safetensors": {"lm_head.weight": None}},
    }
    for change in ({}, tied):
        embeddings = load(model(tmp_path / f"model{len(change)}", change)).embeddings
        assert table_of(module, embeddings) is kind
    assert table_of(module, None) is kind


def test_a_module_of_a_composite_model_is_found_under_its_name_in_memory(tmp_path: Path) -> None:
    tensors = base("llama")["safetensors"]["model.safetensors"]
    on_disk = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    composite = base("llama") | {"safetensors": {"model.safetensors": on_disk}}
    composite["json"]["config.json"] = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": base("llama")["json"]["config.json"],
    }
    embeddings = load(build(composite, tmp_path / "model")).embeddings
    assert embeddings.input.name == "language_model.model.embed_tokens.weight"
    assert table_of("model.language_model.embed_tokens", embeddings) is TableKind.INPUT
    assert table_of("lm_head", embeddings) is TableKind.OUTPUT


def test_the_encoder_of_a_pair_is_not_its_shared_table(tmp_path: Path) -> None:
    embeddings = load(build(base("t5"), tmp_path / "t5")).embeddings
    assert table_of("shared", embeddings) is TableKind.INPUT
    assert table_of("encoder.embed_tokens", embeddings) is None


def test_the_tokenizer_of_the_base_is_read_and_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tokaudit.load

    monkeypatch.setattr(tokaudit.load, "start", lambda file: pytest.fail("a process was started"))
    found = load(
        adapter(tmp_path / "adapter"), options=tokaudit.contract.Options(base=str(model(tmp_path / "model")))
    )
    base_vocabulary = found.adapter.base.vocabulary_or
    assert isinstance(base_vocabulary, tokaudit.contract.Vocabulary)
    assert base_vocabulary.required_rows.value == VOCABULARY


# --- the command ------------------------------------------------------------------------------------------


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tokaudit", "check", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_names_adapter_and_base(tmp_path: Path) -> None:
    model(tmp_path / "model")
    adapter(tmp_path / "adapter", whole(324))
    run = command("adapter", "--base", "model", cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "LORA, a whole table of model.embed_tokens (324 rows)" in " ".join(run.stdout.split())
    assert "model, LlamaForCausalLM, 320 rows, named by --base" in " ".join(run.stdout.split())
    assert "model/model.safetensors#model.embed_tokens.weight" in run.stdout


def test_every_format_renders_a_finding_about_the_base(tmp_path: Path) -> None:
    from tokaudit.reporters import names

    model(tmp_path / "model")
    adapter(tmp_path / "adapter", whole(324))
    (tmp_path / "out").mkdir()
    outputs = [f"--output={name}=out/{name}" for name in names()]
    run = command("adapter", "--base", "model", *outputs, cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    for name in names():
        assert "TA801" in (tmp_path / "out" / name).read_text(encoding="utf-8"), name
    document = json.loads((tmp_path / "out/json").read_text(encoding="utf-8"))
    assert document["facts"]["adapter"] == {
        "method": "LORA",
        "base": "model",
        "named_by": "--base",
        "base_architecture": "LlamaForCausalLM",
        "base_rows": 320,
        "tables": [{"module": "model.embed_tokens", "holds": "a whole table", "rows": 324}],
    }
    sarif = json.loads((tmp_path / "out/sarif").read_text(encoding="utf-8"))
    assert '"uri": "model/model.safetensors"' in json.dumps(sarif["runs"][0]["results"])


def test_a_base_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    adapter(tmp_path / "adapter")
    run = command("adapter", "--base", "nowhere", cwd=tmp_path)
    assert run.returncode == 2
    assert len(run.stderr.strip().splitlines()) <= 2
    assert "nowhere" in run.stderr


def test_nothing_is_written_into_the_base(tmp_path: Path) -> None:
    model(tmp_path / "model")
    adapter(tmp_path / "adapter")
    run = command("adapter", "--base", "model", "--output", "json=model/report.json", cwd=tmp_path)
    assert run.returncode == 2
    assert not (tmp_path / "model/report.json").exists()


def test_settings_in_the_base_are_not_read(tmp_path: Path) -> None:
    model(tmp_path / "model")
    adapter(tmp_path / "adapter", whole(324))
    (tmp_path / "model/tokaudit.toml").write_text('ignore = ["TA8"]\n')
    run = command("../adapter", "--base", ".", cwd=tmp_path / "model")
    assert run.returncode == 1, run.stderr


def test_adapters_are_found_below_a_directory_and_others_beside_one_are_mentioned(tmp_path: Path) -> None:
    model(tmp_path / "all/model")
    adapter(tmp_path / "all/first")
    adapter(tmp_path / "all/first/second")
    run = command("all", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "2 models" in run.stdout
    alone = command("all/first", cwd=tmp_path)
    assert "more adapters in folders (second)" in alone.stderr
    assert command("all/first", "--quiet", cwd=tmp_path).stderr == ""


def test_among_many_models_a_base_is_for_the_adapters(tmp_path: Path) -> None:
    model(tmp_path / "all/model")
    adapter(tmp_path / "all/adapter", whole(324))
    run = command("all", "--base", "all/model", "--format", "json", cwd=tmp_path)
    reports = json.loads(run.stdout)["reports"]
    assert {report["target"]: report["verdict"] for report in reports} == {
        "all/adapter": "findings",
        "all/model": "pass",
    }


def test_the_audit_of_an_adapter_loads_no_heavy_library(tmp_path: Path) -> None:
    model(tmp_path / "model")
    adapter(tmp_path / "adapter", whole(324))
    script = (
        "import sys, tokaudit; tokaudit.check('adapter', base='model'); "
        "print(sorted({'torch', 'numpy', 'pydantic', 'transformers', 'peft'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("task", "architecture", "generates"),
    [
        ("CAUSAL_LM", "LlamaModel", True),
        ("SEQ_2_SEQ_LM", "LlamaModel", True),
        ("SEQ_CLS", "LlamaForCausalLM", False),
        ("FEATURE_EXTRACTION", None, False),
        (None, "LlamaForCausalLM", True),
        (None, "LlamaModel", False),
        (None, None, True),
    ],
)
def test_an_adapter_is_for_generation_where_its_task_or_else_its_base_is(
    task: str | None, architecture: str | None, generates: bool, tmp_path: Path
) -> None:
    stated = {"json": {"adapter_config.json": {"task_type": task, "base_model_name_or_path": "org/absent"}}}
    adapter = build(changed(base("adapter"), stated), tmp_path / "adapter")
    given = None
    if architecture is not None:
        named = {"json": {"config.json": {"architectures": [architecture]}}}
        given = str(build(changed(base("llama"), named), tmp_path / "base"))
    assert load(adapter, options=tokaudit.contract.Options(base=given)).generates is generates


@pytest.mark.parametrize(
    ("flag", "says", "tied"),
    [
        (True, "tied", True),
        (False, "untied", False),
        (None, "not stated: LlamaForCausalLM is untied by default", False),
    ],
)
def test_what_the_base_says_about_the_tie_is_its_flag_or_the_default(
    flag: bool | None, says: str, tied: bool, tmp_path: Path
) -> None:
    stated = {"json": {"config.json": {"tie_word_embeddings": flag}}}
    model = build(changed(base("llama"), stated if flag is not None else {}), tmp_path / "base")
    if flag is None:
        config = json.loads((model / "config.json").read_text("utf-8"))
        del config["tie_word_embeddings"]
        (model / "config.json").write_text(json.dumps(config), "utf-8")
    adapter = build(base("adapter"), tmp_path / "adapter")
    found = load(adapter, options=tokaudit.contract.Options(base=str(model))).adapter.base
    assert [claim.says for claim in found.tie_claims()] == [says]
    assert found.embeddings.tie.tied is tied
