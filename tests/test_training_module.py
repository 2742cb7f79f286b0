"""`audit_module` on real models in memory: what is wrong is named, what is right is not."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import peft
import pytest
import torch
import torch.distributed as dist
import transformers
from live import HIDDEN, ROWS, llama, parametrized, plain, tied, viewed
from tokenizers import AddedToken, Tokenizer, models
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

import tokaudit
from tokaudit.contract.module import TiedBy
from tokaudit.errors import UsageError
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report, Verdict
from tokaudit.reporters import View, names
from tokaudit.reporters import json as json_reporter
from tokaudit.rule import all_rules
from tokaudit.training import GradientLedger, audit_module
from tokaudit.training.tables import find_tables

LIVE = {rule.code: rule for rule in all_rules() if rule.code.startswith("TA91")}


def found(report: Report, *, own: bool = True) -> dict[str, str]:
    """The severity of each rule that found something: of those about modules, or of all."""
    return {
        finding.rule: finding.severity.word
        for finding in reversed(report.findings)
        if finding.rule in LIVE or not own
    }


def only(report: Report, code: str) -> Finding:
    findings = [finding for finding in report.findings if finding.rule == code]
    assert len(findings) == 1, report.findings
    return findings[0]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def tokenizer(*texts: str, pad: str = "<pad>", eos: str = "</s>", **roles: str) -> PreTrainedTokenizerFast:
    """Words w0 ... , then the added tokens in order; the ids fill the table but for four rows."""
    vocabulary = {f"w{id}": id for id in range(ROWS - 8)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    inner.add_special_tokens([AddedToken(text, special=True) for text in ("<pad>", "</s>", *texts)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="w0", pad_token=pad, eos_token=eos, **roles
    )


PAD, EOS = ROWS - 8, ROWS - 7


# --- models that are right ------------------------------------------------------------------------------


def gemma2() -> Gemma2ForCausalLM:
    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=ROWS,
            hidden_size=HIDDEN,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
        )
    )


def gpt2() -> GPT2LMHeadModel:
    fields = {"vocab_size": ROWS, "n_embd": HIDDEN, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**fields, bos_token_id=1, eos_token_id=1))


def t5() -> T5ForConditionalGeneration:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=ROWS, d_model=HIDDEN, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    )


def bert_config() -> BertConfig:
    return BertConfig(
        vocab_size=ROWS,
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )


RIGHT = {
    "llama, tied": llama,
    "llama, untied": lambda: llama(tie=False),
    "gpt2": gpt2,
    "bert with bias": lambda: BertForMaskedLM(bert_config()),
    "bert without output": lambda: BertModel(bert_config()),
    "plain, untied": plain,
    "plain, tied": tied,
    "plain, tied by a parametrization": parametrized,
    "plain, tied by a view": viewed,
    "plain, frozen": lambda: plain().requires_grad_(False),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_model_that_is_right_has_no_finding(name: str) -> None:
    model = RIGHT[name]()
    report = audit_module(model, None, sgd(model))
    assert found(report, own=False) == {}
    assert report.verdict(Severity.NOTE) is Verdict.PASS
    assert {"TA911", "TA912", "TA913", "TA917", "TA918"} - {skip.rule.code for skip in report.skipped} <= {
        ref.code for ref in report.checked
    }


CLASSES = (
    "AlbertForMaskedLM",
    "BartForConditionalGeneration",
    "BertGenerationDecoder",
    "BloomForCausalLM",
    "CohereForCausalLM",
    "DebertaV2ForMaskedLM",
    "ElectraForMaskedLM",
    "FalconForCausalLM",
    "GPTNeoXForCausalLM",
    "GemmaForCausalLM",
    "IBertForMaskedLM",
    "M2M100ForConditionalGeneration",
    "MBartForConditionalGeneration",
    "MarianMTModel",
    "MistralForCausalLM",
    "ModernBertForMaskedLM",
    "OPTForCausalLM",
    "PegasusForConditionalGeneration",
    "Phi3ForCausalLM",
    "Qwen3ForCausalLM",
    "T5GemmaForConditionalGeneration",
    "WhisperForConditionalGeneration",
    "XLMRobertaForMaskedLM",
    "XLNetLMHeadModel",
)


@pytest.mark.parametrize("name", CLASSES)
def test_no_class_of_transformers_gets_more_than_a_note(name: str) -> None:
    """As its configuration makes it, without values."""
    kind = getattr(transformers, name)
    config = kind.config_class()
    for layers in ("num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer"):
        if getattr(config, layers, None):
            setattr(config, layers, 1)
    with torch.device("meta"):
        model = kind(config)
    report = audit_module(model, None, sgd(model))
    assert [finding for finding in report.findings if finding.severity > Severity.NOTE] == []
    assert {"TA911", "TA912"} <= {rule.rule.code for rule in report.skipped} | {
        rule.code for rule in report.checked
    }


def test_t5_has_no_finding_but_the_scale_of_its_hidden_states() -> None:
    model = t5()
    report = audit_module(model, None, sgd(model))
    assert found(report, own=False) == {"TA918": "note"}
    assert "square root of their width" in only(report, "TA918").message


def test_an_encoder_without_output_is_skipped_by_the_rules_about_one() -> None:
    report = audit_module(BertModel(bert_config()))
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    assert reasons["TA911"] == reasons["TA918"] == "the module has no output embeddings"
    assert reasons["TA912"] == "no optimizer was given"


def test_a_directory_is_not_audited_by_rules_of_live_modules(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path)
    assert not {ref.code for ref in tokaudit.check(tmp_path).checked} & set(LIVE)
    skipped = tokaudit.check(tmp_path, select=["TA911"]).skipped
    assert [skip.reason for skip in skipped] == ["needs a live module (tokaudit.training.audit_module)"]


# --- finding the tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "by"),
    [
        (plain, None),
        (tied, TiedBy.PARAMETER),
        (viewed, TiedBy.STORAGE),
        (lambda: viewed(300), TiedBy.STORAGE),
        (parametrized, TiedBy.PARAMETRIZATION),
        (llama, TiedBy.PARAMETER),
        (lambda: llama(tie=False), None),
        (t5, TiedBy.PARAMETER),
    ],
)
def test_a_tie_is_told_by_identity_and_memory(make: Any, by: TiedBy | None) -> None:
    tables = find_tables(make())
    assert tables.tied_by is by
    assert (tables.rows, tables.hidden) == (ROWS, HIDDEN)


def test_equal_values_are_no_tie() -> None:
    model = plain()
    with torch.no_grad():
        model.head.weight.copy_(model.embedding.weight)
    assert not find_tables(model).tied


def test_tables_on_the_meta_device_are_tied_by_their_storage_alone() -> None:
    with torch.device("meta"):
        apart, together = plain(), tied()
        shared = plain()
        shared.head.weight = nn.Parameter(shared.embedding.weight.detach())
    assert find_tables(apart).tied_by is None
    assert find_tables(together).tied_by is TiedBy.PARAMETER
    assert find_tables(shared).tied_by is TiedBy.STORAGE


def test_an_input_without_a_matching_output_has_none() -> None:
    tables = find_tables(nn.Sequential(nn.Embedding(ROWS, HIDDEN), nn.Linear(HIDDEN, 2)))
    assert (tables.input_name, tables.output_module, tables.tied) == ("0", None, False)


def test_tables_can_be_named_or_given() -> None:
    model = plain()
    model.positions = nn.Embedding(64, HIDDEN)
    model.widen = nn.Linear(HIDDEN, 64)
    by_name = find_tables(model, input="embedding", output="head")
    by_module = find_tables(model, input=model.embedding, output=model.head)
    assert by_name == by_module
    assert (by_name.input_name, by_name.output_name) == ("embedding", "head")
    assert find_tables(model, output="head").input_name == "embedding"


def test_a_module_without_tables_and_ambiguous_ones_are_refused_with_candidates() -> None:
    model = plain()
    with pytest.raises(UsageError, match="no module 'embeding'") as refused:
        find_tables(model, input="embeding")
    assert refused.value.hint == "did you mean embedding?"
    model.positions = nn.Embedding(64, HIDDEN)
    model.widen = nn.Linear(HIDDEN, 64)
    with pytest.raises(UsageError, match=r"embedding \(320, 16\), positions \(64, 16\)"):
        audit_module(model)
    model.second = nn.Linear(HIDDEN, ROWS)
    model.mixer.activation = nn.ReLU()
    with pytest.raises(UsageError, match="2 modules may be the output embeddings: head, second"):
        find_tables(model, input="embedding")
    with pytest.raises(UsageError, match=r"Linear has no nn\.Embedding"):
        find_tables(nn.Linear(2, 2))
    with pytest.raises(UsageError, match=r"mixer\.activation \(ReLU\) has no table of rows"):
        find_tables(model, input="mixer.activation")


# --- wrappers -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One process that is a group of its own."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=store.as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("tie", [True, False])
def test_a_compiled_model_is_audited_without_compiling_it(tie: bool) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise AssertionError("it was compiled")

    model = torch.compile(llama(tie=tie), backend=backend)
    model.model.embed_tokens = torch.compile(model.model.embed_tokens, backend=backend)
    tables = find_tables(model)
    assert tables.tied is tie
    assert found(audit_module(model, None, sgd(model))) == {}


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("tie", [True, False])
def test_distributed_data_parallel_is_taken_off(tie: bool) -> None:
    model = nn.parallel.DistributedDataParallel(llama(tie=tie))
    report = audit_module(model, None, sgd(model))
    assert find_tables(model).tied is tie
    assert (report.target, found(report)) == ("LlamaForCausalLM", {})


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`", "ignore:.*NO_SHARD.*deprecated")
@pytest.mark.parametrize("original", [True, False])
@pytest.mark.parametrize("make", [tied, plain])
def test_fsdp_on_one_process_is_understood(original: bool, make: Any) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(make(), device_id=torch.device("cpu"), use_orig_params=original)
    report = audit_module(model, None, sgd(model))
    assert find_tables(model).tied is (make is tied)
    assert found(report) == {}


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("make", [tied, plain])
def test_fully_shard_is_understood(make: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    report = audit_module(model, None, sgd(model))
    assert find_tables(model).tied is (make is tied)
    assert found(report) == {}
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    assert reasons["TA917"] == "the input embeddings are cut in shards"


def adapted(tie: bool, **options: Any) -> nn.Module:
    settings = {"target_modules": ["q_proj"], **options}
    return peft.get_peft_model(llama(tie=tie), peft.LoraConfig(**settings))


def trained_by(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)


@pytest.fixture(scope="module")
def in_shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each of two processes says of a model that FSDP has cut in shards."""
    tests = Path(__file__).resolve().parent
    store = tmp_path_factory.mktemp("shards") / "store"
    processes = [
        subprocess.Popen(
            [sys.executable, str(tests / "sharded.py"), str(rank), str(store)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(tests.parent)},
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (json.loads(process.communicate(timeout=300)[0]) for process in processes)
    assert first == second
    answers: dict[str, dict[str, Any]] = first
    return answers


@pytest.mark.parametrize("way", ["parameters", "flat", "fully_shard"])
def test_a_model_in_shards_is_understood_and_its_values_are_not_read(
    way: str, in_shards: dict[str, dict[str, Any]]
) -> None:
    tied_one, untied_one = in_shards[f"{way}, tied"], in_shards[f"{way}, untied"]
    flat = ["TA912"] if way == "flat" else []
    assert tied_one == {"tied": True, "rows": ROWS, "found": [], "skipped": [*flat, "TA917", "TA918"]}
    assert untied_one["tied"] is False
    assert (untied_one["rows"], untied_one["found"]) == (ROWS, [])
    # Whether the values are equal is not known: nothing says that the two are meant to be apart.
    assert untied_one["skipped"] == ["TA911", *flat, "TA917", "TA918"]


of_peft = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning",
    "ignore:Model has `tie_word_embeddings=True` and a tied layer:UserWarning",
)


@of_peft
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"trainable_token_indices": [1, 2]},
        {"modules_to_save": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
        {"target_modules": ["embed_tokens", "lm_head"]},
    ],
    ids=["elsewhere", "trainable tokens", "modules_to_save", "lora"],
)
def test_peft_wrappers_are_understood(tie: bool, options: dict[str, Any]) -> None:
    if not tie and options.get("ensure_weight_tying"):
        options = {**options, "ensure_weight_tying": False}
    model = adapted(tie, **options)
    assert find_tables(model).tied is tie
    assert found(audit_module(model, None, trained_by(model))) == {}


