"""The rules on the tokenizer's own files, where a fixture cannot say it: ids of transformers, wording."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models import base, build, changed

import tokaudit
import tokaudit.load
from tokaudit.findings import Finding
from tokaudit.report import Report
from tokaudit.rules.vocabulary._appended import appended

Json = dict[str, Any]


def audit(tmp_path: Path, change: Json, name: str = "llama") -> Report:
    return tokaudit.check(build(changed(base(name), change), tmp_path / "model"))


def found(report: Report, code: str) -> Finding:
    return next(finding for finding in report.findings if finding.rule == code)


def added(content: str, **flags: bool) -> Json:
    return {"content": content, "special": True, "normalized": False, **flags}


DECODER = {"400": added("<late>"), "350": added("<early>"), "305": added("<|end|>")}


@pytest.mark.parametrize(
    "config",
    [
        {"added_tokens_decoder": DECODER},
        {"extra_special_tokens": ["<image>", "<|end|>", "<audio>"]},
        {"pad_token": "<none>", "eos_token": "<stop>"},
        {"added_tokens_decoder": DECODER, "pad_token": "<none>", "extra_special_tokens": ["<image>"]},
        {"tokenizer_class": "CohereTokenizer"},
        {"tokenizer_class": "GPT2Tokenizer", "extra_special_tokens": ["<image>"]},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
    ],
    ids=[
        "a decoder",
        "extra tokens",
        "roles",
        "all of them",
        "class defaults",
        "a rebuilding class",
        "nothing",
    ],
)
@pytest.mark.parametrize(
    "beside", [{}, {"<file-b>": 900, "<file-a>": 500}], ids=["alone", "added_tokens.json"]
)
def test_appended_tokens_get_the_ids_that_auto_tokenizer_gives(
    config: Json, beside: Json, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.0")
    files: Json = {"tokenizer_config.json": config}
    if beside:
        files["added_tokens.json"] = beside
    model = build(changed(base("llama"), {"json": files}), tmp_path / "model")
    told = {token.content: token.id for token in appended(tokaudit.load.load(model))}
    vocabulary = transformers.AutoTokenizer.from_pretrained(model).get_vocab()
    assert told == {content: id for content, id in vocabulary.items() if id >= 320}


@pytest.mark.parametrize("extra_ids", [None, 0, 7])
def test_t5_appends_the_sentinels_that_auto_tokenizer_appends(extra_ids: int | None, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.0")
    config: Json = {"tokenizer_class": "T5Tokenizer", "backend": None}
    if extra_ids is not None:
        config["extra_ids"] = extra_ids
    model = build(changed(base("t5"), {"json": {"tokenizer_config.json": config}}), tmp_path / "model")
    told = {token.content: token.id for token in appended(tokaudit.load.load(model))}
    vocabulary = transformers.AutoTokenizer.from_pretrained(model).get_vocab()
    assert told == {content: id for content, id in vocabulary.items() if id >= 320}
    assert len(told) == (100 if extra_ids is None else extra_ids)


def test_a_token_that_gets_the_id_it_declares_is_not_appended_elsewhere(tmp_path: Path) -> None:
    change = {"json": {"tokenizer_config.json": {"pad_token": "<p>"}, "added_tokens.json": {"<p>": 320}}}
    assert "TA412" not in {finding.rule for finding in audit(tmp_path, change).findings}


def test_the_place_where_codellama_fills_in_is_never_appended_for_the_model(tmp_path: Path) -> None:
    config = {
        "tokenizer_class": "CodeLlamaTokenizer",
        "fill_token": "<FILL_ME>",
        "extra_special_tokens": ["<FILL_ME>"],
    }
    change = {
        "json": {"tokenizer_config.json": config},
        "tokenizer": {"pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "Fuse"}},
    }
    assert "TA412" not in {finding.rule for finding in audit(tmp_path, change).findings}


def test_special_tokens_of_a_class_with_its_own_code_are_not_judged(tmp_path: Path) -> None:
    config = {"auto_map": {"AutoTokenizer": ["t.T", None]}, "extra_special_tokens": ["<image>"]}
    report = audit(tmp_path, {"json": {"tokenizer_config.json": config}})
    assert any(skipped.rule.code == "TA412" and "auto_map" in skipped.reason for skipped in report.skipped)


def test_files_that_swap_two_tokens_are_one_finding_with_both(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    vocab = json.loads((model / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    vocab["et"], vocab["ea"] = vocab["ea"], vocab["et"]
    (model / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    findings = [finding for finding in tokaudit.check(model).findings if finding.rule == "TA401"]
    assert [finding.message for finding in findings] == [
        'vocab.json and tokenizer.json disagree about 2 tokens: "et" is 257 and 258, "ea" is 258 and 257'
    ]
    assert [str(claim.at) for claim in findings[0].claims[:2]] == [
        "vocab.json#/et",
        "tokenizer.json#/model/vocab/et",
    ]


def test_a_vocabulary_file_of_the_tokenizer_before_tokens_were_added_agrees(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    document = json.loads((model / "tokenizer.json").read_text("utf-8"))
    (model / "vocab.json").write_text(json.dumps(document["model"]["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(merge) for merge in document["model"]["merges"])
    (model / "merges.txt").write_text("#version: 0.2\n" + merges + "\n", encoding="utf-8")
    assert tokaudit.check(model).findings == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda merges: merges[:-1], "number 47 is missing and"),
        (lambda merges: [*merges, ("q", "q")], 'number 48 is "q q" and missing'),
        (lambda merges: [("q", "q"), *merges[1:]], 'number 0 is "q q" and'),
    ],
)
def test_the_first_merge_that_differs_is_named(
    change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]], says: str, tmp_path: Path
) -> None:
    model = build(base("llama"), tmp_path / "model")
    document = json.loads((model / "tokenizer.json").read_text("utf-8"))
    merges = [tuple(merge) for merge in document["model"]["merges"]]
    lines = [" ".join(merge) for merge in change(merges)]
    (model / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]), encoding="utf-8")
    message = found(tokaudit.check(model), "TA401").message
    assert f"list different merges ({len(lines)} and {len(merges)}): " in message
    assert says in message


def test_a_reserved_place_that_a_special_token_took_is_no_disagreement(tmp_path: Path) -> None:
    model = build(base("bert"), tmp_path / "model")
    vocab = json.loads((model / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    lines = sorted(vocab, key=vocab.__getitem__)
    lines[4] = "[unused4]"  # the place of [MASK]
    (model / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "TA401" not in {finding.rule for finding in tokaudit.check(model).findings}
    lines[100], lines[101] = "something", "else"
    (model / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "disagree about 2 tokens: 100 is" in found(tokaudit.check(model), "TA401").message


def test_what_is_not_stated_is_the_reason_why_a_rule_is_skipped(tmp_path: Path) -> None:
    report = audit(tmp_path, {"json": {"tokenizer_config.json": {"model_max_length": None}}}, "bert")
    (skipped,) = [skip.reason for skip in report.skipped if skip.rule.code == "TA410"]
    assert skipped == "tokenizer_config.json#/model_max_length is not stated"


def test_a_vocabulary_file_that_cannot_be_read_is_a_reason_and_no_agreement(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "merges.txt").write_text("a b c\n", encoding="utf-8")
    report = tokaudit.check(model)
    assert 'merges.txt holds a line that is no pair: "a b c"' in {s.reason for s in report.skipped}


def test_a_renumbered_token_that_lands_on_a_live_id_says_on_which(tmp_path: Path) -> None:
    report = audit(tmp_path, {"tokenizer": {"remove": [200]}})
    assert 'becomes 303, the id of "' in found(report, "TA403").message


def test_an_added_token_without_text_is_dropped_on_load(tmp_path: Path) -> None:
    tokens = base("llama")["tokenizer"]["added"]
    change = {"tokenizer": {"added": [*tokens, {"id": 320, "content": "", "special": True}]}}
    assert '"" says 320 and is dropped' in found(audit(tmp_path, change), "TA403").message


def test_holes_are_listed_as_runs(tmp_path: Path) -> None:
    report = audit(tmp_path, {"tokenizer": {"remove": [20, 21, 22, 40]}}, "bert")
    assert found(report, "TA404").message == "4 ids below 320 without a token: 20-22, 40"


def test_a_class_name_in_another_case_is_what_was_meant(tmp_path: Path) -> None:
    report = audit(tmp_path, {"json": {"tokenizer_config.json": {"tokenizer_class": "LLaMATokenizer"}}})
    assert 'did you mean "LlamaTokenizer"?' in found(report, "TA415").message


def test_an_unknown_class_is_found_in_a_tokenizer_alone(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    stated = json.loads((model / "tokenizer_config.json").read_text("utf-8"))
    stated["tokenizer_class"] = "NoSuchTokenizer"
    (model / "tokenizer_config.json").write_text(json.dumps(stated), "utf-8")
    (model / "config.json").unlink()
    assert found(tokaudit.check(model), "TA415").severity.word == "warning"


def test_the_class_of_a_model_type_that_transformers_lacks_is_a_note(tmp_path: Path) -> None:
    change = {
        "json": {
            "config.json": {"model_type": "hf_olmo"},
            "tokenizer_config.json": {"tokenizer_class": "OLMoTokenizer"},
        }
    }
    assert found(audit(tmp_path, change), "TA415").severity.word == "note"


@pytest.mark.parametrize(("limit", "fires"), [(128, False), (129, True)])
def test_positions_are_the_stated_number_where_the_table_has_more_rows(
    limit: int, fires: bool, tmp_path: Path
) -> None:
    table = {"bert.embeddings.position_embeddings.weight": {"dtype": "F32", "shape": [130, 8]}}
    change = {
        "json": {"tokenizer_config.json": {"model_max_length": limit}},
        "safetensors": {"model.safetensors": table},
    }
    codes = {finding.rule for finding in audit(tmp_path, change, "bert").findings}
    assert ("TA410" in codes) is fires


def test_a_picture_encoders_positions_are_not_the_texts(tmp_path: Path) -> None:
    table = {"vision_model.embeddings.position_embedding.weight": {"dtype": "F32", "shape": [50, 8]}}
    report = audit(tmp_path, {"safetensors": {"model.safetensors": table}})
    assert "TA410" not in {finding.rule for finding in report.findings}


def test_findings_about_a_hundred_thousand_tokens_take_seconds_and_not_hours(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    crowded = {"type": "BPE", "vocab": {f"t{number}": 0 for number in range(100_000)}, "merges": []}
    extra = [f"<e{number}>" for number in range(50_000)]
    files: dict[str, dict[str, Json]] = {
        "appended": {
            "tokenizer.json": {"model": model, "added_tokens": []},
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "additional_special_tokens": extra,
            },
            "config.json": {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "vocab_size": 25_000,
            },
        },
        "one id": {"tokenizer.json": {"model": crowded, "added_tokens": []}},
    }
    rules: set[str] = set()
    before = time.process_time()
    for folder, documents in files.items():
        (tmp_path / folder).mkdir()
        for name, document in documents.items():
            (tmp_path / folder / name).write_text(json.dumps(document), "utf-8")
        rules |= {finding.rule for finding in tokaudit.check(tmp_path / folder).findings}
    assert {"TA402", "TA412"} <= rules
    assert time.process_time() - before < 30


@pytest.mark.parametrize("part", ["normalizer", "decoder"])
def test_a_tokenizer_that_makes_gigabytes_of_a_word_cannot_be_used(part: str, tmp_path: Path) -> None:
    grow = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
    steps = {"type": "Sequence", f"{part}s": [grow] * 5}
    report = audit(tmp_path, {"tokenizer": {part: steps}})
    assert "it loads, but encoding and decoding a text fails" in found(report, "TA405").message


def test_a_tokenizer_that_lacks_the_characters_of_ordinary_text_can_be_used(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "[none]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": []}), "utf-8")
    report = tokaudit.check(tmp_path)
    assert "TA405" in {rule.code for rule in report.checked}
    assert "TA405" not in {finding.rule for finding in report.findings}


def test_a_byte_order_mark_before_tokenizer_json_is_named(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    file = model / "tokenizer.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    finding = found(tokaudit.check(model), "TA405")
    words = "it begins with a byte order mark (EF BB BF), which the tokenizers library refuses"
    assert finding.message == f"tokenizer.json cannot be used: {words}"
    assert finding.fix == "save it as UTF-8 without a byte order mark"
