"""Rules on special tokens where one description of a fixture does not tell the whole story."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models import base, build, changed

import tokaudit
from tokaudit import audit
from tokaudit.contract import Options
from tokaudit.errors import Unreadable
from tokaudit.findings import Finding, Location, Severity
from tokaudit.formats import chat_template
from tokaudit.load import load
from tokaudit.report import Report, Verdict
from tokaudit.rules.special._kind import turn_ends

Change = dict[str, dict[str, Any]]


def model(out: Path, name: str = "llama", *, template: str | None = None, **files: dict[str, Any]) -> Path:
    """A base with fields of its JSON files replaced: ``config={"eos_token_id": None}`` writes null."""
    description = base(name)
    for file, fields in files.items():
        description["json"].setdefault(f"{file}.json", {}).update(fields)
    if template is not None:
        description["text"] = {"chat_template.jinja": template}
    return build(description, out)


def report(directory: Path, **options: Any) -> Report:
    return audit.run(load(directory, options=Options(**options)))


def findings(directory: Path, code: str) -> list[Finding]:
    return [finding for finding in report(directory).findings if finding.rule == code]


def reason(directory: Path, code: str) -> str:
    (skipped,) = [skip.reason for skip in report(directory).skipped if skip.rule.code == code]
    return skipped


@pytest.mark.parametrize(
    "value", [True, 2.0, "2", [[2]], [2, "x", None, True], {"id": 2}, -1, 320, 2**63, list(range(100_000))]
)
@pytest.mark.parametrize("file", ["config", "generation_config"])
def test_any_wrong_id_is_one_error_and_the_audit_goes_on(tmp_path: Path, file: str, value: Any) -> None:
    found = report(model(tmp_path / "model", **{file: {"eos_token_id": value}}))
    (finding,) = [finding for finding in found.findings if finding.rule == "TA301"]
    assert finding.severity is Severity.ERROR
    assert finding.claims[0].at.file == f"{file}.json"
    assert len(finding.message) < 400
    assert found.unreadable == ()
    assert {"TA101", "TA205", "TA305"} <= {ref.code for ref in found.checked}


@pytest.mark.parametrize(
    "fields",
    [
        {"eos_token": 2},
        {"bos_token": ["<s>"]},
        {"additional_special_tokens": "x"},
        {"extra_special_tokens": [7]},
        {"unk_token": {"lstrip": True}},
        {"pad_token": False},
    ],
)
@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
def test_a_special_token_of_a_wrong_type_is_an_error(
    tmp_path: Path, file: str, fields: dict[str, Any]
) -> None:
    (finding,) = findings(model(tmp_path / "model", **{file: fields}), "TA306")
    assert finding.severity is Severity.ERROR
    assert finding.claims[0].at.file == f"{file}.json"


def test_one_wrong_id_in_both_configurations_is_one_finding_with_both_places(tmp_path: Path) -> None:
    wrong = {"pad_token_id": 400}
    (finding,) = findings(model(tmp_path / "model", config=wrong, generation_config=wrong), "TA301")
    assert "config.json and generation_config.json pad_token_id are 400 (no token)" in finding.message
    assert [claim.at.file for claim in finding.claims[:2]] == ["config.json", "generation_config.json"]


def test_without_weights_the_rows_that_the_configuration_asks_for_count(tmp_path: Path) -> None:
    directory = model(tmp_path / "model", config={"pad_token_id": 320})
    found = report(directory, read_weights=False).findings
    assert ["asks for 320 rows" in finding.message for finding in found if finding.rule == "TA301"] == [True]


@pytest.mark.parametrize(
    ("config", "tokenizer_config"),
    [({"architectures": ["LlamaModel"]}, {}), ({}, {"tokenizer_class": "CLIPTokenizer"})],
)
def test_where_nothing_is_generated_the_pad_token_may_be_the_end_token(
    tmp_path: Path, config: dict[str, Any], tokenizer_config: dict[str, Any]
) -> None:
    directory = model(
        tmp_path / "model",
        config={"pad_token_id": 311, **config},
        generation_config={"pad_token_id": 311},
        tokenizer_config={"pad_token": "<|turn_end|>", **tokenizer_config},
    )
    assert reason(directory, "TA303") == "the model does not generate text"


def test_turns_end_only_where_the_tokenizers_text_is_generated(tmp_path: Path) -> None:
    encoder = model(tmp_path / "encoder", config={"architectures": ["LlamaModel"]})
    singer = music(tmp_path / "singer")
    (singer / "chat_template.jinja").write_text("{{ messages[0]['content'] + '</s>' }}", "utf-8")
    for directory in (encoder, singer):
        assert reason(directory, "TA312") == "the model does not generate the tokenizer's text"


def composite(out: Path, **config: Any) -> Path:
    """A vision-language model: the text part has its own section and table names."""
    description = base("llama")
    text = {**description["json"]["config.json"], "model_type": "llama"}
    tables = description["safetensors"]["model.safetensors"]
    description["json"]["config.json"] = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": 319,
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 8},
        **config,
    }
    description["safetensors"]["model.safetensors"] = {
        f"language_model.{name}": tensor for name, tensor in tables.items()
    }
    return build(description, out)


def test_a_field_of_the_text_part_is_named_with_its_section(tmp_path: Path) -> None:
    text = {**base("llama")["json"]["config.json"], "eos_token_id": [311, 999]}
    (finding,) = findings(composite(tmp_path / "model", text_config=text), "TA301")
    assert "text_config.eos_token_id" in finding.message
    assert str(finding.claims[0].at) == "config.json#/text_config/eos_token_id"


def test_a_stale_id_at_the_top_is_a_warning_where_the_text_part_states_the_one_in_use(tmp_path: Path) -> None:
    (finding,) = findings(composite(tmp_path / "model", pad_token_id=128_002), "TA301")
    assert finding.severity is Severity.WARNING


def test_ids_of_the_top_and_the_text_part_agree_silently(tmp_path: Path) -> None:
    found = report(composite(tmp_path / "model"))
    assert [finding.message for finding in found.findings if finding.rule.startswith("TA3")] == []


def test_ends_past_the_rows_are_a_warning_for_the_text_tower_of_an_image_model(tmp_path: Path) -> None:
    tower = {"architectures": ["SiglipTextModel"], "model_type": "siglip_text_model", "eos_token_id": 49407}
    (finding,) = findings(model(tmp_path / "model", config=tower), "TA301")
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("file", ["config", "generation_config"])
def test_null_where_the_tokenizer_has_the_token_is_a_note(tmp_path: Path, file: str) -> None:
    (finding,) = findings(model(tmp_path / "model", **{file: {"bos_token_id": None}}), "TA305")
    assert finding.severity is Severity.NOTE
    assert f"{file}.json bos_token_id: null" in finding.message


def test_an_end_token_that_only_config_leaves_open_is_fine(tmp_path: Path) -> None:
    assert findings(model(tmp_path / "model", config={"eos_token_id": None}), "TA304") == []


def test_stop_ids_at_the_top_come_before_those_of_a_part_and_null_is_none(tmp_path: Path) -> None:
    directory = composite(tmp_path / "model", eos_token_id=None)
    (directory / "generation_config.json").unlink()
    assert findings(directory, "TA304") == []
    assert [field.section for field in load(directory).stop_ids] == ["text_config"]


def test_the_default_of_the_class_is_what_generation_stops_at_where_no_file_says(tmp_path: Path) -> None:
    description = base("llama")
    del description["json"]["generation_config.json"]
    del description["json"]["config.json"]["eos_token_id"]
    (finding,) = findings(build(description, tmp_path / "model"), "TA304")
    assert "not stated, and its default is 2" in finding.message


def music(out: Path) -> Path:
    """A text encoder with the tokenizer's vocabulary, and a decoder that speaks audio codes."""
    description = base("t5")
    text = description["json"]["config.json"]
    description["json"]["config.json"] = {
        "architectures": ["MusicgenForConditionalGeneration"],
        "model_type": "musicgen",
        "text_encoder": text,
        "audio_encoder": {"model_type": "encodec"},
        "decoder": {
            "model_type": "musicgen_decoder",
            "vocab_size": 64,
            "hidden_size": 8,
            "num_codebooks": 1,
            "pad_token_id": 64,
            "bos_token_id": 64,
            "eos_token_id": None,
        },
        "tie_word_embeddings": False,
    }
    description["json"]["generation_config.json"] = {
        "bos_token_id": 64,
        "decoder_start_token_id": 64,
        "pad_token_id": 64,
    }
    shared = description["safetensors"]["model.safetensors"].pop("shared.weight")
    description["safetensors"]["model.safetensors"] = {
        "text_encoder.shared.weight": shared,
        "decoder.model.decoder.embed_tokens.0.weight": {"dtype": "F32", "shape": [65, 8]},
        "decoder.lm_heads.0.weight": {"dtype": "F32", "shape": [64, 8]},
    }
    return build(description, out)


