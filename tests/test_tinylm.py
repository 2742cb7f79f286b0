"""fixtures/tinylm is a real model: it loads, and greedy decoding tells of its valley.

    "The train"          -> " comes to the valley twice a day. In the morning it brings the letters, ..."
    "Once upon a time"   -> " there was a valley with a stream, a mill and an old oak. ..."
    "The mouse"          -> " lives behind the clock. She hears every hour from very near. ..."
    user: "Where does the bear live?"  -> "The bear lives in the cave behind the waterfall."

The texts are recorded in full below; each ends with the end-of-sequence token. At every step the best
token leads the second by more than 3 in logits, so they do not depend on the order of a processor's sums.
"""

from __future__ import annotations

import importlib.util
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
TINYLM = FIXTURES / "tinylm"

CONTINUATIONS = {
    "The train": " comes to the valley twice a day. In the morning it brings the letters, and in the evening"
    " it takes the answers away. The driver waves to the cows, and one of the cows nods.</s>",
    "Once upon a time": " there was a valley with a stream, a mill and an old oak. Everybody in it knew"
    " everybody else. Nothing much happened there, and it happened every day.</s>",
    "The mouse": " lives behind the clock. She hears every hour from very near. She is small, but she is"
    " always on time.</s>",
}
QUESTION, ANSWER = "Where does the bear live?", "The bear lives in the cave behind the waterfall.</s>"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TINYLM)


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest) -> Any:
    return AutoModelForCausalLM.from_pretrained(TINYLM, dtype=request.param)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tinylm", FIXTURES / "make_tinylm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def read_json(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((TINYLM / name).read_text(encoding="utf-8"))
    return document


def continuation(model: Any, tokenizer: Any, ids: list[int]) -> str:
    output = model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), do_sample=False, max_new_tokens=80
    )
    text: str = tokenizer.decode(output[0, len(ids) :])
    return text


@pytest.mark.parametrize("prompt", CONTINUATIONS)
def test_greedy_decoding_continues_a_prompt_as_recorded(model: Any, tokenizer: Any, prompt: str) -> None:
    assert continuation(model, tokenizer, tokenizer(prompt).input_ids) == CONTINUATIONS[prompt]


def test_the_chat_template_makes_it_answer_a_question(model: Any, tokenizer: Any) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert continuation(model, tokenizer, ids) == ANSWER


def test_the_output_table_is_the_input_table(model: Any) -> None:
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    with safe_open(TINYLM / "model.safetensors", "pt") as stored:
        assert [name for name in stored.keys() if "embed" in name or "lm_head" in name] == [  # noqa: SIM118
            "model.embed_tokens.weight"
        ]


@pytest.mark.parametrize(
    "text",
    ["The fox is never in a hurry.", "  two spaces\tand a tab\n", "Füchse, 狐狸, 🦊 and e\u0301", "\x00\x7f"],
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_the_whole_training_text_survives_the_tokenizer(tokenizer: Any) -> None:
    text = (FIXTURES / "tinylm_text.txt").read_text(encoding="utf-8")
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text


def test_every_special_token_encodes_to_its_one_id(tokenizer: Any) -> None:
    special = {token.content: id for id, token in tokenizer.added_tokens_decoder.items()}
    assert list(special) == ["<pad>", "<s>", "</s>", "<unk>", "<|user|>", "<|assistant|>"]
    for content, id in special.items():
        assert tokenizer(content, add_special_tokens=False).input_ids == [id]


def test_files_agree_on_sizes_and_special_ids(tokenizer: Any) -> None:
    config, generation = read_json("config.json"), read_json("generation_config.json")
    tokens = {"bos": tokenizer.bos_token, "eos": tokenizer.eos_token, "pad": tokenizer.pad_token}
    ids = {role: tokenizer.convert_tokens_to_ids(token) for role, token in tokens.items()}
    assert len({*ids.values(), tokenizer.unk_token_id}) == 4
    for role, id in ids.items():
        assert config[f"{role}_token_id"] == generation[f"{role}_token_id"] == id
    with safe_open(TINYLM / "model.safetensors", "pt") as stored:
        rows, hidden = stored.get_slice("model.embed_tokens.weight").get_shape()
    assert (rows, hidden) == (config["vocab_size"], config["hidden_size"]) == (512, 64)
    assert sorted(tokenizer.get_vocab().values()) == list(range(500))
    assert config["max_position_embeddings"] == tokenizer.model_max_length == 256


def test_the_directory_stays_below_one_megabyte() -> None:
    assert sum(file.stat().st_size for file in TINYLM.iterdir()) < 1_000_000


def test_the_script_trains_the_committed_tokenizer(script: ModuleType) -> None:
    trained = script.train_tokenizer(script.read_corpus(FIXTURES / "tinylm_text.txt"))
    made, committed = json.loads(trained.to_str()), read_json("tokenizer.json")
    assert made["model"]["vocab"] == committed["model"]["vocab"]
    assert made["model"]["merges"] == committed["model"]["merges"]
    assert made["post_processor"] == committed["post_processor"]


@pytest.mark.usefixtures("one_thread")
def test_the_script_trains_the_same_weights_twice(script: ModuleType) -> None:
    corpus = script.read_corpus(FIXTURES / "tinylm_text.txt")
    tokenizer = script.train_tokenizer(corpus)
    first, second = (script.train_model(corpus, tokenizer, steps=3).state_dict() for _ in range(2))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.usefixtures("one_thread")
def test_the_script_writes_the_committed_layout(script: ModuleType, tmp_path: Path) -> None:
    corpus = script.read_corpus(FIXTURES / "tinylm_text.txt")
    tokenizer = script.train_tokenizer(corpus)
    script.write(script.train_model(corpus, tokenizer, steps=1), tokenizer, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in TINYLM.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o644}
    assert (tmp_path / "model.safetensors").stat().st_size == (TINYLM / "model.safetensors").stat().st_size
    assert (tmp_path / "chat_template.jinja").read_text() == (TINYLM / "chat_template.jinja").read_text()
