"""One realistic fault put into a well-known release: the right rule finds it, and no other rule does.

The releases are those of fixtures/releases.json, in families and layouts that the fixtures under
fixtures/rules do not use. The ids are those of the release with a small vocabulary (tests/releases.py).
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from models import FIXTURES
from releases import RELEASES, build_release
from test_rules import everything_said

import tokaudit
from tokaudit.findings import Severity
from tokaudit.report import Report

Change = Callable[[Path], None]
BY_NAME = {release["name"]: release for release in RELEASES}
ERROR, WARNING = "error", "warning"
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U8": 1}


def loud(report: Report) -> dict[str, str]:
    found = (finding for finding in report.findings if finding.severity >= Severity.WARNING)
    return {finding.rule: finding.severity.word for finding in found}


@cache
def found_before(name: str, folder: Path) -> frozenset[str]:
    """The rules with warnings on the release as it is."""
    return frozenset(loud(tokaudit.check(build_release(BY_NAME[name], folder / "before" / name))))


# --- changes -------------------------------------------------------------------------------------------


def edited(file: str, edit: Callable[[dict[str, Any]], Any]) -> Change:
    def change(folder: Path) -> None:
        data = json.loads((folder / file).read_text("utf-8"))
        edit(data)
        (folder / file).write_text(json.dumps(data, ensure_ascii=False), "utf-8")

    return change


def stated(file: str, **fields: Any) -> Change:
    """Fields of a file set; `text_config__vocab_size` is a field of a section, None takes it out."""

    def edit(data: dict[str, Any]) -> None:
        for path, value in fields.items():
            *sections, name = path.split("__")
            here = data
            for section in sections:
                here = here[section]
            if value is None:
                here.pop(name, None)
            else:
                here[name] = value

    return edited(file, edit)


def config(**fields: Any) -> Change:
    return stated("config.json", **fields)


def generation(**fields: Any) -> Change:
    return stated("generation_config.json", **fields)


def tokenizer_config(**fields: Any) -> Change:
    return stated("tokenizer_config.json", **fields)


def both(**fields: Any) -> Change:
    return together(config(**fields), generation(**fields))


def together(*changes: Change) -> Change:
    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def added(text: str, *, special: bool = True) -> Change:
    """One more added token, at the next id."""

    def edit(data: dict[str, Any]) -> None:
        last = max([*(token["id"] for token in data["added_tokens"]), *data["model"]["vocab"].values()])
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special}
        data["added_tokens"].append({"id": last + 1, "content": text, **flags, "special": special})

    return edited("tokenizer.json", edit)


def added_id(text: str, by: int) -> Change:
    def edit(data: dict[str, Any]) -> None:
        token = next(token for token in data["added_tokens"] if token["content"] == text)
        token["id"] += by

    return edited("tokenizer.json", edit)


def emitted(**by: int) -> Change:
    """Ids of the post-processor moved."""

    def edit(data: dict[str, Any]) -> None:
        for text, number in by.items():
            data["post_processor"]["special_tokens"][text]["ids"][0] += number

    return edited("tokenizer.json", edit)


def vocabulary(edit: Callable[[dict[str, int]], Any]) -> Change:
    return edited("tokenizer.json", lambda data: edit(data["model"]["vocab"]))


def template(name: str) -> Change:
    text = (FIXTURES / "templates" / f"{name}.jinja").read_text("utf-8")
    return tokenizer_config(chat_template=text)


def tensors(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Edits the header and lays the tensors out anew; every table but the first begins with a value."""

    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        with file.open("rb") as opened:
            header = json.loads(opened.read(struct.unpack("<Q", opened.read(8))[0]))
        edit(header)
        at = 0
        for entry in header.values():
            length = _BYTES[entry["dtype"]]
            for size in entry["shape"]:
                length *= size
            entry["data_offsets"] = [at, at + length]
            at += length
        encoded = json.dumps(header).encode()
        with file.open("wb") as out:
            out.write(struct.pack("<Q", len(encoded)) + encoded)
            start = out.tell()
            out.truncate(start + at)
            for number, entry in enumerate(header.values()):
                if number and entry["data_offsets"][0] < entry["data_offsets"][1]:
                    out.seek(start + entry["data_offsets"][0])
                    out.write(bytes([number, 0x3F]))

    return change