@of_peft
def test_a_copy_that_peft_makes_of_one_side_is_a_warning() -> None:
    model = adapted(True, modules_to_save=["embed_tokens"])
    finding = only(audit_module(model, None, trained_by(model)), "TA911")
    assert finding.severity is Severity.WARNING
    assert "PEFT's ModulesToSaveWrapper made the copy" in finding.message


@of_peft
def test_an_adapter_on_one_side_of_a_tie_is_a_warning() -> None:
    model = adapted(True, target_modules=["embed_tokens"])
    finding = only(audit_module(model, None, trained_by(model)), "TA911")
    assert finding.message.startswith(
        "PEFT's lora.Embedding changes model.embed_tokens.weight and not lm_head"
    )


@of_peft
def test_what_an_adapter_adds_is_named() -> None:
    model = adapted(
        False, target_modules=["embed_tokens", "lm_head"], init_lora_weights=False, lora_dropout=0.5
    )
    report = audit_module(model.train())
    assert found(report) == {"TA917": "note", "TA918": "note"}
    assert "PEFT's lora.Embedding" in only(report, "TA917").message
    assert "PEFT's lora.Linear" in only(report, "TA918").message


# --- TA911 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equal", [True, False])
def test_a_tied_class_with_two_tables_is_an_error(equal: bool) -> None:
    model = llama()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() * (1 if equal else 2))
    report = audit_module(model)
    assert found(report) == {"TA911": "error"}
    assert ("equal so far" if equal else "different") in only(report, "TA911").message


