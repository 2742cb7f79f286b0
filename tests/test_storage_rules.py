"""The storage rules, where a fixture cannot say it: several files at once, links, long lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models import base, build, changed

import tokaudit
from tokaudit.findings import Finding
from tokaudit.report import Report
from tokaudit.resize import Refused, Request, plan_resize

SHARDS = [f"model-0000{number}-of-00005.safetensors" for number in range(1, 6)]


def found(report: Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == code]


def with_index(tmp_path: Path, weight_map: dict[str, str]) -> Path:
    model = build(base("llama"), tmp_path / "model")
    (model / "model.safetensors").rename(model / SHARDS[0])
    whole = dict.fromkeys(("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"), SHARDS[0])
    index = {"metadata": {}, "weight_map": {**whole, **weight_map}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    return model


def test_missing_shards_are_one_finding_with_the_number_of_lost_tensors(tmp_path: Path) -> None:
    model = with_index(tmp_path, {f"t.{n}": SHARDS[1 + n % 4] for n in range(8)})
    (finding,) = found(tokaudit.check(model), "TA701")
    assert finding.message.startswith("4 weights files missing: ")
    assert finding.message.endswith("and 1 more, with 8 tensors")


@pytest.mark.parametrize("parts", [0, 10_001, 999_999_999])
def test_a_number_of_parts_that_nobody_saves_is_not_counted(tmp_path: Path, parts: int) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "model.safetensors").rename(model / f"model-1-of-{parts}.safetensors")
    assert not found(tokaudit.check(model), "TA701")


def test_shards_without_an_index_are_resized_only_where_all_are_there(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "model.safetensors").rename(model / "model-00001-of-00001.safetensors")
    assert plan_resize(model, Request(rows=400)).rows_after == 400
    (model / "model-00001-of-00001.safetensors").rename(model / "model-00001-of-00002.safetensors")
    with pytest.raises(Refused, match="model-00002-of-00002"):
        plan_resize(model, Request(rows=400))


def test_damaged_shards_of_one_cause_are_one_finding_and_of_another_cause_another(tmp_path: Path) -> None:
    model = with_index(tmp_path, {f"t.{n}": SHARDS[n] for n in (1, 2, 3)})
    (model / SHARDS[1]).write_bytes(bytes(4))
    (model / SHARDS[2]).write_bytes(bytes(5))
    (model / SHARDS[3]).write_bytes((100).to_bytes(8, "little") + b"[" + b" " * 99)
    findings = found(tokaudit.check(model), "TA702")
    assert len(findings) == 2
    assert any("2 weights files are damaged" in finding.message for finding in findings)


def test_two_hundred_thousand_wrong_entries_are_one_short_finding(tmp_path: Path) -> None:
    model = with_index(tmp_path, {f"ghost.{n}": SHARDS[0] for n in range(200_000)})
    (finding,) = found(tokaudit.check(model), "TA703")
    assert finding.message.startswith("200000 tensors not where the index says")
    assert len(finding.message) < 400
    assert len(finding.claims) < 10


def test_a_link_out_of_the_directory_is_reported_and_never_followed(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    outside = tmp_path / "secret.json"
    outside.write_text('{"secret": "s3cr3t"}')
    (model / "generation_config.json").unlink()
    (model / "generation_config.json").symlink_to(outside)
    (model / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (model / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    report = tokaudit.check(model)
    files = {claim.at.file for finding in found(report, "TA711") for claim in finding.claims}
    assert files == {"generation_config.json", "model.safetensors"}
    assert not any("s3cr3t" in f"{finding}" for finding in report.findings)


def test_a_folder_of_templates_may_lie_outside_no_more_than_a_file(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    templates = model / "additional_chat_templates"
    (tmp_path / "outside").mkdir()
    for folder, codes in ((model / "inside", {"TA311"}), (tmp_path / "outside", {"TA711"})):
        folder.mkdir(exist_ok=True)
        (folder / "rag.jinja").write_text("{{ '<|nobody|>' }}")
        templates.symlink_to(folder)
        assert {finding.rule for finding in tokaudit.check(model).findings} == codes
        templates.unlink()


def test_an_adapters_own_prefix_is_as_it_should_be(tmp_path: Path) -> None:
    change = {
        "safetensors": {
            "model.safetensors": None,
            "adapter_model.safetensors": {
                "base_model.model.lm_head.lora_A.weight": {"dtype": "F32", "shape": [2, 8]}
            },
        }
    }
    report = tokaudit.check(build(changed(base("llama"), change), tmp_path / "model"))
    assert not found(report, "TA706")
    assert any(s.rule.code == "TA706" and "adapter" in s.reason for s in report.skipped)


def test_hostile_tensor_names_do_not_break_a_finding(tmp_path: Path) -> None:
    name = "_orig_mod.\x1b[31m::error::\n" + "x" * 500
    change = {"safetensors": {"model.safetensors": {name: {"dtype": "F32", "shape": [2]}}}}
    (finding,) = found(tokaudit.check(build(changed(base("llama"), change), tmp_path / "model")), "TA706")
    assert "\x1b" not in finding.message
    assert len(finding.message) < 300
