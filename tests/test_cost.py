"""`tokaudit cost`: the numbers, what they rest on, and how they are shown."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import PROJECT, tokaudit
from models import base, build, changed
from test_hostile import catalogue  # noqa: F401
from tokenizers import Tokenizer

from tokaudit.contract import Missing
from tokaudit.cost import corpus
from tokaudit.cost.corpus import Encoded, encode_all, pieces, read_text
from tokaudit.cost.run import Costs, Request, costs
from tokaudit.cost.tables import Positions, plain_tables
from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.progress import Quiet
from tokaudit.reporters import View, _cost
from tokaudit.sources import open_named
from tokaudit.tokenizing import TokenizerProcess

TINYLM = str(PROJECT / "fixtures" / "tinylm")
SCHEMA = json.loads(
    (importlib.resources.files("tokaudit.reporters") / "cost.schema.json").read_text(encoding="utf-8")
)
Description = dict[str, Any]


def document(found: Costs) -> Any:
    result = json.loads(_cost.RENDER["json"](found, View()))
    jsonschema.validate(result, SCHEMA)
    return result


def asked(**request: Any) -> Costs:
    return costs(Request(**request), Quiet())


def column(**request: Any) -> Any:
    """The only column, or the first one, as JSON."""
    return document(asked(**request))["columns"][0]


def model(tmp_path: Path, config: Description, tensors: Description) -> str:
    """A directory with these tensors (dtype and shape by name) and a tokenizer of 320 ids."""
    description = base("llama")
    description["json"]["config.json"] = config
    described = {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in tensors.items()}
    description["safetensors"] = {"model.safetensors": described}
    return str(build(description, tmp_path / "model"))


# --- arithmetic ----------------------------------------------------------------------------------------


def test_a_table_of_50000_rows_of_4096_in_float16_has_390_6_mib() -> None:
    found = asked(vocab_sizes=(50_000,), hidden=4096, dtype="float16")
    text = _cost.RENDER["terminal"](found, View())
    assert "bytes as stored (F16)\n  input embeddings        390.6 MiB\n" in text
    assert found.columns[0].tables.main.stored == 50_000 * 4096 * 2


@pytest.mark.parametrize(("rows", "mib"), [(32_000, 250), (64_000, 500), (128_000, 1000), (128_256, 1002)])
def test_tables_of_4096_columns_have_the_published_sizes(rows: int, mib: float) -> None:
    tables = plain_tables(rows, 4096, "bfloat16", tied=False)
    assert tables.main.stored == mib * 2**20
    assert tables.stored == 2 * mib * 2**20
    assert tables.parameters() == 2 * rows * 4096


def test_a_tie_spares_the_output_table() -> None:
    tied = column(vocab_sizes=(1000,), hidden=64, tied=True)
    untied = column(vocab_sizes=(1000,), hidden=64, tied=False)
    assert tied["parameters"]["total"] == tied["parameters"]["tie_saves"] == 64_000
    assert tied["parameters"]["output"] == 0
    assert untied["parameters"]["total"] == 128_000
    assert untied["parameters"]["tie_saves"] == 64_000
    assert tied["logits_bytes"] == untied["logits_bytes"]


def test_training_states_follow_the_conventions() -> None:
    """Mixed precision: 2 + 2 bytes, and 4 + 8 in the optimizer; float32: 16; bfloat16 throughout: 8."""
    training = column(vocab_sizes=(1000,), hidden=64, tied=True)["training"]
    mixed = training["mixed"]
    assert (mixed["weights"], mixed["gradients"]) == (128_000, 128_000)
    assert (mixed["master_weights"], mixed["moments"]) == (256_000, 512_000)
    assert [training[name]["total"] // 64_000 for name in ("mixed", "float32", "bfloat16")] == [16, 16, 8]


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("float8", 1)])
def test_logits_have_a_value_for_each_row_and_position(dtype: str, width: int) -> None:
    positions = Positions(8, 4096, dtype)
    found = column(vocab_sizes=(128_000,), hidden=4096, positions=positions)
    assert found["logits_bytes"] == 8 * 4096 * 128_000 * width


def test_added_and_rounded_rows_stand_side_by_side() -> None:
    found = asked(vocab_sizes=(1000, 2000), hidden=64, add=10, multiple=128)
    columns = document(found)["columns"]
    assert [c["rows"] for c in columns] == [1000, 1010, 1024, 1024, 2000, 2010, 2048, 2048]
    assert [c["kind"] for c in columns[:4]] == ["vocab-size", "add", "pad", "add-pad"]
    assert columns[1]["title"] == "1,000 +10"
    assert columns[1]["bytes"]["stored"] == 2 * 1010 * 64 * 2


# --- models --------------------------------------------------------------------------------------------


def test_a_tied_model_is_counted_once_and_beside_its_other_weights() -> None:
    found = column(path=TINYLM)
    assert (found["rows"], found["hidden"], found["tied"]) == (512, 64, True)
    assert found["parameters"]["total"] == 512 * 64
    total = sum(
        each["data_offsets"][1] - each["data_offsets"][0]
        for name, each in header(Path(TINYLM) / "model.safetensors").items()
        if name != "__metadata__"
    )
    assert found["bytes"]["stored"] == 512 * 64 * 2
    assert found["bytes"]["stored_share"] == pytest.approx(512 * 64 * 2 / total)
    assert found["parameters"]["share"] == pytest.approx(found["bytes"]["stored_share"])


def header(file: Path) -> Any:
    with file.open("rb") as stream:
        return json.loads(stream.read(int.from_bytes(stream.read(8), "little")))


def test_new_tokens_take_padding_rows_first() -> None:
    found = asked(path=TINYLM, add=100, multiple=64)
    columns = document(found)["columns"]
    assert [c["rows"] for c in columns] == [512, 600, 512, 640]
    assert "12 new tokens of 100 fit into padding rows" in found.remarks
    inside = asked(path=TINYLM, add=5)
    assert inside.columns[1].tables.rows == 512


def test_an_untied_model_has_two_tables(tmp_path: Path) -> None:
    found = column(path=str(build(base("llama"), tmp_path / "model")))
    assert found["parameters"] == {
        "input": 2560,
        "output": 2560,
        "other": 0,
        "total": 5120,
        "share": pytest.approx(5120 / 5128),
        "tie_saves": 2560,
    }


def test_a_tied_table_that_is_stored_twice_costs_bytes_and_no_parameters(tmp_path: Path) -> None:
    change = {"json": {"config.json": {"tie_word_embeddings": True}}}
    found = asked(path=str(build(changed(base("llama"), change), tmp_path / "model")))
    first = document(found)["columns"][0]
    assert first["parameters"]["total"] == 2560
    assert first["bytes"]["stored"] == 2 * 2560 * 2
    assert any("stored all the same" in remark for remark in found.remarks)


@pytest.mark.parametrize("kind", ["AlbertForMaskedLM", "OPTForCausalLM"])
def test_factorised_tables_are_as_wide_as_they_are(tmp_path: Path, kind: str) -> None:
    names = {
        "AlbertForMaskedLM": ("albert", "embedding_size", "albert.embeddings.word_embeddings.weight"),
        "OPTForCausalLM": ("opt", "word_embed_proj_dim", "model.decoder.embed_tokens.weight"),
    }
    type, width, name = names[kind]
    config = {"architectures": [kind], "model_type": type, "vocab_size": 320, "hidden_size": 32, width: 8}
    found = asked(path=model(tmp_path, config, {name: ("F32", [320, 8]), "other": ("F32", [8, 32])}))
    first = document(found)["columns"][0]
    assert (first["hidden"], first["parameters"]["total"]) == (8, 2560)
    assert first["parameters"]["share"] == pytest.approx(2560 / (2560 + 256))
    assert any("8 wide where hidden_size is 32" in remark for remark in found.remarks)


def test_per_layer_embeddings_are_counted_and_grow(tmp_path: Path) -> None:
    config = {
        "architectures": ["Gemma3nForCausalLM"],
        "model_type": "gemma3n_text",
        "vocab_size": 320,
        "vocab_size_per_layer_input": 310,
        "hidden_size": 8,
        "tie_word_embeddings": True,
    }
    tensors = {
        "model.embed_tokens.weight": ("BF16", [320, 8]),
        "model.embed_tokens_per_layer.weight": ("BF16", [310, 40]),
    }
    now, more = document(asked(path=model(tmp_path, config, tensors), add=100))["columns"]
    assert now["parameters"]["other"] == 310 * 40
    assert now["parameters"]["total"] == 320 * 8 + 310 * 40
    assert more["parameters"]["total"] == more["rows"] * (8 + 40)


def test_a_decoders_own_vocabulary_is_counted_and_does_not_grow(tmp_path: Path) -> None:
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": 320,
        "decoder_vocab_size": 400,
        "d_model": 8,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": True,
    }
    tensors = {
        "model.encoder.embed_tokens.weight": ("F32", [320, 8]),
        "model.decoder.embed_tokens.weight": ("F32", [400, 8]),
        "final_logits_bias": ("F32", [1, 400]),
    }
    found = asked(path=model(tmp_path, config, tensors), add=100, positions=Positions(1, 1))
    now, more = document(found)["columns"]
    assert now["parameters"]["total"] == 320 * 8 + 400 * 8 + 400
    assert now["logits_bytes"] == 400 * 4
    assert more["parameters"]["total"] - now["parameters"]["total"] == (more["rows"] - 320) * 8
    assert more["logits_bytes"] == now["logits_bytes"]
    assert now["parameters"]["tie_saves"] == 400 * 8
    assert any("of another vocabulary" in remark for remark in found.remarks)


def test_the_two_names_of_one_bias_count_once(tmp_path: Path) -> None:
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 320, "hidden_size": 8}
    tensors = {
        "bert.embeddings.word_embeddings.weight": ("F32", [320, 8]),
        "cls.predictions.bias": ("F32", [320]),
        "cls.predictions.decoder.bias": ("F32", [320]),
    }
    assert column(path=model(tmp_path, config, tensors))["parameters"]["other"] == 320


def test_a_model_without_output_embeddings_has_no_logits(tmp_path: Path) -> None:
    config = {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 320, "hidden_size": 8}
    found = asked(path=model(tmp_path, config, {"embeddings.word_embeddings.weight": ("F32", [320, 8])}))
    first = document(found)["columns"][0]
    assert first["parameters"]["total"] == 2560
    assert first["logits_bytes"] is None
    assert any("BertModel has no output embeddings" in reason for reason in first["unknown"])


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 8,
    "tie_word_embeddings": False,
}


def test_a_packed_output_table_counts_as_what_it_stands_for(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ("F16", [320, 8]),
        "lm_head.qweight": ("I32", [1, 320]),
        "lm_head.scales": ("F16", [1, 320]),
        "lm_head.qzeros": ("I32", [1, 40]),
    }
    found = asked(path=model(tmp_path, LLAMA, tensors), add=10)
    now, more = document(found)["columns"]
    assert now["parameters"]["output"] == 2560
    assert now["bytes"]["stored"] == 320 * 8 * 2 + 320 * 4 + 320 * 2 + 40 * 4
    assert now["parameters"]["share"] == 1.0
    assert more["parameters"]["output"] == more["rows"] * 8
    assert more["bytes"]["stored"] is None
    assert any("lm_head.qweight is packed (GPTQ)" in remark for remark in found.remarks)


def test_a_packed_table_that_nothing_sizes_is_unknown(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "hidden_size"}
    tensors = {
        "model.embed_tokens.weight": ("U8", [1280, 1]),
        "model.embed_tokens.weight.absmax": ("F32", [40]),
        "lm_head.weight": ("F16", [320, 8]),
    }
    first = column(path=model(tmp_path, config, tensors))
    assert first["rows"] == 320
    assert first["hidden"] is None
    assert first["parameters"]["total"] is None
    assert first["training"]["mixed"]["total"] is None
    assert first["bytes"]["stored"] == 1280 + 160 + 320 * 8 * 2
    assert first["logits_bytes"] is not None
    assert any("bitsandbytes, 4 bits" in reason for reason in first["unknown"])


def test_packed_weights_elsewhere_leave_the_share_of_bytes(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ("F16", [320, 8]),
        "lm_head.weight": ("F16", [320, 8]),
        "model.layers.0.mlp.up_proj.qweight": ("I32", [8, 8]),
    }
    first = column(path=model(tmp_path, LLAMA, tensors))
    assert first["parameters"]["share"] is None
    assert first["bytes"]["stored_share"] == pytest.approx(10240 / (10240 + 256))


def test_8_bit_floats_are_parameters(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ("F8_E4M3", [320, 8]),
        "model.embed_tokens.weight_scale": ("F32", [1, 1]),
        "lm_head.weight": ("BF16", [320, 8]),
    }
    first = column(path=model(tmp_path, LLAMA, tensors))
    assert first["parameters"]["input"] == 2560
    assert first["bytes"]["stored"] == 2560 + 4 + 5120


def test_only_the_output_table_of_a_tied_pair_counts_for_both(tmp_path: Path) -> None:
    config = {**LLAMA, "tie_word_embeddings": True}
    found = asked(path=model(tmp_path, config, {"lm_head.weight": ("BF16", [320, 8])}))
    first = document(found)["columns"][0]
    assert (first["rows"], first["parameters"]["total"]) == (320, 2560)
    assert any("only the output embeddings" in remark for remark in found.remarks)


def test_a_model_without_weights_needs_the_width(tmp_path: Path) -> None:
    description = base("llama")
    del description["safetensors"]
    path = str(build(description, tmp_path / "model"))
    with pytest.raises(UsageError, match="the width of the tables is not known") as error:
        asked(path=path)
    assert error.value.hint == "give --hidden"
    first = column(path=path, hidden=16)
    assert (first["rows"], first["hidden"], first["tied"]) == (320, 16, False)


def test_a_model_with_weights_needs_no_description() -> None:
    with pytest.raises(UsageError, match="for a model without weights"):
        asked(path=TINYLM, hidden=64)


def test_a_model_whose_tables_are_not_found_has_no_cost(tmp_path: Path) -> None:
    path = model(tmp_path, LLAMA, {"something": ("F32", [3, 3])})
    with pytest.raises(FactMissing):
        asked(path=path)


# --- text ----------------------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text("One fish two fish,\nred fish blue fish.\n\n" * 3000, encoding="utf-8")
    return file


def own_count(directory: str, texts: Sequence[str]) -> int:
    tokenizer = Tokenizer.from_file(f"{directory}/tokenizer.json")
    tokenizer.no_truncation()
    return sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)


def test_a_text_is_cut_between_lines_and_nothing_of_it_is_lost(text: Path) -> None:
    with open_named(str(text)) as file:
        parts = list(pieces(file))
    assert len(parts) == 2
    assert "".join(parts) == text.read_text(encoding="utf-8")
    assert all(len(part.encode()) <= corpus.PIECE_BYTES for part in parts)
    assert parts[1].startswith(("One", "red"))


@pytest.mark.parametrize(
    "content", ["x" * 70_000, "wort " * 30_000, "\u20ac" * 50_000, "\U0001f600" * 40_000]
)
def test_long_lines_are_cut_too(tmp_path: Path, content: str) -> None:
    file = tmp_path / "text.txt"
    file.write_text(content, encoding="utf-8")
    with open_named(str(file)) as opened:
        parts = list(pieces(opened))
    assert len(parts) > 1
    assert "".join(parts) == content
    assert read_text(str(file)).words == len(content.split())


def test_every_tokenizer_is_asked_and_gives_what_the_library_gives(text: Path, tmp_path: Path) -> None:
    other = str(build(base("llama"), tmp_path / "other"))
    found = encode_all(read_text(str(text)), [TINYLM, other], Quiet())
    with open_named(str(text)) as file:
        parts = list(pieces(file))
    assert found == [Encoded(own_count(TINYLM, parts), 0), Encoded(own_count(other, parts), 0)]


def test_table_and_sequence_length_stand_in_one_table(text: Path, tmp_path: Path) -> None:
    other = str(build(base("llama"), tmp_path / "other"))
    found = asked(path=TINYLM, corpus=str(text), tokenizers=(other,), positions=Positions(1, 1000))
    now, more = document(found)["columns"]
    assert found.text is not None
    assert (found.text.nbytes, found.text.words) == (text.stat().st_size, 24_000)
    assert now["text"]["relative_length"] == 1
    assert now["text"]["tokens_per_word"] == now["text"]["tokens"] / 24_000
    assert now["text"]["tokens_per_byte"] == now["text"]["tokens"] / text.stat().st_size
    assert (more["title"], more["rows"], more["hidden"]) == ("other", 320, 64)
    ratio = more["text"]["tokens"] / now["text"]["tokens"]
    assert more["text"]["relative_length"] == pytest.approx(ratio)
    assert more["text"]["logits_bytes"] == round(1000 * ratio * 320 * 4)


def test_tokenizers_alone_give_the_rows(text: Path, tmp_path: Path) -> None:
    other = str(build(base("llama"), tmp_path / "other"))
    found = asked(hidden=4096, tokenizers=(TINYLM, other), corpus=str(text), multiple=64, tied=True)
    columns = document(found)["columns"]
    assert [c["rows"] for c in columns] == [512, 320]
    assert [c["parameters"]["total"] for c in columns] == [512 * 4096, 320 * 4096]
    assert all(c["text"]["tokens"] for c in columns)


def test_what_new_tokens_shorten_is_not_invented(text: Path) -> None:
    now, more, padded = asked(path=TINYLM, corpus=str(text), add=100, multiple=128).columns[:3]
    assert isinstance(more.encoded, Missing)
    assert padded.encoded == now.encoded


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "fish": 1}, "unk_token": "[UNK]"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    file = tmp_path / "text"
    file.write_text("one fish two fish")
    found = asked(hidden=8, tokenizers=(str(tmp_path),), corpus=str(file))
    assert found.columns[0].encoded == Encoded(4, 2)
    assert "unknown tokens" in _cost.RENDER["terminal"](found, View())


def test_a_tokenizer_that_refuses_the_text_leaves_its_column_and_an_error(tmp_path: Path, text: Path) -> None:
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"fish": 0}, "unk_token": "[UNK]"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = asked(path=TINYLM, tokenizers=(str(tmp_path),), corpus=str(text))
    assert isinstance(found.columns[0].encoded, Encoded)
    assert isinstance(found.columns[1].encoded, Missing)
    assert found.columns[1].tables.rows == 1
    (error,) = found.errors
    assert "rejects it" in error.message


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "empty-file"), (b"caf\xe9 au lait", "not-utf8"), (b"x" * 70000 + b"\xff", "not-utf8")],
)
def test_a_text_that_cannot_be_counted_is_refused(tmp_path: Path, content: bytes, code: str) -> None:
    file = tmp_path / "text"
    file.write_bytes(content)
    with pytest.raises(Unreadable) as error:
        read_text(str(file))
    assert error.value.code == code


class Recorder:
    def __init__(self) -> None:
        self.total = self.done = 0

    def start(self, total: int) -> None:
        self.total = total

    def advance(self, nbytes: int) -> None:
        self.done += nbytes


def test_progress_arrives_at_its_end(text: Path) -> None:
    recorder = Recorder()
    encode_all(read_text(str(text)), [TINYLM, TINYLM], recorder)
    assert recorder.done == recorder.total == 2 * text.stat().st_size


def test_memory_does_not_follow_the_size_of_the_text(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the text, a few pieces at a time are read and asked."""
    asked_at_once: list[int] = []
    count = TokenizerProcess.count

    def spy(process: Any, texts: Sequence[str]) -> Any:
        asked_at_once.append(sum(len(each.encode()) for each in texts))
        return count(process, texts)

    monkeypatch.setattr(TokenizerProcess, "count", spy)
    monkeypatch.setattr(corpus, "PIECE_BYTES", 1000)
    encode_all(read_text(str(text)), [TINYLM], Quiet())
    assert len(asked_at_once) > 20
    assert max(asked_at_once) <= 4000