def rows(name: str, by: int) -> Change:
    def edit(header: dict[str, Any]) -> None:
        for stored in header:
            if name in stored:
                header[stored]["shape"][0] += by

    return tensors(edit)


def shape(name: str, *sizes: int) -> Change:
    return tensors(lambda header: header.update({name: {"dtype": "BF16", "shape": list(sizes)}}))


def renamed(old: str, new: str) -> Change:
    def edit(header: dict[str, Any]) -> None:
        for stored in [stored for stored in header if stored.startswith(old)]:
            header[new + stored.removeprefix(old)] = header.pop(stored)

    return tensors(edit)


def without(name: str) -> Change:
    return tensors(lambda header: header.pop(name))


def written(file: str, text: str) -> Change:
    def change(folder: Path) -> None:
        (folder / file).write_text(text, "utf-8")

    return change


def vocab_json(folder: Path) -> None:
    """A vocab.json of another version: every id above 700 is one higher."""
    vocab = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    moved = {text: id + (id > 700) for text, id in vocab.items()}
    (folder / "vocab.json").write_text(json.dumps(moved), "utf-8")


# --- faults --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    about: str
    release: str
    change: Change
    finds: dict[str, str]
    says: tuple[str, ...] = ()


QWEN, QWEN_VL, LLAMA = "Qwen2.5-0.5B-Instruct", "Qwen2.5-VL-7B-Instruct", "Llama-3.1-8B-Instruct"
MISTRAL, VICUNA, LLAVA = "Mistral-7B-Instruct-v0.3", "vicuna-7b-v1.5", "llava-1.5-7b-hf"
GEMMA, GEMMA_3N, MLLAMA = "gemma-2-2b-it", "gemma-3n-E2B-it", "Llama-3.2-11B-Vision-Instruct"
T5, FLAN, BERT, XLMR = "t5-small", "flan-t5-small", "bert-base-uncased", "xlm-roberta-base"
OMNI, PYTHIA, BART = "Qwen2.5-Omni-7B", "pythia-70m", "bart-large-cnn"