def test_an_untied_configuration_with_one_table_is_an_error() -> None:
    model = llama(tie=False)
    model.lm_head.weight = model.model.embed_tokens.weight
    finding = only(audit_module(model), "TA911")
    assert (finding.severity, finding.claims[-1].at.pointer) == (Severity.ERROR, "/tie_word_embeddings")
    assert "one parameter, but the configuration says untied" in finding.message


@pytest.mark.parametrize("make", [plain, lambda: llama(tie=False)])
def test_a_copy_that_looks_tied_is_a_warning(make: Any) -> None:
    model = make()
    tables = find_tables(model)
    assert tables.output_module is not None
    tables.output_module.weight = nn.Parameter(tables.input_weight.detach().clone())
    report = audit_module(model)
    assert found(report) == {"TA911": "warning"}
    assert "it looks tied and is not" in only(report, "TA911").why


def test_two_parameters_over_one_storage_are_a_warning_and_held_twice_an_error() -> None:
    model = plain()
    model.head.weight = nn.Parameter(model.embedding.weight.detach())
    assert found(audit_module(model)) == {"TA911": "warning"}
    report = audit_module(model, None, sgd(model))
    assert found(report) == {"TA911": "warning", "TA912": "error"}
    assert "held 2 times: in group 0, group 0" in only(report, "TA912").message