def test_ids_of_a_decoder_with_its_own_vocabulary_are_measured_by_its_own_table(tmp_path: Path) -> None:
    found = report(music(tmp_path / "model"))
    loud = [f for f in found.findings if f.rule.startswith("TA3") and f.severity > Severity.NOTE]
    assert [finding.message for finding in loud] == []
    assert "not in the tokenizer's vocabulary" in reason(tmp_path / "model", "TA304")


def test_a_start_id_at_the_top_of_the_configuration_is_the_decoders(tmp_path: Path) -> None:
    directory = music(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text("utf-8"))
    (directory / "config.json").write_text(json.dumps({**config, "decoder_start_token_id": 65}), "utf-8")
    (finding,) = findings(directory, "TA313")
    assert "config.json decoder_start_token_id" in finding.message
    assert "the decoder's embeddings have 65 rows" in finding.message


def test_without_weights_a_text_encoder_beside_a_decoder_shows_two_vocabularies(tmp_path: Path) -> None:
    found = report(music(tmp_path / "model"), read_weights=False)
    (skipped,) = [skip.reason for skip in found.skipped if skip.rule.code == "TA304"]
    assert "not in the tokenizer's vocabulary" in skipped


def test_without_weights_a_decoder_behind_an_image_encoder_speaks_the_tokenizers_vocabulary(
    tmp_path: Path,
) -> None:
    description = base("llama")
    decoder = {**description["json"]["config.json"], "model_type": "trocr", "eos_token_id": 305}
    description["json"]["config.json"] = {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit"},
        "decoder": decoder,
    }
    del description["json"]["generation_config.json"]
    found = report(build(description, tmp_path / "model"), read_weights=False)
    assert "TA304" in [finding.rule for finding in found.findings]