FAULTS = [
    # rows
    Fault(
        "a pad token was added and the table not resized",
        LLAMA,
        together(added("[PAD]"), tokenizer_config(pad_token="[PAD]")),
        {"TA101": ERROR},
        ("1664", "[PAD]"),
    ),
    Fault("an added token that nothing uses", LLAMA, added("<|my|>"), {"TA102": WARNING}, ("1664", "<|my|>")),
    Fault(
        "rows lost in both tables",
        MISTRAL,
        together(rows("embed", -64), rows("lm_head", -64)),
        {"TA101": ERROR, "TA103": ERROR},
        ("1344",),
    ),
    Fault("a row lost in the output table", MISTRAL, rows("lm_head", -1), {"TA105": ERROR}, ("1407",)),
    Fault("the last row of CLIP's text tower lost", "clip-vit-base-patch32",
          together(rows("token_embedding", -1), config(text_config__vocab_size=1407)),
          {"TA101": ERROR}, ("1407", "<|endoftext|>")),
    Fault("a stale vocab_size", GEMMA, config(vocab_size=1344), {"TA103": ERROR}, ("1344", "1408")),
    Fault("a stale nested vocab_size", LLAVA, config(text_config__vocab_size=1408),
          {"TA103": ERROR, "TA104": WARNING}, ("text_config.vocab_size", "1408")),
    Fault("a stale copy at the top", LLAVA, config(vocab_size=1408), {"TA104": WARNING}, ("1408",)),
    Fault("a stale size two sections deep", OMNI, config(thinker_config__text_config__vocab_size=1500),
          {"TA103": ERROR}, ("thinker_config.text_config.vocab_size",)),
    Fault("a stale size of the talker", OMNI, config(talker_config__vocab_size=8000),
          {"TA103": ERROR}, ("talker_config.vocab_size",)),
    Fault("mllama resized without its 8 extra rows", MLLAMA, rows("embed", -8),
          {"TA102": WARNING, "TA103": ERROR, "TA105": ERROR, "TA301": WARNING}),
    Fault("mllama's output table resized like its input table", MLLAMA, rows("lm_head", 8),
          {"TA105": ERROR}),
    Fault("a short bias of a masked language model", BERT, shape("cls.predictions.decoder.bias", 1000),
          {"TA106": ERROR}, ("1000",)),
    Fault("a short output bias", "phi-2", rows("lm_head.bias", -8), {"TA106": ERROR}, ("lm_head.bias",)),
    Fault("a short bias with two axes", BART, shape("final_logits_bias", 1, 1464), {"TA106": ERROR}),
    Fault("per-layer embeddings not as many as their field says", GEMMA_3N, rows("per_layer", -64),
          {"TA103": ERROR}, ("vocab_size_per_layer_input",)),
    Fault("a copy of the encoder with fewer rows", BART,
          shape("model.encoder.embed_tokens.weight", 1400, 1024), {"TA107": ERROR}, ("1400",)),
    Fault("a multi-token-prediction copy with fewer rows", "DeepSeek-V3", rows("layers.61.embed", -1),
          {"TA107": ERROR}, ("model.layers.61.embed_tokens.weight",)),
    Fault("a pad token whose entry was lost", VICUNA,
          together(rows("embed", 1), rows("lm_head", 1), config(vocab_size=1409)),
          {"TA109": WARNING}, ("1408",)),
    Fault("a flat shard", MISTRAL, shape("model.embed_tokens.weight", 4096), {"TA110": ERROR}),
    Fault("an empty table", MISTRAL, shape("model.embed_tokens.weight", 0), {"TA110": ERROR}),
    Fault("a table of another width", MISTRAL, shape("lm_head.weight", 1408, 2048), {"TA110": ERROR}),
    Fault("an input table under another name", BERT,
          renamed("bert.embeddings.word_embeddings", "bert.embeddings.words"), {"TA111": ERROR}),
    # tie
    Fault("an output table that differs under a tie", GEMMA, shape("lm_head.weight", 1408, 2304),
          {"TA201": ERROR}),
    Fault("no output table though untied", QWEN, config(tie_word_embeddings=False), {"TA203": ERROR}),
    Fault("no output table, and untied by default", "Llama-3.2-1B", config(tie_word_embeddings=None),
          {"TA203": ERROR}),
    Fault("tie flags that contradict", "Qwen3-VL-4B-Instruct", config(text_config__tie_word_embeddings=False),
          {"TA204": ERROR, "TA208": WARNING}),
    Fault("only the output table under a tie", QWEN, renamed("model.embed_tokens", "lm_head"),
          {"TA206": ERROR}),
    Fault("copies of encoder and decoder that differ", FLAN, shape("more", 1), {"TA207": ERROR}),
    # special tokens
    Fault("an end id without a row", MISTRAL, both(eos_token_id=32768),
          {"TA301": ERROR, "TA304": ERROR}, ("32768",)),
    Fault("pad id -1 where the tokenizer pads", QWEN, generation(pad_token_id=-1), {"TA301": ERROR}, ("-1",)),
    Fault("pad id -1 where it does not", MISTRAL, config(pad_token_id=-1), {"TA301": WARNING}),
    Fault("a classifier on a decoder without a pad token", "Meta-Llama-3-8B",
          together(config(architectures=["LlamaForSequenceClassification"]), without("lm_head.weight")),
          {"TA302": ERROR}),
    Fault("a classifier on a decoder whose config.json names no pad id", QWEN,
          config(architectures=["Qwen2ForSequenceClassification"]), {"TA305": ERROR}, ("<|endoftext|>",)),
    Fault("the end token as pad token", QWEN,
          together(tokenizer_config(pad_token="<|im_end|>"),
                   generation(pad_token_id=1437, eos_token_id=1437)),
          {"TA303": WARNING}, ("1437", "<|im_end|>")),
    Fault("a list of stop ids without the end token", LLAMA, generation(eos_token_id=[1409, 1416]),
          {"TA304": ERROR}, ("1417", "<|eot_id|>")),
    Fault("begin and end swapped", MISTRAL, both(bos_token_id=2, eos_token_id=1),
          {"TA304": ERROR, "TA305": WARNING, "TA308": WARNING}, ("</s>",)),
    Fault("pad and end swapped", T5, both(pad_token_id=1, eos_token_id=0),
          {"TA304": ERROR, "TA305": WARNING, "TA308": WARNING}, ("<pad>",)),
    Fault("a pad id that is a letter", BERT, config(pad_token_id=1), {"TA305": WARNING, "TA308": WARNING},
          ("[PAD]", "a")),
    Fault("the pad id of another family", "bge-reranker-v2-m3", config(pad_token_id=0),
          {"TA305": WARNING, "TA308": WARNING}, ("<pad>", "<s>")),
    Fault("an empty end token", MISTRAL, tokenizer_config(eos_token=""), {"TA306": ERROR}, ("eos_token",)),
    Fault("a number as end token", MISTRAL, tokenizer_config(eos_token=2), {"TA306": ERROR}),
    Fault("a model's unknown token that is not there", BERT,
          edited("tokenizer.json", lambda data: data["model"].update(unk_token="[UNKNOWN]")),
          {"TA306": ERROR}, ("[UNKNOWN]",)),
    Fault("the brackets of pictures swapped", QWEN_VL,
          config(vision_start_token_id=1445, vision_end_token_id=1444),
          {"TA308": WARNING}, ("<|vision_end|>",)),
    Fault("the picture's id for films", QWEN_VL, config(video_token_id=1447),
          {"TA308": WARNING}, ("<|image_pad|>",)),
    Fault("the picture's id off by one, at the pad token", LLAVA, config(image_token_index=1409),
          {"TA308": WARNING}, ("1409", "<pad>")),
    Fault("the picture's id of a smaller tokenizer, at a word", LLAVA, config(image_token_index=1200),
          {"TA308": WARNING}, ("1200",)),
    Fault("a post-processor off by one", LLAMA, emitted(**{"<|begin_of_text|>": 1}),
          {"TA310": ERROR}, ("1409", "<|begin_of_text|>")),
    Fault("a post-processor with two ids swapped", XLMR, emitted(**{"<s>": 2, "</s>": -2}),
          {"TA310": ERROR}, ("<s>", "</s>")),
    Fault("the chat template of another family", MISTRAL, template("chatml"),
          {"TA311": WARNING}, ("<|im_start|>",)),
    Fault("the end of a turn is no stop id", GEMMA, generation(eos_token_id=1),
          {"TA312": ERROR}, ("107", "<end_of_turn>")),
    Fault("the base model's stop id for a chat model", LLAMA,
          together(generation(eos_token_id=1409), tokenizer_config(eos_token="<|end_of_text|>")),
          {"TA312": ERROR}, ("<|eot_id|>",)),
    Fault("a decoder that starts without a row", T5, both(decoder_start_token_id=99999), {"TA313": ERROR},
          ("99999",)),
    Fault("a suppressed id without a row", T5, generation(suppress_tokens=[1, 99999]), {"TA313": ERROR}),
    Fault("a generation_config.json without an end id", LLAMA, generation(eos_token_id=None),
          {"TA314": WARNING}),
    # the tokenizer's files
    Fault("a vocab.json of another version", QWEN, vocab_json, {"TA401": ERROR}),
    Fault("a merges.txt of another version", "gpt2", written("merges.txt", "#version: 0.2\nt h\nh e\n"),
          {"TA401": ERROR}),
    Fault("an added_tokens.json of another version", "nli-deberta-v3-base",
          written("added_tokens.json", '{"[MASK]": 1409}'), {"TA401": ERROR}, ("[MASK]", "1409")),
    Fault("an end token that declares its neighbour's id", QWEN, added_id("<|im_end|>", 1),
          {"TA401": ERROR, "TA402": ERROR, "TA403": ERROR}, ("1437", "1438", "<|im_end|>")),
    Fault("two base tokens with one id", PYTHIA, vocabulary(lambda vocab: vocab.update(Zq1000=500)),
          {"TA402": ERROR}, ("500",)),
    Fault("a hole in the base vocabulary", QWEN, vocabulary(lambda vocab: vocab.pop("Zq1000")),
          {"TA403": ERROR}, ("<|im_end|>", "1436")),
    Fault("a merge of something that is not there", QWEN,
          edited("tokenizer.json", lambda data: data["model"]["merges"].append(["zz", "qq"])),
          {"TA405": ERROR}, ("zz",)),
    Fault("truncation left in the file", QWEN,
          edited("tokenizer.json", lambda data: data.update(truncation={
              "direction": "Right", "max_length": 128, "strategy": "LongestFirst", "stride": 0})),
          {"TA406": WARNING}, ("128",)),
    Fault("a byte that is no token", LLAMA, vocabulary(lambda vocab: vocab.update(Xx9=vocab.pop("e"))),
          {"TA408": WARNING}),
    Fault("a fallback byte that is no token", MISTRAL,
          vocabulary(lambda vocab: vocab.update(Xx9=vocab.pop("<0x41>"))), {"TA408": WARNING}),
    Fault("a limit above the position table", BERT, tokenizer_config(model_max_length=1024),
          {"TA410": WARNING}, ("1024", "512")),
    Fault("a pad token that no file gives an id, past the rows", MISTRAL, tokenizer_config(pad_token="<pad>"),
          {"TA412": ERROR}, ("1408", "<pad>")),
    Fault("a pad token that no file gives an id, on a padding row", QWEN,
          tokenizer_config(pad_token="<|pad|>"), {"TA412": WARNING}, ("1457", "<|pad|>")),
    Fault("a special_tokens_map.json of another version", "Llama-3.2-1B",
          together(tokenizer_config(added_tokens_decoder=None),
                   written("special_tokens_map.json", '{"eos_token": "<|eot_id|>"}')),
          {"TA304": ERROR, "TA413": WARNING}, ("<|eot_id|>",)),
    Fault("a class that nobody has", MISTRAL, tokenizer_config(tokenizer_class="LlamaaTokenizer"),
          {"TA415": WARNING}, ("LlamaaTokenizer",)),
    Fault("another number of sentinels", T5, tokenizer_config(extra_ids=99), {"TA416": WARNING},
          ("99", "100")),
    # other families
    Fault("a chat model's end token without rows", "dolphin-2.6-mistral-7b",
          together(rows("embed", -2), rows("lm_head", -2), config(vocab_size=1408)),
          {"TA101": ERROR, "TA301": ERROR}, ("1408", "<|im_end|>")),
    Fault("a pad token past the rows of a composite", LLAVA,
          together(rows("embed", -63), rows("lm_head", -63),
                   config(vocab_size=1409, text_config__vocab_size=1409)),
          {"TA101": ERROR, "TA301": ERROR}, ("1409", "<pad>")),
    Fault("the picture's id at the pad token", "Llama-4-Scout-17B-16E-Instruct",
          config(image_token_index=1426), {"TA308": WARNING}, ("1426", "<|finetune_right_pad|>")),
    Fault("a stale size of a decoder", "trocr-base-printed", config(decoder__vocab_size=1400),
          {"TA103": ERROR}, ("decoder.vocab_size",)),
    Fault("a short output table of a decoder", "trocr-base-printed", rows("output_projection", -1),
          {"TA105": ERROR}),
    Fault("a stale padded_vocab_size", "chatglm3-6b", config(padded_vocab_size=65000),
          {"TA103": ERROR}, ("padded_vocab_size",)),
    Fault("a short table of InternLM", "internlm2-chat-7b", rows("output", -64), {"TA105": ERROR}),
    Fault("a short output table of the thinker", OMNI, rows("thinker.lm_head", -64), {"TA105": ERROR}),
    Fault("ALBERT's width", "albert-base-v2", config(embedding_size=256), {"TA110": ERROR}, ("256",)),
    Fault("OPT's width", "opt-125m", config(word_embed_proj_dim=512), {"TA110": ERROR}, ("512",)),
    Fault("no rows for the last time marks", "whisper-large-v3",
          shape("model.decoder.embed_tokens.weight", 3000, 1280),
          {"TA102": WARNING, "TA103": ERROR}, ("3000",)),
    Fault("RWKV said to be tied", "rwkv-4-169m-pile", config(tie_word_embeddings=True), {"TA201": ERROR}),
    Fault("the end of sequence instead of the end of turn", "c4ai-command-r-v01", generation(eos_token_id=6),
          {"TA304": ERROR}, ("<|END_OF_TURN_TOKEN|>",)),
    Fault("a class that nobody knows, and a stale size", MISTRAL,
          config(architectures=["FooForCausalLM"], model_type="foo", vocab_size=1400), {"TA103": ERROR}),
    Fault("an output table in another dtype under a tie", QWEN,
          tensors(lambda header: header.update({"lm_head.weight": {"dtype": "F32", "shape": [1728, 896]}})),
          {"TA201": ERROR}),
    Fault("Phi-3 without its pad id", "Phi-3-mini-4k-instruct", config(pad_token_id=None), {"TA301": ERROR},
          ("32000",)),
    Fault("an id in quotes", MISTRAL, config(eos_token_id="2"), {"TA301": ERROR}),
    Fault("an id that is a truth value", MISTRAL, config(pad_token_id=True), {"TA301": ERROR}),
    # storage
    Fault("a page of a web server for weights", BERT, written("model.safetensors", "<!DOCTYPE html><html>"),
          {"TA705": ERROR}),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.release}: {fault.about}")