def test_two_parameters_over_one_storage_are_held_once_where_one_of_them_is_frozen() -> None:
    model = plain()
    model.head.weight = nn.Parameter(model.embedding.weight.detach(), requires_grad=False)
    optimizer = torch.optim.SGD([model.embedding.weight], lr=0.1)
    assert "TA912" not in found(audit_module(model, None, optimizer))


def test_a_tie_that_the_model_had_can_be_made_again() -> None:
    model = llama()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach() + 1)
    model.tie_weights()
    assert found(audit_module(model)) == {}


# --- TA912 ----------------------------------------------------------------------------------------------


def test_a_tie_that_is_made_after_the_optimizer_leaves_a_stale_parameter() -> None:
    model = plain()
    groups = [
        {"params": [model.embedding.weight, *model.mixer.parameters()]},
        {"params": [model.head.weight]},
    ]
    optimizer = torch.optim.AdamW(groups)
    model.head.weight = model.embedding.weight
    finding = only(audit_module(model, None, optimizer), "TA912")
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("group 1 holds a table that is no longer the model's")


def test_an_input_that_is_bound_after_the_optimizer_was_made_is_an_error_that_names_the_group() -> None:
    model = plain()
    optimizer = torch.optim.AdamW(
        [{"params": list(model.mixer.parameters())}, {"params": [model.embedding.weight]}]
    )
    model.embedding.weight = model.head.weight
    finding = only(audit_module(model, None, optimizer), "TA912")
    assert finding.severity is Severity.ERROR
    assert finding.message == "AdamW does not hold embedding.weight; group 1 holds an old one instead"
    assert finding.claims[1].at.pointer == "/param_groups/1/params/0"


def test_new_embeddings_after_the_optimizer_was_made_are_an_error() -> None:
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters())
    model.set_input_embeddings(nn.Embedding(ROWS, HIDDEN))
    model.tie_weights()
    finding = only(audit_module(model, None, optimizer), "TA912")
    assert "does not hold model.embed_tokens.weight; group 0 holds an old one" in finding.message
    assert f"[{ROWS}, {HIDDEN}]" in finding.claims[1].says
    assert found(audit_module(model, None, torch.optim.AdamW(model.parameters()))) == {}