def test_a_decoder_id_past_the_rows_of_its_own_table_is_an_error(tmp_path: Path) -> None:
    directory = music(tmp_path / "model")
    file = directory / "generation_config.json"
    file.write_text(
        file.read_text("utf-8").replace('"decoder_start_token_id": 64', '"decoder_start_token_id": 65')
    )
    (finding,) = findings(directory, "TA313")
    assert "the decoder's embeddings have 65 rows" in finding.message


@pytest.mark.parametrize(
    ("template", "code", "expected"),
    [
        ("{% for m in messages %}", "TA309", "Jinja2 does not parse it"),
        ("{% for m in messages %}", "TA311", "Jinja2 does not parse it"),
        ("{% for m in messages %}", "TA312", "Jinja2 does not parse it"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "TA312", "does not show which token ends"),
        (
            "{% for m in messages %}{{ m.content }}<|nowhere|>{% endfor %}",
            "TA312",
            "does not show which token ends",
        ),
    ],
)
def test_a_template_that_does_not_tell_is_skipped_with_the_reason(
    tmp_path: Path, template: str, code: str, expected: str
) -> None:
    assert expected in reason(model(tmp_path / "model", template=template), code)


@pytest.mark.parametrize("name", ["TA309", "TA311", "TA312"])
def test_without_a_template_the_rules_on_templates_say_so(tmp_path: Path, name: str) -> None:
    description = base("llama")
    del description["text"]
    assert reason(build(description, tmp_path / "model"), name) == "there is no chat template"


def test_each_of_several_templates_is_judged(tmp_path: Path) -> None:
    turn = "{% for m in messages %}{{ m.content }}%s{% endfor %}"
    description = base("llama")
    del description["text"]
    description["json"]["tokenizer_config.json"]["chat_template"] = [
        {"name": "default", "template": turn.replace("%s", "<|turn_end|>")},
        {"name": "tools", "template": turn.replace("%s", "<|end|>")},
    ]
    (finding,) = findings(build(description, tmp_path / "model"), "TA312")
    assert "the tools chat template" in finding.message
    assert finding.claims[0].at.pointer == "/chat_template/1/template"


def test_a_template_file_takes_the_place_of_the_ones_in_the_configuration(tmp_path: Path) -> None:
    stale = "{% for m in messages %}{{ m.content }}<|gone|>{% endfor %}"
    directory = model(tmp_path / "model", tokenizer_config={"chat_template": stale})
    assert [template.at.file for template in load(directory).templates] == ["chat_template.jinja"]
    assert findings(directory, "TA311") == []


