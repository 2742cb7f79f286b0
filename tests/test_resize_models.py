"""A grown model is the same model: transformers loads it, and old text gives bit-identical logits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from models import FIXTURES, base, build
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from weights import tables_of

from tokaudit.contract import Role
from tokaudit.resize import NewToken, Request, resize

TINYLM = FIXTURES / "tinylm"
PROMPTS = ["The cat", "In the morning", "A small boat"]
NEW = (NewToken("<|tool|>", special=True), NewToken("lighthouse keeper"))


def greedy(directory: Path, prompt: str, length: int = 24) -> str:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    out = model.generate(ids, do_sample=False, max_new_tokens=length)
    return str(tokenizer.decode(out[0]))


def logits(directory: Path, ids: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([ids])).logits
    return found


def untied(out: Path) -> Path:
    """tinylm with an output table of its own."""
    import safetensors.torch as st

    shutil.copytree(TINYLM, out)
    tensors = st.load_file(out / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone() * 1.5
    st.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text("utf-8"))
    (out / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return out


@pytest.fixture(params=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return TINYLM if request.param == "tied" else untied(tmp_path / "untied")


def test_old_text_gives_old_tokens_bit_identical_logits(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "grown"
    result = resize(model, out, Request(tokens=NEW, rows=600))
    ids = list(range(3, 40))
    old, new = logits(model, ids), logits(out, ids)
    assert result.plan.rows_after == 600
    tokens = min(token.id for token in result.plan.added)  # rows behind them were padding
    assert tokens == 500
    assert torch.equal(new[..., :tokens], old[..., :tokens])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_unchanged(prompt: str, tmp_path: Path) -> None:
    resize(TINYLM, tmp_path / "grown", Request(tokens=NEW))
    assert greedy(tmp_path / "grown", prompt) == greedy(TINYLM, prompt)


@pytest.mark.real
def test_greedy_text_of_a_published_model_is_unchanged(real: Path, tmp_path: Path) -> None:
    source = real / "stories260K-hf"
    resize(source, tmp_path / "grown", Request(tokens=NEW, multiple=64))
    assert greedy(tmp_path / "grown", "Once upon a time") == greedy(source, "Once upon a time")


def test_the_tokenizer_gives_the_new_ids_in_transformers_too(tmp_path: Path) -> None:
    result = resize(TINYLM, tmp_path / "grown", Request(tokens=NEW))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "grown")
    for token in result.plan.added:
        assert tokenizer.convert_tokens_to_ids(token.content) == token.id
        assert tokenizer.encode(f"a {token.content}", add_special_tokens=False)[-1] == token.id


def test_one_training_step_moves_the_new_rows(model: Path, tmp_path: Path) -> None:
    result = resize(model, tmp_path / "grown", Request(tokens=NEW))
    grown = AutoModelForCausalLM.from_pretrained(tmp_path / "grown", dtype=torch.float32)
    ids = torch.tensor([[1, *(token.id for token in result.plan.added), 2]])
    table: Any = grown.get_input_embeddings()
    before = table.weight.detach().clone()
    optimizer = torch.optim.SGD(grown.parameters(), lr=1.0)
    grown(ids, labels=ids).loss.backward()
    optimizer.step()
    for token in result.plan.added:
        assert not torch.equal(table.weight[token.id], before[token.id])


def test_a_new_row_is_the_float32_mean_of_its_pieces_rounded_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    result = resize(TINYLM, tmp_path / "grown", Request(tokens=NEW))
    old = load_file(TINYLM / "model.safetensors")["model.embed_tokens.weight"]
    new = load_file(tmp_path / "grown" / "model.safetensors")["model.embed_tokens.weight"]
    tokenizer = AutoTokenizer.from_pretrained(TINYLM)
    for token in result.plan.added:
        pieces = tokenizer.encode(token.content, add_special_tokens=False)
        assert torch.equal(new[token.id], old[pieces].float().mean(0).to(old.dtype))


def test_a_tied_model_stays_tied_and_stores_one_table(tmp_path: Path) -> None:
    resize(TINYLM, tmp_path / "grown", Request(tokens=NEW))
    assert "lm_head.weight" not in tables_of(tmp_path / "grown")
    grown = AutoModelForCausalLM.from_pretrained(tmp_path / "grown")
    assert grown.lm_head.weight.data_ptr() == grown.model.embed_tokens.weight.data_ptr()


def test_a_role_is_set_in_every_file_that_states_it(tmp_path: Path) -> None:
    source = build(base("llama"), tmp_path / "source")
    out = tmp_path / "grown"
    result = resize(source, out, Request(roles={Role.PAD: "<|padding|>"}))
    (token,) = result.plan.added
    for name in ("config.json", "generation_config.json"):
        assert json.loads((out / name).read_text("utf-8"))["pad_token_id"] == token.id
    assert json.loads((out / "tokenizer_config.json").read_text("utf-8"))["pad_token"] == "<|padding|>"


PUBLISHED = [
    "clip-vit",
    "falcon",
    "focus-de-xlmr-unigram-30k",
    "gpt-neox-20b-pii",
    "granite-3.1-1b",
    "nepali-wordpiece",
    "phi-2",
    "roberta-base",
    "stories260K-hf",
    "t5-small",
    "whisper-tiny",
]
OLD_TEXTS = (
    "Hello world, this is a test!",
    "  x = 1\n\tfoo(bar)",
    "\u65e5\u672c\u8a9e \u00e9moji \U0001f389",
)


@pytest.mark.real
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tokenizers_give_old_text_the_old_ids_and_new_tokens_theirs(
    name: str, real: Path, tmp_path: Path
) -> None:
    """Each with the tables of a small Llama, for the weights are not published with all of them."""
    source = tmp_path / "source"
    source.mkdir()
    for path in (real / name).iterdir():
        if path.suffix in (".json", ".txt", ".jinja", ".model") and "config" not in path.name.split(".")[0]:
            (source / path.name).write_bytes(path.read_bytes())
    settings = real / name / "tokenizer_config.json"
    if settings.exists():
        (source / settings.name).write_bytes(settings.read_bytes())
    tokenizer = AutoTokenizer.from_pretrained(source) if settings.exists() else None
    vocabulary = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab()
    rows = max(vocabulary.values()) + 1
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": rows,
        "tie_word_embeddings": True,
        "hidden_size": 2,
        "intermediate_size": 2,
        "num_attention_heads": 1,
        "num_hidden_layers": 1,
    }
    table = {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [rows, 2]}}
    build({"json": {"config.json": config}, "safetensors": {"model.safetensors": table}}, source)
    result = resize(source, tmp_path / "out", Request(tokens=NEW, force=True))
    added = {row.content: row.id for row in result.plan.rows}
    grown = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    assert grown.get_vocab() == {**vocabulary, **added}
    assert list(added.values()) == [rows, rows + 1]
    if tokenizer is not None:
        new = AutoTokenizer.from_pretrained(tmp_path / "out")
        assert [new.convert_tokens_to_ids(content) for content in added] == [rows, rows + 1]
        for text in OLD_TEXTS:
            assert new(text)["input_ids"] == tokenizer(text)["input_ids"]