def test_a_resize_after_a_step_leaves_moments_of_the_old_shape() -> None:
    """transformers keeps the parameter and changes its data."""
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.tensor([[1, 2, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    assert found(audit_module(model, None, optimizer)) == {}
    model.resize_token_embeddings(ROWS + 64, mean_resizing=False)
    finding = only(audit_module(model, None, optimizer), "TA912")
    assert (finding.severity, f"moments of it are [{ROWS}, {HIDDEN}]" in finding.message) == (
        Severity.ERROR,
        True,
    )
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()


def test_a_table_that_no_group_holds_is_an_error_unless_it_is_frozen() -> None:
    model = plain()
    optimizer = torch.optim.SGD([*model.mixer.parameters(), model.head.weight], lr=0.1)
    assert found(audit_module(model, None, optimizer)) == {"TA912": "error"}
    model.embedding.weight.requires_grad_(False)
    assert found(audit_module(model, None, optimizer)) == {}


def test_all_optimizers_of_a_run_count_together() -> None:
    model = plain()
    first = torch.optim.SGD([model.embedding.weight, *model.mixer.parameters()], lr=0.1)
    second = torch.optim.AdamW([model.head.weight])
    assert found(audit_module(model, None, [first, second])) == {}
    third = torch.optim.AdamW([model.head.weight])
    report = audit_module(model, None, [first, second, third])
    message = only(report, "TA912").message
    assert message == "head.weight is held 2 times: in group 0 of optimizer 2, group 0 of optimizer 3"


def test_an_optimizer_of_another_model_is_an_error() -> None:
    assert found(audit_module(plain(), None, sgd(plain()))) == {"TA912": "error"}


@pytest.mark.parametrize("flat", [True, False])
def test_an_optimizer_with_copies_of_its_own_is_skipped(flat: bool) -> None:
    """As DeepSpeed's and Megatron's: master weights in float32, or one flat tensor of them."""
    model = plain().to(torch.bfloat16)
    masters = [nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
    if flat:
        masters = [nn.Parameter(torch.cat([master.detach().flatten() for master in masters]))]
    report = audit_module(model, None, torch.optim.AdamW(masters))
    assert found(report) == {}
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    assert "master weights" in reasons["TA912"]


# --- TA913 ----------------------------------------------------------------------------------------------


def test_a_padding_index_at_the_pad_token_is_right() -> None:
    assert found(audit_module(plain(padding_idx=PAD), tokenizer()), own=False) == {"TA108": "note"}


def test_a_padding_index_at_another_row_is_a_warning_with_both_texts() -> None:
    message = only(audit_module(plain(padding_idx=5), tokenizer()), "TA913").message
    assert message == f'the padding index is 5 "w5", the pad token {PAD} "<pad>"'


def test_a_padding_index_of_a_frozen_table_is_a_note() -> None:
    report = audit_module(plain(padding_idx=5).requires_grad_(False), tokenizer())
    assert found(report) == {"TA913": "note"}


def test_minus_one_is_the_last_row() -> None:
    model = llama(pad_token_id=-1)
    assert model.model.embed_tokens.padding_idx == ROWS - 1
    finding = only(audit_module(model), "TA913")
    assert finding.message == "the padding index was given as -1, which is the last row: 319"
    assert "as an output it still does" in finding.why


def test_padding_with_the_end_of_sequence_token_is_a_warning() -> None:
    report = audit_module(plain(padding_idx=EOS), tokenizer(pad="</s>"))
    assert only(report, "TA913").message == f'the padding index is the end-of-sequence token {EOS} "</s>"'


# --- TA914 to TA916 -------------------------------------------------------------------------------------


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.tensor([[1, 2, 1]])).sum().backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("kind", ["AdamW", "SparseAdam", "Adagrad", "SGD", "SGD that decays"])
@pytest.mark.parametrize("make", [plain, tied])
def test_sparse_gradients_are_an_error_where_the_optimizer_refuses_them_in_its_first_step(
    kind: str, make: Any
) -> None:
    model = make(sparse=True)
    options: dict[str, Any] = {"lr": 0.1}
    if kind == "SGD that decays":
        options["weight_decay"] = 0.1
    optimizer = getattr(torch.optim, kind.split()[0])([model.embedding.weight], **options)
    others = torch.optim.SGD([one for one in model.parameters() if one is not model.embedding.weight], lr=0.1)
    severity = found(audit_module(model, None, [optimizer, others])).get("TA914")
    try:
        one_step(model, optimizer)
    except RuntimeError:
        assert severity == "error"
    else:
        assert severity == ("warning" if make is tied else None)


def test_dense_gradients_are_an_error_where_the_optimizer_takes_sparse_ones_only() -> None:
    model = plain()
    optimizer = torch.optim.SparseAdam(model.parameters())
    assert found(audit_module(model, None, optimizer)) == {"TA914": "error"}


def test_sparse_with_a_tied_output_is_a_warning_without_an_optimizer() -> None:
    assert found(audit_module(tied(sparse=True))) == {"TA914": "warning"}
    assert found(audit_module(plain(sparse=True))) == {}


def test_a_renormalising_lookup_is_an_error_with_a_tie_and_the_probe_does_not_renormalise() -> None:
    for make, severity in ((tied, "error"), (plain, "warning")):
        model = make(max_norm=0.5)
        before = model.embedding.weight.detach().clone()
        assert found(audit_module(model)) == {"TA915": severity}
        assert torch.equal(model.embedding.weight, before)
        assert model.embedding.max_norm == 0.5
        model.embedding(torch.arange(ROWS))
        assert not torch.equal(model.embedding.weight, before)


def test_gradients_scaled_by_frequency_are_a_warning_with_a_tie() -> None:
    assert found(audit_module(tied(scale_grad_by_freq=True))) == {"TA916": "warning"}
    assert found(audit_module(plain(scale_grad_by_freq=True))) == {"TA916": "note"}


# --- TA917 and TA918 ------------------------------------------------------------------------------------


def test_the_scale_and_the_cap_of_gemma_are_named() -> None:
    report = audit_module(gemma2())
    assert found(report, own=False) == {"TA917": "note", "TA918": "note"}
    assert "multiplies by 4 (the square root of 16)" in only(report, "TA917").message
    assert "capped softly at 30.0 (final_logit_softcapping)" in only(report, "TA918").message


def test_a_scale_of_logits_outside_of_the_module_is_named() -> None:
    fields = {"hidden_size": HIDDEN, "intermediate_size": 32, "num_hidden_layers": 1}
    config = CohereConfig(
        vocab_size=ROWS,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        **fields,
    )
    assert (
        "multiplied by 0.0625 (logit_scale)" in only(audit_module(CohereForCausalLM(config)), "TA918").message
    )


class Odd(nn.Linear):
    """An output that does something to its product."""

    def __init__(self, change: Any) -> None:
        super().__init__(HIDDEN, ROWS)
        self.change = change

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.change(super().forward(input))


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        (lambda x: 2.5 * torch.tanh(x / 2.5), "note", "caps softly at 2.5"),
        (lambda x: x / 3, "note", "multiplies by 0.333333"),
        (lambda x: x + 1, "warning", "gives other values, by up to 1"),
        (lambda x: x[..., :2], "warning", f"gives the shape (4, 2) and not (4, {ROWS})"),
        (lambda x: (x,), "warning", "gives tuple"),
    ],
)
def test_what_an_output_does_beside_the_product_is_named(change: Any, severity: str, words: str) -> None:
    model = plain()
    model.head = Odd(change)
    report = audit_module(model)
    assert found(report) == {"TA918": severity}
    assert words in only(report, "TA918").message


class Shifted(nn.Embedding):
    """A lookup that is off by one row."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward((input + 1) % self.num_embeddings)


def test_a_lookup_that_gives_other_rows_is_a_warning() -> None:
    model = plain()
    model.embedding = Shifted(ROWS, HIDDEN)
    assert found(audit_module(model)) == {"TA917": "warning"}


def test_a_class_of_transformers_with_a_lookup_of_its_own_is_a_note() -> None:
    """I-BERT's gives the rows and their scale."""
    fields = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.IBertConfig(vocab_size=ROWS, hidden_size=HIDDEN, **fields)
    report = audit_module(transformers.IBertForMaskedLM(config))
    assert found(report) == {"TA917": "note"}
    assert "QuantEmbedding computes it in its own way" in only(report, "TA917").message


def test_a_lookup_that_fails_is_skipped_with_the_reason() -> None:
    class Fails(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("not\ntoday")

    model = plain()
    model.embedding = Fails(ROWS, HIDDEN)
    report = audit_module(model)
    reasons = {skip.rule.code: skip.reason for skip in report.skipped}
    assert reasons["TA917"].endswith("ids failed: not")
    assert report.unreadable == ()


def test_rows_that_are_not_finite_break_the_product_with_one_hot_rows() -> None:
    model = plain()
    with torch.no_grad():
        model.embedding.weight[7] = torch.nan  # not among the ids that are asked for
    finding = only(audit_module(model), "TA917")
    assert (finding.severity, "not finite" in finding.message) == (Severity.WARNING, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_rounding_is_no_deviation(dtype: torch.dtype) -> None:
    model = tied().to(dtype)
    assert found(audit_module(model)) == {}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert found(audit_module(tied())) == {}


def test_hooks_are_named_and_not_called() -> None:
    calls = []

    def counts(module: nn.Module, args: Any, output: Any = None) -> None:
        calls.append(module)

    def keeps_new_rows(gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    model = plain()
    model.embedding.register_forward_hook(counts)
    model.embedding.register_forward_pre_hook(counts)
    model.embedding.weight.register_hook(keeps_new_rows)
    model.head.register_forward_hook(counts)
    report = audit_module(model)
    messages = [finding.message for finding in report.findings]
    assert found(report) == {"TA917": "note", "TA918": "note"}
    assert calls == []
    assert sum("counts" in message for message in messages) == 2
    assert any("hook on its gradient: test_hooks_are_named" in message for message in messages)
    model.embedding(torch.tensor([1]))
    assert len(calls) == 2


@pytest.mark.parametrize("make", [plain, tied])
def test_the_hooks_of_a_gradient_ledger_are_not_named(make: Any) -> None:
    model = make()
    optimizer = sgd(model)
    with GradientLedger(model):
        assert model.embedding._forward_hooks
        assert found(audit_module(model, None, optimizer)) == {}


class Int8Embedding(nn.Module):
    """A table of bytes with a scale for each row, as quantised checkpoints are loaded."""

    def __init__(self, source: nn.Embedding) -> None:
        super().__init__()
        scale = source.weight.detach().abs().amax(1, keepdim=True) / 127
        self.num_embeddings, self.embedding_dim = source.weight.shape
        self.register_buffer("scale", scale)
        self.weight = nn.Parameter(
            (source.weight.detach() / scale).round().to(torch.int8), requires_grad=False
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.weight[ids] * self.scale[ids]


def test_a_quantised_table_is_named() -> None:
    model = plain()
    model.embedding = Int8Embedding(model.embedding)
    report = audit_module(model, input="embedding")
    assert found(report, own=False) == {"TA917": "note"}
    assert "is quantised: Int8Embedding of int8 values" in only(report, "TA917").message
    assert report.summary.input is not None
    assert (report.summary.input.rows, report.summary.input.dtype) == (ROWS, "I8")


def test_a_table_on_the_meta_device_is_named() -> None:
    with torch.device("meta"):
        model = llama()
    report = audit_module(model)
    assert found(report, own=False) == {"TA917": "note", "TA918": "note"}
    assert "on the meta device" in only(report, "TA917").message


def test_an_offloaded_table_is_named_and_not_moved() -> None:
    from accelerate import cpu_offload

    model = llama(tie=False)
    cpu_offload(model, execution_device=torch.device("cpu"))
    report = audit_module(model)
    assert found(report) == {"TA917": "note", "TA918": "note"}
    assert "placed by accelerate" in only(report, "TA917").message
    assert model.model.embed_tokens.weight.is_meta


# --- nothing changes ------------------------------------------------------------------------------------


class Noisy(nn.Module):
    """A lookup that a training run may have: dropout, a counter in a buffer, a mode of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Embedding(ROWS, HIDDEN)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        torch.rand(3)
        return self.dropout(self.base_layer(ids))


@pytest.mark.parametrize("mode", [True, False])
def test_the_audit_leaves_the_model_and_the_generators_as_they_were(mode: bool) -> None:
    model = plain(max_norm=1.0)
    model.embedding = Noisy()
    model.train(mode)
    model.mixer.eval()
    model(torch.tensor([[1, 2]])).sum().backward()
    optimizer = sgd(model)
    state = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    modes = [module.training for module in model.modules()]
    generator = torch.get_rng_state()
    assert found(audit_module(model, tokenizer(), optimizer)) == {}
    assert torch.equal(torch.get_rng_state(), generator)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    after = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(map(torch.equal, gradients, after))
    assert torch.is_grad_enabled()


def test_a_module_is_left_as_it_was_when_the_probe_fails() -> None:
    class Fails(nn.Embedding):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            raise RuntimeError

    model = plain()
    model.embedding = Fails(ROWS, HIDDEN, max_norm=2.0)
    model.embedding.register_forward_hook(lambda *_: None)
    audit_module(model)
    assert (model.embedding.training, model.embedding.max_norm) == (True, 2.0)
    assert len(model.embedding._forward_hooks) == 1


# --- rows against the tokenizer -------------------------------------------------------------------------


def codes(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_tokens_without_a_row_are_found_as_in_files() -> None:
    many = tokenizer(*(f"<new{number}>" for number in range(8)))
    report = audit_module(plain(), many)
    assert "TA102" in codes(report)
    finding = next(finding for finding in report.findings if finding.rule == "TA102")
    assert f'{ROWS} "<new6>"' in finding.message


def test_the_same_rows_are_found_in_memory_and_in_files(tmp_path: Path) -> None:
    model, tokens = llama(pad_token_id=PAD), tokenizer("<more>", bos_token="w1")
    model.resize_token_embeddings(300, mean_resizing=False)
    model.config.vocab_size = 310
    model.save_pretrained(tmp_path)
    tokens.save_pretrained(tmp_path)
    selected = ["TA1", "TA3"]
    in_files = tokaudit.check(tmp_path, select=selected)
    in_memory = audit_module(model, tokens)
    assert {"TA101", "TA103", "TA301"} <= codes(in_files)
    files = {(finding.rule, finding.severity, finding.subject) for finding in in_files.findings}
    assert {
        (finding.rule, finding.severity, finding.subject)
        for finding in in_memory.findings
        if finding.rule not in LIVE
    } == files


def test_a_tokenizer_of_the_tokenizers_library_and_a_path_are_taken(tmp_path: Path) -> None:
    tokens = tokenizer()
    tokens.save_pretrained(tmp_path)
    for given in (tokens, tokens.backend_tokenizer, tmp_path, str(tmp_path)):
        assert audit_module(plain(), given).summary.required_rows == ROWS - 6
    with pytest.raises(UsageError, match="found int"):
        audit_module(plain(), 3)


def test_an_output_of_other_rows_is_an_error() -> None:
    model = plain()
    model.head = nn.Linear(HIDDEN, ROWS - 8)
    report = audit_module(model, input="embedding", output="head")
    assert "TA105" in codes(report)


def test_an_output_bias_of_other_rows_is_an_error() -> None:
    model = plain()
    model.head.bias = nn.Parameter(torch.zeros(ROWS + 1))
    assert "TA106" in codes(audit_module(model))


# --- the report -----------------------------------------------------------------------------------------


def test_the_report_counts_parameters_with_and_without_the_tie() -> None:
    model = llama()
    summary = audit_module(model).summary
    total = sum(parameter.numel() for parameter in model.parameters())
    assert (summary.parameters, summary.parameters_untied) == (total, total + ROWS * HIDDEN)
    assert (summary.tied, summary.output) == (True, None)
    untied = audit_module(llama(tie=False)).summary
    assert untied.parameters == untied.parameters_untied == total + ROWS * HIDDEN
    assert untied.output is not None
    assert untied.output.name == "lm_head.weight"


def test_two_parameters_over_one_storage_count_once() -> None:
    model = plain()
    model.head.weight = nn.Parameter(model.embedding.weight.detach())
    summary = audit_module(model).summary
    total = sum(parameter.numel() for parameter in model.parameters())
    assert (summary.parameters, summary.parameters_untied) == (total - ROWS * HIDDEN, total)


@pytest.mark.parametrize("format", names())
def test_every_reporter_takes_the_report(format: str) -> None:
    from importlib import import_module

    model = llama()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach())
    report = audit_module(model, tokenizer(), sgd(plain()))
    text = import_module(f"tokaudit.reporters.{format}").render((report,), View())
    assert "TA911" in text
    assert "TA912" in text


def test_the_json_report_is_valid_and_the_terminal_shows_the_parameters() -> None:
    from tokaudit.reporters import terminal

    report = audit_module(llama())
    schema = json.loads(Path(json_reporter.__file__).with_name("report.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(json_reporter.render((report,), View())), schema)
    total = sum(parameter.numel() for parameter in llama().parameters())
    expected = f"{total:,} ({total + ROWS * HIDDEN:,} without the tie), {total * 4 / 1024:.1f} KiB"
    assert expected in terminal.render((report,), View())


@pytest.mark.parametrize("code", sorted(LIVE))
def test_the_rules_of_live_modules_are_live(code: str) -> None:
    assert LIVE[code].live


def test_what_is_no_module_is_said_in_one_line() -> None:
    with pytest.raises(UsageError, match="Module, found str"):
        audit_module("fixtures/tinylm")  # type: ignore[arg-type]