def test_a_marker_that_is_declared_special_and_appended_is_left_to_another_rule(tmp_path: Path) -> None:
    directory = model(
        tmp_path / "model",
        template="{% for m in messages %}<|tool|>{{ m.content + eos_token }}{% endfor %}",
        tokenizer_config={"extra_special_tokens": ["<|tool|>"]},
    )
    assert findings(directory, "TA311") == []
    assert findings(directory, "TA306") == []
    assert [finding.severity for finding in findings(directory, "TA412")] == [Severity.ERROR]


def test_an_end_that_is_the_tokenizers_eos_is_left_to_the_rule_on_eos(tmp_path: Path) -> None:
    stops = {"eos_token_id": 305}
    directory = model(tmp_path / "model", config=stops, generation_config=stops)
    assert findings(directory, "TA312") == []
    assert [finding.severity for finding in findings(directory, "TA304")] == [Severity.ERROR]


def test_a_tokenizer_alone_is_judged_by_what_it_states(tmp_path: Path) -> None:
    directory = model(tmp_path / "model", tokenizer_config={"pad_token": "<|turn_end|>"})
    for file in ("config.json", "generation_config.json", "model.safetensors"):
        (directory / file).unlink()
    assert [finding.severity for finding in findings(directory, "TA303")] == [Severity.WARNING]
    skipped = {skip.rule.code: skip.reason for skip in report(directory).skipped}
    assert {code: skipped[code] for code in ("TA301", "TA302", "TA305", "TA308", "TA313")} == dict.fromkeys(
        ("TA301", "TA302", "TA305", "TA308", "TA313"), "there is no config.json"
    )


@pytest.mark.parametrize("marker", ["modules.json", "1_Pooling/config.json"])
def test_a_model_that_pools_is_not_asked_to_stop(tmp_path: Path, marker: str) -> None:
    stops = {"eos_token_id": 305}
    directory = model(tmp_path / "model", config=stops, generation_config=stops)
    (directory / marker).parent.mkdir(exist_ok=True)
    (directory / marker).write_text("[]" if marker == "modules.json" else "{}")
    assert [finding.severity for finding in findings(directory, "TA304")] == [Severity.NOTE]


def test_texts_of_special_tokens_are_shortened_in_findings(tmp_path: Path) -> None:
    description = base("llama")
    long = "<" + "x" * 100_000 + ">"
    description["tokenizer"]["added"][8]["content"] = long
    description["json"]["config.json"]["image_start_token_id"] = 312
    description["json"]["tokenizer_config.json"]["pad_token"] = long
    for finding in report(build(description, tmp_path / "model")).findings:
        assert len(finding.message) < 1000
        assert all(len(claim.says) < 1000 for claim in finding.claims)
        assert len(finding.fix) < 1000


@pytest.mark.real
def test_no_published_tokenizer_or_configuration_gets_an_error(real: Path) -> None:
    seen = 0
    for folder in sorted(path for path in real.iterdir() if path.is_dir()):
        if folder.name.startswith("nanogpt"):  # a dataset, no model
            continue
        found = audit.run(load(folder), audit.select_rules(["TA3"]))
        errors = [f.message for f in found.findings if f.severity is Severity.ERROR]
        assert errors == [], folder.name
        seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        *[("word", True), ("a<b>c", True), ("\u2581word", True)],
        *[("<|mask|>", False), ("</s>", False), ("[MASK]", False), ("<mask>\n", False), ("\n", False)],
    ],
)
def test_a_token_of_the_base_vocabulary_in_brackets_is_no_piece_of_text(
    text: str, ordinary: bool, tmp_path: Path
) -> None:
    model = build(
        changed(base("llama"), {"json": {"config.json": {"mask_token_id": 303}}}), tmp_path / "model"
    )
    path = model / "tokenizer.json"
    document = json.loads(path.read_text("utf-8"))
    vocab, merges = document["model"]["vocab"], document["model"]["merges"]
    (last,) = [content for content, id in vocab.items() if id == 303]
    document["model"]["merges"] = [merge for merge in merges if "".join(merge) != last]
    document["model"]["vocab"] = {
        text if id == 303 else content: id for content, id in vocab.items() if content != text
    }
    path.write_text(json.dumps(document), "utf-8")
    rules = {finding.rule for finding in tokaudit.check(model).findings}
    assert ("TA308" in rules) is ordinary