def test_a_fault_is_found_by_its_rules_and_by_no_other(fault: Fault, folder: Path, tmp_path: Path) -> None:
    before = found_before(fault.release, folder)
    model = build_release(BY_NAME[fault.release], tmp_path / fault.release)
    fault.change(model)
    report = tokaudit.check(model)
    assert {rule: word for rule, word in loud(report).items() if rule not in before} == fault.finds
    for words in fault.says:
        assert words in everything_said(report)


# --- what looks like a fault and is none ---------------------------------------------------------------


def beside(file: str, data: bytes = b"") -> Change:
    def change(folder: Path) -> None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)

    return change


def removed(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def copied(name: str) -> Change:
    """The weights once more, under another name."""

    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "model.safetensors", folder / name)

    return change


def in_shards(folder: Path) -> None:
    """One shard for each tensor, and an index."""
    whole = folder / "model.safetensors"
    with whole.open("rb") as opened:
        header = json.loads(opened.read(struct.unpack("<Q", opened.read(8))[0]))
    places = {}
    for number, (name, entry) in enumerate(header.items(), 1):
        places[name] = f"model-{number:05d}-of-{len(header):05d}.safetensors"
        length = entry["data_offsets"][1] - entry["data_offsets"][0]
        encoded = json.dumps({name: {**entry, "data_offsets": [0, length]}}).encode()
        with (folder / places[name]).open("wb") as out:
            out.write(struct.pack("<Q", len(encoded)) + encoded + bytes([number, 0x3F]))
            out.truncate(8 + len(encoded) + length)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    whole.unlink()


