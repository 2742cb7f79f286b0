"""The lock: what leaves it as it is, and what breaks which layer.

The tables of rewritings and changes work on models as they lie on disk, so that what they do is what
libraries and people do to files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from locked import Change, edit, layers_that_differ, one_shard_for_each_tensor, put, set_token, text_of
from models import FIXTURES, base, build, changed
from tokenizers import Tokenizer

import tokaudit
from tokaudit.locks.write import LAYERS, LISTS

MODELS = ("llama", "bert", "t5", "tinylm")


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model of its own for the test: one of the bases, or the trained one."""
    name: str = request.param
    if name == "tinylm":
        return shutil.copytree(FIXTURES / "tinylm", tmp_path / "model")
    return build(base(name), tmp_path / "model")


def edit_tokenizer(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda directory: edit(directory, "tokenizer.json", change)


def edit_config(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda directory: edit(directory, "config.json", change)


# --- what leaves a lock as it is --------------------------------------------------------------------------


def reformatted(**options: Any) -> Change:
    def rewrite(directory: Path) -> None:
        for path in directory.glob("*.json"):
            document = json.loads(path.read_text(encoding="utf-8"))
            path.write_text(json.dumps(document, **options), encoding="utf-8")

    return rewrite


def keys_reversed(directory: Path) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(member) for member in value] if isinstance(value, list) else value

    for path in directory.glob("*.json"):
        document = turned(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def with_byte_order_mark(directory: Path) -> None:
    """In every file but the one in which the library refuses it."""
    for path in directory.glob("*.json"):
        if path.name != "tokenizer.json":
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


def merges_as(spelling: Callable[[list[str]], object]) -> Change:
    def respell(document: dict[str, Any]) -> None:
        merges = document["model"].get("merges") or []
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
        if pairs:
            document["model"]["merges"] = [spelling(pair) for pair in pairs]

    return edit_tokenizer(respell)


def saved_by_tokenizers(directory: Path) -> None:
    path = str(directory / "tokenizer.json")
    Tokenizer.from_file(path).save(path)


def saved_by_transformers(directory: Path) -> None:
    """Everything anew: the tokenizer's files and the configurations, as the loaded objects write them."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    config = transformers.AutoConfig.from_pretrained(directory)
    generation = None
    if (directory / "generation_config.json").exists():
        generation = transformers.GenerationConfig.from_pretrained(directory)
    for path in [*directory.glob("*.json"), *directory.glob("*.jinja"), *directory.glob("*.txt")]:
        path.unlink()
    config.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if generation is not None:
        generation.save_pretrained(directory)


def defaults_written_out(document: dict[str, Any]) -> None:
    """As the library itself writes them, and what it leaves out when it is null."""
    document.update(
        {part: document.get(part) for part in ("normalizer", "pre_tokenizer", "truncation", "padding")}
    )
    written = json.loads(Tokenizer.from_str(json.dumps(document)).to_str())
    document["model"] = written["model"]
    for part in ("pre_tokenizer", "post_processor", "decoder"):
        document[part] = written[part]


def defaults_left_out(document: dict[str, Any]) -> None:
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding"):
        if document.get(part) is None:
            document.pop(part, None)
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if not document["model"].get(name) and document["model"]["type"] == "BPE":
            document["model"].pop(name, None)
    if (document.get("pre_tokenizer") or {}).get("use_regex") is True:
        del document["pre_tokenizer"]["use_regex"]


def stages_in_sequences(document: dict[str, Any]) -> None:
    members = {
        "normalizer": "normalizers",
        "pre_tokenizer": "pretokenizers",
        "post_processor": "processors",
        "decoder": "decoders",
    }
    for part, member in members.items():
        if document.get(part) is not None:
            inner = {"type": "Sequence", member: [document[part]]}
            document[part] = {"type": "Sequence", member: [inner]}


def added_tokens_in_another_order(document: dict[str, Any]) -> None:
    """All of them stand in the base vocabulary here, or their order would decide their ids."""
    for token in document["added_tokens"]:
        if isinstance(document["model"]["vocab"], dict):
            document["model"]["vocab"].setdefault(token["content"], token["id"])
    if isinstance(document["model"]["vocab"], dict):
        document["added_tokens"].reverse()


def template_with(text: Callable[[str], str]) -> Change:
    def rewrite(directory: Path) -> None:
        path = directory / "chat_template.jinja"
        if path.exists():
            path.write_bytes(text(path.read_text(encoding="utf-8")).encode())

    return rewrite


def template_in_json(directory: Path) -> None:
    path = directory / "chat_template.jinja"
    if path.exists():
        source = path.read_text(encoding="utf-8")
        edit(directory, "tokenizer_config.json", lambda settings: settings.update(chat_template=source))
        path.unlink()


def end_as_a_list(directory: Path) -> None:
    for file in ("config.json", "generation_config.json"):
        if (directory / file).exists():
            edit(directory, file, lambda document: document.update(eos_token_id=_listed(document)))


def _listed(document: dict[str, Any]) -> Any:
    stated = document.get("eos_token_id")
    return [stated, stated] if isinstance(stated, int) else stated


def nulls_written_out(document: dict[str, Any]) -> None:
    for name in ("sep_token_id", "forced_bos_token_id", "bad_words_ids"):
        document.setdefault(name, None)


def tied_copy_stored(directory: Path) -> None:
    """An equal output table beside the input table that it is tied to."""
    from safetensors.torch import load_file, save_file

    if not json.loads((directory / "config.json").read_text(encoding="utf-8")).get("tie_word_embeddings"):
        return
    tensors = load_file(directory / "model.safetensors")
    if "lm_head.weight" not in tensors and "model.embed_tokens.weight" in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def touched(directory: Path) -> None:
    for path in directory.iterdir():
        os.utime(path, (1, 1))


HARMLESS: Mapping[str, Change] = {
    "indented": reformatted(indent=4, ensure_ascii=False),
    "ASCII escapes": reformatted(ensure_ascii=True, separators=(",", ":")),
    "keys sorted": reformatted(sort_keys=True, ensure_ascii=False),
    "keys reversed": keys_reversed,
    "a byte order mark": with_byte_order_mark,
    "merges as texts": merges_as(" ".join),
    "merges as pairs": merges_as(list),
    "saved by tokenizers": saved_by_tokenizers,
    "saved by transformers": saved_by_transformers,
    "defaults written out": edit_tokenizer(defaults_written_out),
    "defaults left out": edit_tokenizer(defaults_left_out),
    "stages in sequences": edit_tokenizer(stages_in_sequences),
    "added tokens in another order": edit_tokenizer(added_tokens_in_another_order),
    "line ends of Windows in the template": template_with(lambda text: text.replace("\n", "\r\n")),
    "a line end after the template": template_with(lambda text: text.removesuffix("\n") + "\n"),
    "no line end after the template": template_with(lambda text: text.removesuffix("\n")),
    "the template in tokenizer_config.json": template_in_json,
    "the end token as a list": end_as_a_list,
    "nulls in config.json": edit_config(nulls_written_out),
    "one shard for each tensor": one_shard_for_each_tensor,
    "an equal copy of a tied table": tied_copy_stored,
    "another version of transformers": edit_config(lambda c: c.update(transformers_version="9.9.9")),
    "another modification time": touched,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rewriting", HARMLESS)
@pytest.mark.parametrize("model", MODELS, indirect=True)
def test_a_harmless_rewriting_leaves_the_lock_as_it_is(model: Path, rewriting: str) -> None:
    before = text_of(model)
    HARMLESS[rewriting](model)
    assert text_of(model) == before


def test_the_rewritings_do_rewrite(tmp_path: Path) -> None:
    """So that the test above can fail: each of them changes some file of some model."""
    silent = set(HARMLESS)
    for name in MODELS:
        for rewriting in sorted(silent):
            source = FIXTURES / "tinylm" if name == "tinylm" else build(base(name), tmp_path / name)
            copy = shutil.copytree(source, tmp_path / f"{name}-{rewriting}")
            HARMLESS[rewriting](copy)
            if contents(copy) != contents(source):
                silent.discard(rewriting)
    assert silent == {"another modification time"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.filterwarnings("ignore")
def test_saving_a_model_through_transformers_leaves_the_lock_as_it_is(tmp_path: Path) -> None:
    """The weights too, and a generation_config.json that was not there before."""
    import transformers

    model = shutil.copytree(FIXTURES / "tinylm", tmp_path / "model")
    (model / "generation_config.json").unlink()
    before = text_of(model)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    loaded.save_pretrained(model)
    assert (model / "generation_config.json").exists()
    assert text_of(model) == before


def test_an_equal_copy_for_the_encoder_leaves_the_lock_as_it_is(tmp_path: Path) -> None:
    """T5's own checkpoints hold `shared` up to three times; saving them drops the copies."""
    shared = base("t5")["safetensors"]["model.safetensors"]["shared.weight"]
    copy = {**shared, "fill": {"same": "shared.weight"}}
    copies = {"encoder.embed_tokens.weight": copy, "decoder.embed_tokens.weight": copy}
    with_copies = changed(base("t5"), {"safetensors": {"model.safetensors": copies}})
    one, other = build(base("t5"), tmp_path / "one"), build(with_copies, tmp_path / "other")
    assert text_of(one) == text_of(other)


@pytest.mark.real
def test_saving_real_tokenizers_through_the_library_leaves_their_locks_as_they_are(
    real: Path, tmp_path: Path
) -> None:
    names = [path.parent.name for path in sorted(real.glob("*/tokenizer.json"))]
    assert len(names) > 10
    for name in names:
        copy = tmp_path / name
        copy.mkdir()
        for file in real.joinpath(name).glob("*.json"):
            shutil.copyfile(file, copy / file.name)
        before = tokaudit.lock(copy, read_weights=False)
        saved_by_tokenizers(copy)
        after = tokaudit.lock(copy, read_weights=False)
        assert layers_that_differ(before, after) == set(), name


# --- what breaks a layer ----------------------------------------------------------------------------------


def swap_ids(document: dict[str, Any]) -> None:
    vocab = document["model"]["vocab"]
    vocab["!"], vocab["#"] = vocab["#"], vocab["!"]


def swap_merges(document: dict[str, Any]) -> None:
    """The last two, of which neither is made of the other."""
    merges = document["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]


TRUNCATION = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Left",
    "pad_to_multiple_of": 8,
    "pad_id": 306,
    "pad_type_id": 0,
    "pad_token": "<|pad|>",
}
FRAME = {"type": "BertProcessing", "sep": ["<|end|>", 305], "cls": ["<|begin|>", 304]}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def table(name: str, **changes: object) -> Mapping[str, object]:
    return {"safetensors": {"model.safetensors": {name: changes}}}


def rebuilt(patch: Mapping[str, object]) -> Change:
    """The description changed and built again, for changes of weights."""
    return lambda directory: void(build(changed(base("llama"), dict(patch)), _emptied(directory)))


def void(_: object) -> None:
    return None


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory)
    return directory


def other_template(directory: Path) -> None:
    path = directory / "chat_template.jinja"
    path.write_text(path.read_text(encoding="utf-8") + "{{ '!' }}", encoding="utf-8")


def named_template(directory: Path) -> None:
    folder = directory / "additional_chat_templates"
    folder.mkdir()
    (folder / "tools.jinja").write_text("{{ messages }}", encoding="utf-8")


def other_pad(directory: Path) -> None:
    edit(directory, "tokenizer_config.json", put("pad_token", value="<|end|>"))


# What is done to the base "llama", and the layers that it must break. Probes may follow.
BREAKING: Mapping[str, tuple[Change, set[str]]] = {
    "two ids swapped": (edit_tokenizer(swap_ids), {"mapping"}),
    "an added token renamed": (
        edit_tokenizer(set_token("<|reserved_3|>", content="<|tool|>")),
        {"mapping", "added_tokens"},
    ),
    "a flag of an added token": (edit_tokenizer(set_token("<|user|>", lstrip=True)), {"added_tokens"}),
    "an added token no longer special": (
        edit_tokenizer(set_token("<|user|>", special=False)),
        {"added_tokens"},
    ),
    "the order of merges": (edit_tokenizer(swap_merges), {"merges"}),
    "a setting of the model": (edit_tokenizer(put("model", "ignore_merges", value=True)), {"model"}),
    "dropout": (edit_tokenizer(put("model", "dropout", value=0.1)), {"model"}),
    "a normalizer": (edit_tokenizer(put("normalizer", value={"type": "NFC"})), {"normalizer"}),
    "a pre-tokenizer's setting": (
        edit_tokenizer(put("pre_tokenizer", value=BYTE_LEVEL)),
        {"pre_tokenizer"},
    ),
    "a post-processor": (edit_tokenizer(put("post_processor", value=FRAME)), {"post_processor"}),
    "a decoder": (edit_tokenizer(put("decoder", value={"type": "Fuse"})), {"decoder"}),
    "saved truncation": (edit_tokenizer(put("truncation", value=TRUNCATION)), {"truncation"}),
    "saved padding": (edit_tokenizer(put("padding", value=PADDING)), {"padding"}),
    "a class that rebuilds the pipeline": (
        lambda directory: edit(
            directory, "tokenizer_config.json", put("tokenizer_class", value="CLIPTokenizer")
        ),
        {"rebuilt_by"},
    ),
    "the chat template": (other_template, {"templates"}),
    "a second chat template": (named_template, {"templates"}),
    "a role": (other_pad, {"roles"}),
    "an id in config.json": (edit_config(put("pad_token_id", value=305)), {"ids"}),
    "an id of generation": (
        lambda directory: edit(directory, "generation_config.json", put("eos_token_id", value=[311, 305])),
        {"generation_ids"},
    ),
    "vocab_size": (edit_config(put("vocab_size", value=321)), {"expected_rows"}),
    "the tie": (
        edit_config(put("tie_word_embeddings", value=True)),
        {"tied"},
    ),
    "rows": (rebuilt(table("lm_head.weight", shape=[328, 8])), {"tables", "contents"}),
    "dtype": (rebuilt(table("lm_head.weight", dtype="F16")), {"tables", "contents"}),
    "one row's values": (
        rebuilt(table("lm_head.weight", fill={"rows": {"7": {"scale": 2.0}}})),
        {"contents"},
    ),
}


@pytest.mark.parametrize("change", BREAKING)
def test_a_change_breaks_exactly_its_own_layer(change: str, tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    before = tokaudit.lock(model, deep=True)
    act, layers = BREAKING[change]
    act(model)
    assert layers_that_differ(before, tokaudit.lock(model, deep=True)) - {"probes"} == layers


def test_every_layer_can_be_broken(tmp_path: Path) -> None:
    """The rest are those of other kinds of models, and probes, which only follow."""
    assert set(LAYERS) - set().union(*(layers for _, layers in BREAKING.values())) == {"scores", "probes"}


def set_score(model: Path, score: float) -> None:
    edit(model, "tokenizer.json", lambda document: document["model"]["vocab"][9].__setitem__(1, score))


def test_scores_of_a_unigram_model_are_a_layer(tmp_path: Path) -> None:
    model = build(base("t5"), tmp_path / "model")
    before = tokaudit.lock(model)
    set_score(model, -0.125)
    assert layers_that_differ(before, tokaudit.lock(model)) - {"probes"} == {"scores"}


def test_a_last_digit_of_a_score_is_no_change(tmp_path: Path) -> None:
    """The library's own parser may be off by one unit in the last place."""
    model = build(base("t5"), tmp_path / "model")
    set_score(model, -7.1234567890123)
    before = text_of(model)
    set_score(model, -7.123456789012301)
    assert text_of(model) == before


def test_probes_show_a_change_of_behaviour(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    before = tokaudit.lock(model)
    edit(model, "tokenizer.json", put("pre_tokenizer", value=BYTE_LEVEL))
    after = tokaudit.lock(model)
    assert before.probes is not None
    assert after.probes is not None
    assert [probe.text for probe in before.probes] == [probe.text for probe in after.probes]
    assert before.probes != after.probes


def test_ids_are_those_that_the_library_gives(tmp_path: Path) -> None:
    """A declared id that the library does not honour is a finding, and no fact to lock."""
    model = build(base("llama"), tmp_path / "model")
    edit(model, "tokenizer.json", set_token("<|reserved_7|>", id=400))
    lock = tokaudit.lock(model)
    assert lock.mapping is not None
    assert lock.mapping.end == 320
    assert lock.added_tokens is not None
    assert lock.added_tokens[-1].id == 319


# --- digests, by an independent hand ----------------------------------------------------------------------


def test_the_digest_of_a_mapping_is_that_of_its_frames() -> None:
    lock = tokaudit.lock(FIXTURES / "tinylm")
    vocabulary = Tokenizer.from_file(str(FIXTURES / "tinylm" / "tokenizer.json")).get_vocab()
    digest = hashlib.sha256(b"tokaudit-mapping-v1\0")
    for content, id in sorted(vocabulary.items(), key=lambda item: item[1]):
        digest.update(struct.pack(">II", id, len(content.encode())) + content.encode())
    assert lock.mapping is not None
    assert lock.mapping.digest == "sha256:" + digest.hexdigest()


def test_the_digest_of_merges_is_that_of_their_frames() -> None:
    lock = tokaudit.lock(FIXTURES / "tinylm")
    document = json.loads((FIXTURES / "tinylm" / "tokenizer.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256(b"tokaudit-merges-v1\0")
    for rank, merge in enumerate(document["model"]["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        text = f"{left} {right}".encode()
        digest.update(struct.pack(">III", rank, len(left), len(text)) + text)
    assert lock.merges is not None
    assert lock.merges.digest == "sha256:" + digest.hexdigest()


def test_the_digest_of_a_layer_is_that_of_its_canonical_json() -> None:
    document = json.loads(text_of(FIXTURES / "tinylm"))
    assert set(document["digests"]) == set(document["layers"])
    for name, value in document["layers"].items():
        if name not in LISTS:
            digest = "sha256:" + hashlib.sha256(rfc8785.dumps(value)).hexdigest()
            assert document["digests"][name] == digest


def test_a_table_is_digested_as_its_bytes(tmp_path: Path) -> None:
    model = build(base("llama"), tmp_path / "model")
    data = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    start, stop = json.loads(data[8 : 8 + length])["lm_head.weight"]["data_offsets"]
    digest = hashlib.sha256(data[8 + length + start : 8 + length + stop]).hexdigest()
    contents = tokaudit.lock(model, deep=True).contents
    assert contents is not None
    assert contents["lm_head.weight"] == f"sha256:{digest}"
