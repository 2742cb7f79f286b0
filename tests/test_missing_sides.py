"""A directory that lacks a side: what published directories hold, by kind, and what is then said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from models import base, build, changed

import tokaudit
from tokaudit.contract import Contract, Document
from tokaudit.errors import Unreadable
from tokaudit.findings import Location
from tokaudit.reporters import View, markdown, terminal
from tokaudit.rules.storage.config_missing import ConfigMissing
from tokaudit.rules.vocabulary.vocabulary_missing import VocabularyMissing

# The names in the top folder of published directories, without what says nothing (README.md, .gitattributes).
PUBLISHED = {
    "a whole model": "config.json generation_config.json model.safetensors tokenizer.json "
    "tokenizer_config.json",
    "shards": "config.json model-00001-of-00002.safetensors model.safetensors.index.json tokenizer.model "
    "tokenizer_config.json special_tokens_map.json",
    "an adapter": "adapter_config.json adapter_model.safetensors tokenizer.json tokenizer_config.json",
    "an adapter alone": "adapter_config.json adapter_model.safetensors",
    "Mistral's own layout": "consolidated.safetensors params.json tekken.json",
    "both layouts of Mistral": "config.json consolidated.safetensors model.safetensors params.json "
    "tekken.json tokenizer_config.json",
    "a diffusers pipeline": "model_index.json scheduler text_encoder tokenizer transformer vae",
    "a diffusers component": "config.json diffusion_pytorch_model.safetensors",
    "a diffusers tokenizer": "merges.txt special_tokens_map.json tokenizer_config.json vocab.json",
    "sentence-transformers": "1_Pooling config.json config_sentence_transformers.json model.safetensors "
    "modules.json sentence_bert_config.json special_tokens_map.json tokenizer.json tokenizer_config.json",
    "static embeddings in a folder": "0_StaticEmbedding modules.json config_sentence_transformers.json",
    "GLiNER": "gliner_config.json model.safetensors pytorch_model.bin special_tokens_map.json spm.model "
    "tokenizer.json tokenizer_config.json added_tokens.json",
    "OpenCLIP": "merges.txt open_clip_config.json open_clip_model.safetensors special_tokens_map.json "
    "tokenizer.json tokenizer_config.json vocab.json",
    "Moshi": "model.safetensors tokenizer-e351c8d8-checkpoint125.safetensors tokenizer_spm_32k_3.model",
    "LitGPT": "generation_config.json lit_model.pth model_config.yaml tokenizer.json tokenizer_config.json",
    "GGUF with the tokenizer's settings": "model-q4.gguf tokenizer_config.json",
    "ONNX": "config.json generation_config.json onnx quantize_config.json tokenizer.json "
    "tokenizer_config.json",
    "vision": "config.json model.safetensors preprocessor_config.json",
    "audio without text": "config.json preprocessor_config.json pytorch_model.bin",
    "audio with text": "config.json model.safetensors preprocessor_config.json special_tokens_map.json "
    "tokenizer_config.json vocab.json",
    "MLX": "config.json model.safetensors model.safetensors.index.json tokenizer.json tokenizer_config.json",
    "code of its own": "config.json configuration_own.py modeling_own.py model.safetensors "
    "tokenization_own.py own.tiktoken tokenizer_config.json",
    "RAG": "config.json generator_tokenizer pytorch_model.bin question_encoder_tokenizer",
    "Jukebox": "artists.json config.json genres.json lyrics.json model.safetensors tokenizer_config.json",
    "MyT5": "byte_maps.json config.json model.safetensors tokenizer_config.json",
    "ProphetNet": "config.json prophetnet.tokenizer pytorch_model.bin tokenizer_config.json",
    "Transformer-XL": "config.json pytorch_model.bin tokenizer_config.json vocab.bin",
    "BERTweet": "bpe.codes config.json pytorch_model.bin tokenizer_config.json vocab.txt",
    "Marian": "config.json pytorch_model.bin source.spm target.spm tokenizer_config.json vocab.json",
    "a tokenizer alone": "special_tokens_map.json tokenizer.json tokenizer_config.json",
    "weights alone": "model.safetensors",
    "a soft prompt": "learned_embeds.safetensors",
}


def contract(names: str, settings: dict[str, object]) -> Contract:
    files = frozenset(names.split())
    document = Document(Location("tokenizer_config.json"), settings)
    made = replace(Contract.without_files("model", "no file is read"), files=files, tokenizer_files=files)
    return replace(made, tokenizer_config_or=document) if "tokenizer_config.json" in files else made


@pytest.mark.parametrize("kind", PUBLISHED)
def test_no_kind_of_published_directory_lacks_a_side(kind: str) -> None:
    model = contract(PUBLISHED[kind], {"tokenizer_class": "LlamaTokenizer"})
    assert not list(ConfigMissing().check(model))
    if "tokenizer_config.json" in model.files:
        assert not list(VocabularyMissing().check(model))


@pytest.mark.parametrize("name", ["ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer", "DiaTokenizer"])
def test_some_classes_need_no_file_with_a_vocabulary(name: str) -> None:
    files = "config.json model.safetensors special_tokens_map.json tokenizer_config.json"
    assert not list(VocabularyMissing().check(contract(files, {"tokenizer_class": name})))
    assert list(VocabularyMissing().check(contract(files, {"tokenizer_class": "T5TokenizerFast"})))


@pytest.mark.parametrize(
    "file",
    ["README.md", "LICENSE.txt", ".gitattributes", "added_tokens.json", "chat_template.jinja",
     "trainer_state.json", "training_args.bin", "all_results.json", "model.safetensors.index.json",
     "preprocessor_config.json", "merges.txt", "bpe.codes", "normalizer.json"],
)  # fmt: skip
def test_what_is_saved_beside_a_tokenizer_holds_no_vocabulary(file: str) -> None:
    model = contract(f"tokenizer_config.json {file}", {"tokenizer_class": "LlamaTokenizer"})
    assert list(VocabularyMissing().check(model))


TOKENIZER = ("tokenizer", "text", "json/tokenizer_config.json")


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ((), "no findings ("),
        (TOKENIZER, "no findings; no tokenizer found ("),
        (("safetensors",), "no findings; no weights found ("),
        (
            ("safetensors", "json/config.json", "json/generation_config.json"),
            "no findings; no weights and no config.json found (",
        ),
        ((*TOKENIZER, "json"), "no findings; no tokenizer and no config.json found ("),
    ],
)
def test_the_last_line_says_which_side_was_not_there(
    tmp_path: Path, without: tuple[str, ...], words: str
) -> None:
    report = tokaudit.check(build(changed(base("llama"), {}, without), tmp_path / "model"))
    text = terminal.render([report], View(width=200))
    assert text.splitlines()[-1].startswith(f"\u2713 pass: {words}")
    assert words in markdown.render([report], View())
    unfound = [line for line in text.splitlines() if line.split() == ["tokenizer", "none", "found"]]
    assert bool(unfound) is ("tokenizer" in without)


def test_without_a_tokenizer_nobody_knows_whether_an_id_has_a_token(tmp_path: Path) -> None:
    model = build(changed(base("llama"), {}, TOKENIZER), tmp_path / "model")
    text = terminal.render([tokaudit.check(model)], View())
    assert "  stop ids           311\n" in text


def test_an_adapter_has_its_base_for_the_other_sides(tmp_path: Path) -> None:
    report = tokaudit.check(build(base("adapter"), tmp_path / "adapter"))
    assert report.summary.absent == ()


def test_a_pipeline_of_diffusers_leads_to_its_text_encoder(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    pipeline.mkdir()
    (pipeline / "model_index.json").write_text("{}")
    with pytest.raises(Unreadable, match="no model in") as raised:
        tokaudit.check(pipeline)
    assert raised.value.hint.startswith("looked for config.json, a tokenizer")
    (pipeline / "text_encoder").mkdir()
    with pytest.raises(Unreadable, match="no model in") as raised:
        tokaudit.check(pipeline)
    words = f"give {pipeline}/text_encoder --tokenizer {pipeline}/tokenizer"
    assert raised.value.hint == f"a pipeline of diffusers: {words}"