def packed(**tensors_of_head: tuple[str, list[int]]) -> Change:
    """The output table in a quantised form."""

    def edit(header: dict[str, Any]) -> None:
        del header["lm_head.weight"]
        for name, (dtype, sizes) in tensors_of_head.items():
            header[f"lm_head.{name}"] = {"dtype": dtype, "shape": sizes}

    return tensors(edit)


CHATML = (FIXTURES / "templates" / "chatml.jinja").read_text("utf-8")
NAMED = [{"name": name, "template": CHATML} for name in ("default", "tool_use", "rag")]
BGE = "bge-base-en-v1.5"

HARMLESS = [
    ("shards", MISTRAL, in_shards),
    ("the original weights beside shards", MISTRAL, together(copied("consolidated.safetensors"), in_shards)),
    ("another precision beside", BGE, copied("model.fp16.safetensors")),
    ("a dense layer in a folder of its own", BGE, copied("2_Dense/model.safetensors")),
    ("pickles beside", BGE, together(beside("pytorch_model.bin", b"\x80\x02."), beside("training_args.bin"))),
    ("weights of other frameworks beside", BGE, together(beside("tf_model.h5"), beside("onnx/model.onnx"))),
    ("no generation_config.json", LLAMA, removed("generation_config.json")),
    ("three named chat templates", QWEN, tokenizer_config(chat_template=NAMED)),
    ("a chat template in a file", QWEN,
     together(tokenizer_config(chat_template=None), written("chat_template.jinja", CHATML))),
    ("the layout of transformers 5", QWEN,
     tokenizer_config(added_tokens_decoder=None, tokenizer_class="TokenizersBackend", backend="tokenizers")),
    ("a reserved token that pads", LLAMA,
     together(tokenizer_config(pad_token="<|finetune_right_pad_id|>"), both(pad_token_id=1412))),
    ("the unknown token that pads", "Mistral-7B-v0.1",
     together(tokenizer_config(pad_token="<unk>"), config(pad_token_id=0))),
    ("a classifier that pads with its end token", "Mistral-7B-v0.1",
     together(config(architectures=["MistralForSequenceClassification"], pad_token_id=2),
              tokenizer_config(pad_token="</s>"), without("lm_head.weight"))),
    ("64 rows more for the hardware", MISTRAL,
     together(rows("embed", 64), rows("lm_head", 64), config(vocab_size=1472))),
    ("names without the outer module", MISTRAL, renamed("model.embed", "embed")),
    ("a class that nobody knows", MISTRAL, config(architectures=["FooForCausalLM"], model_type="foo")),
    ("an output table of GPTQ", MISTRAL,
     together(packed(qweight=("I32", [512, 1408]), qzeros=("I32", [32, 176]), scales=("F16", [32, 1408])),
              config(quantization_config={"quant_method": "gptq", "bits": 4, "lm_head": True}))),
    ("an output table of bitsandbytes", MISTRAL,
     together(packed(**{"weight": ("U8", [1408 * 2048, 1]), "weight.absmax": ("F32", [90112]),
                        "weight.quant_map": ("F32", [16])}),
              config(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}))),
]  # fmt: skip


@pytest.mark.parametrize(("about", "release", "change"), HARMLESS, ids=[about for about, _, _ in HARMLESS])
def test_what_is_no_fault_gets_no_finding(
    about: str, release: str, change: Change, folder: Path, tmp_path: Path
) -> None:
    before = found_before(release, folder)
    model = build_release(BY_NAME[release], tmp_path / release)
    change(model)
    report = tokaudit.check(model)
    assert {rule: word for rule, word in loud(report).items() if rule not in before} == {}, about
    assert not report.unreadable