# --- the command ---------------------------------------------------------------------------------------


def test_the_terminal_shows_a_column_for_each_vocabulary(tmp_path: Path) -> None:
    sizes = ("--vocab-size", "32000", "--vocab-size", "64000", "--vocab-size", "128000")
    result = tokaudit("cost", *sizes, "--hidden", "4096", "--batch", "8", "--length", "4096", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    lines = {line.split("  ")[1]: line.split() for line in result.stdout.splitlines() if line[:2] == "  "}
    assert lines["rows"] == ["rows", "32,000", "64,000", "128,000"]
    assert lines["in float16, bfloat16"][3:] == ["500.0", "MiB", "1000.0", "MiB", "2.0", "GiB"]
    assert lines["one copy"][2:] == ["3.9", "GiB", "7.8", "GiB", "15.6", "GiB"]
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_columns_that_do_not_fit_follow_below() -> None:
    found = asked(vocab_sizes=tuple(range(1000, 20_000, 1000)), hidden=4096)
    text = _cost.RENDER["terminal"](found, View(width=80))
    assert text.count("training with Adam") > 1
    assert all(f"{size:,}" in text for size in range(1000, 20_000, 1000))
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to cost"),
        (["--vocab-size", "0", "--hidden", "8"], "--vocab-size must be a number from 1 on"),
        (["--vocab-size", "8"], "how wide the tables are is not known"),
        (["--vocab-size", "8", "--hidden", "0"], "--hidden must be at least 1"),
        (
            ["--vocab-size", "8", "--hidden", "8", "--dtype", "int4"],
            "--dtype must be float32, bfloat16,",
        ),
        ([TINYLM, "--vocab-size", "8"], "exclude each other"),
        ([TINYLM, "--format", "csv"], "--format must be terminal or json"),
        ([TINYLM, "--corpus", "nowhere.txt"], "there is no such file"),
        ([TINYLM, "--tokenizer", "nowhere"], "there is no such directory"),
        (["nowhere"], "there is no such directory"),
    ],
)
def test_a_wrong_call_is_exit_2_with_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = tokaudit("cost", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stderr.startswith("tokaudit: error")
    assert len(result.stderr.splitlines()) <= 2
    assert result.stdout == ""


def test_a_damaged_part_is_exit_2_beside_what_could_be_counted(tmp_path: Path) -> None:
    path = build(base("llama"), tmp_path / "model")
    (path / "config.json").write_text("{")
    result = tokaudit("cost", path, cwd=tmp_path)
    assert result.returncode == 2
    assert "5,120" in result.stdout
    assert result.stderr.startswith("tokaudit: error[json-syntax]: config.json")


def test_a_damaged_tokenizer_counts_where_the_answer_rests_on_it(tmp_path: Path) -> None:
    path = build(base("llama"), tmp_path / "model")
    (path / "tokenizer.json").write_text("{")
    alone, more = (tokaudit("cost", path, *options, cwd=tmp_path) for options in ((), ("--add", "9")))
    assert (alone.returncode, alone.stderr) == (0, "")
    assert more.returncode == 2
    assert more.stderr.startswith("tokaudit: error[tokenizer-unreadable]: tokenizer.json")


def test_texts_of_a_model_are_inert_in_every_format(tmp_path: Path) -> None:
    name = "other\x1b[31m::error::"
    build(base("llama"), tmp_path / name)
    found = asked(path=TINYLM, tokenizers=(str(tmp_path / name),))
    for render in _cost.RENDER.values():
        said = render(found, View())
        assert "\x1b" not in said
        assert "::" not in said


@pytest.mark.hostile
@pytest.mark.parametrize("group", ["CT", "ST", "IX", "FS", "JS", "TK", "PK", "AD"])
def test_the_invariants_of_check_hold_for_hostile_directories(group: str, catalogue: Path) -> None:  # noqa: F811
    command = shutil.which("tokaudit", path=str(Path(sys.executable).parent))
    assert command, "the package is not installed"
    script = PROJECT / "tests" / "hostile" / "run_cases.py"
    run = subprocess.run(
        [sys.executable, str(script), str(catalogue), "--only", group, "--", command, "cost"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    assert " 0 violations" in run.stderr


def test_no_heavy_library_is_loaded(tmp_path: Path) -> None:
    script = (
        "import sys; from tokaudit.cli import main; code = main();"
        "print(sorted({'torch', 'numpy', 'pydantic', 'tokenizers'} & set(sys.modules)), file=sys.stderr);"
        "sys.exit(code)"
    )
    result = tokaudit("cost", TINYLM, "--add", "5", cwd=tmp_path, script=script)
    assert (result.returncode, result.stderr) == (0, "[]\n")