def test_a_bracket_that_is_a_token_of_its_own_is_an_ordinary_piece_of_text(tmp_path: Path) -> None:
    bracket = load(model(tmp_path / "model")).vocabulary.by_content["<"]
    (finding,) = findings(model(tmp_path / "marked", config={"mask_token_id": bracket}), "TA308")
    assert f'{bracket} "<", an ordinary piece of text' in finding.message


@pytest.mark.parametrize(
    ("top", "text", "stops"), [(None, 305, [305]), (304, 305, [304]), (304, None, [304])]
)
def test_without_generation_config_the_first_stated_end_counts(
    top: int | None, text: int | None, stops: list[int], tmp_path: Path
) -> None:
    model = build(base("llama"), tmp_path / "model")
    (model / "generation_config.json").unlink()
    config = json.loads((model / "config.json").read_text("utf-8"))
    config |= {"eos_token_id": top, "text_config": {"eos_token_id": text}}
    (model / "config.json").write_text(json.dumps(config), "utf-8")
    assert [id for field in load(model).stop_ids for id in field.ids] == stops


def test_a_text_that_follows_the_answer_is_no_end_of_a_turn(tmp_path: Path) -> None:
    contract = load(build(base("llama"), tmp_path / "model"))
    added = [token for token in contract.vocabulary.added if token.special]
    text = next(text for text in contract.vocabulary.by_content if text.isalpha() and len(text) > 1)
    template = "{% for m in messages %}{{ m.content }}" + text + added[0].content + "{% endfor %}"
    read = chat_template.read(template, "default", Location("t"), frozenset({text, added[0].content}))
    assert read.turn_ends == (text, added[0].content)
    assert [token.content for token in turn_ends(contract, read)] == [added[0].content]


@pytest.mark.parametrize(
    ("field", "pads", "severity"),
    [
        ("pad_token_id", False, Severity.WARNING),
        ("pad_token_id", True, Severity.ERROR),
        ("eos_token_id", False, Severity.ERROR),
        ("image_token_id", False, Severity.WARNING),
    ],
)
def test_a_negative_id_is_mild_only_for_padding_that_is_not_used_and_for_placeholders(
    field: str, pads: bool, severity: Severity, tmp_path: Path
) -> None:
    model = build(base("llama"), tmp_path / "model")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (model / name).exists() and not pads:
            stated = json.loads((model / name).read_text("utf-8"))
            stated.pop("pad_token", None)
            (model / name).write_text(json.dumps(stated), "utf-8")
    (model / "generation_config.json").unlink()
    config = json.loads((model / "config.json").read_text("utf-8"))
    config.pop("pad_token_id", None)
    (model / "config.json").write_text(json.dumps({**config, field: -1}), "utf-8")
    found = [finding for finding in tokaudit.check(model).findings if finding.rule == "TA301"]
    assert [finding.severity for finding in found] == [severity]
    assert "below 0" in found[0].message


# --- templates that cannot be used, and those beyond a limit ----------------------------------------------

NESTED = "{% if x %}" * 2_000 + "{% endif %}" * 2_000


@pytest.mark.parametrize(
    ("template", "words"),
    [("<|gone|>{#" + "x" * 250_000 + "#}", "more than 250,000 characters"), (NESTED, "nested too deeply")],
    ids=["long", "deep"],
)
def test_a_template_beyond_a_limit_leaves_no_verdict(template: str, words: str, tmp_path: Path) -> None:
    path = model(tmp_path / "model", template=template)
    report = tokaudit.check(path)
    assert report.verdict() is Verdict.NO_VERDICT
    (error,) = report.unreadable
    assert (error.code, error.file) == ("template-limit", "chat_template.jinja")
    assert words in error.message
    with pytest.raises(Unreadable, match=words):
        tokaudit.lock(path)


def test_a_broken_template_is_locked_as_it_stands(tmp_path: Path) -> None:
    locks = []
    for number, source in enumerate([b"caf\xe9", b"caf\xe8", b"caf\xe9", b"{% for m in messages %}"]):
        path = model(tmp_path / str(number), template="")
        (path / "chat_template.jinja").write_bytes(source)
        locks.append(tokaudit.lock(path).templates)
    assert locks[0] == locks[2]
    assert len({str(lock) for lock in locks}) == 3


def test_a_surrogate_in_a_template_of_the_configuration_is_no_foreign_byte(tmp_path: Path) -> None:
    description = base("llama")
    del description["text"]
    path = build(description, tmp_path / "model")
    config = json.loads((path / "tokenizer_config.json").read_text("utf-8"))
    config["chat_template"] = "\udce9{{ messages }}"
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    assert findings(path, "TA315") == []
