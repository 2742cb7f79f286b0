"""What is fuzzed: for each target a strategy of inputs, each a folder of files."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785
from hypothesis import strategies as st
from models import FIXTURES, base, build
from releases import RELEASES, build_release

import tokaudit
from fuzz import (
    adapters,
    checkpoints,
    data_files,
    headers,
    ledger_files,
    pairs,
    pickles,
    templates,
    tokenizer_files,
)
from fuzz.values import INTEGERS, JSON, ODD, TEXTS, bitten, damaged, written
from tokaudit.choices import READERS

Files = dict[str, bytes]
HOSTILE_CASES = Path(__file__).resolve().parents[1] / "hostile" / "make_bad.py"
REQUEST = "request.json"  # the arguments of a request


def files_of(folder: Path) -> Files:
    """The plain files in a folder, but for large ones."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 500_000
    }


@cache
def _corpus() -> tuple[Any, ...]:
    """Descriptions of models: the bases, the cases and the well-known releases."""
    bases = [base(name) for name in ("llama", "bert", "t5")]
    cases = [json.loads(path.read_bytes()) for path in sorted((FIXTURES / "cases").glob("*.json"))]
    models = [folder for case in cases for folder in case["dirs"].values()]
    return (*bases, *(model for model in models if not isinstance(model, str)), *RELEASES)


@cache
def model(number: int) -> Mapping[str, bytes]:
    """The files of one of them."""
    description = _corpus()[number]
    with tempfile.TemporaryDirectory() as name:
        make = build_release if "tokenizer_config" in description or "tables" in description else build
        return files_of(make(description, Path(name) / "model"))


MODELS = st.integers(0, len(_corpus()) - 1).map(model)
LLAMA = dict(model(0))
LLAMA_ALONE = {name: data for name, data in LLAMA.items() if not name.endswith(".safetensors")}


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


# Configurations -------------------------------------------------------------------------------------------

CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
FIELDS = st.sampled_from(
    [
        "vocab_size",
        "hidden_size",
        "tie_word_embeddings",
        "architectures",
        "model_type",
        "torch_dtype",
        "pad_token_id",
        "eos_token_id",
        "bos_token_id",
        "decoder_start_token_id",
        "suppress_tokens",
        "bad_words_ids",
        "forced_decoder_ids",
        "text_config",
        "decoder",
        "encoder",
        "quantization_config",
        "transformers_weights",
        "auto_map",
        "n_positions",
        "num_nextn_predict_layers",
        "is_encoder_decoder",
        "max_position_embeddings",
        "rope_scaling",
        "image_token_id",
    ]
)


@st.composite
def configs(draw: st.DrawFn) -> Files:
    """A model whose configurations were changed, with fields more or less."""
    found = dict(draw(MODELS))
    for name in CONFIGS:
        document = _document(found.get(name, b""))
        if not isinstance(document, dict) or draw(st.integers(0, 2)) == 0:
            continue
        document |= draw(st.dictionaries(FIELDS, ODD | st.lists(INTEGERS | ODD, max_size=3), max_size=2))
        found[name] = written(draw(damaged(st.just(document))))
    if draw(st.integers(0, 9)) == 0:
        found["config.json"] = written(draw(ODD))
    if draw(st.booleans()):  # nothing else decides how long it takes
        found.pop("tokenizer.json", None)
    return found


# Weights --------------------------------------------------------------------------------------------------


@st.composite
def weights(draw: st.DrawFn) -> Files:
    """A safetensors file beside the configuration of a model."""
    found = {"model.safetensors": draw(headers.FILES)}
    if draw(st.booleans()):
        found["config.json"] = LLAMA["config.json"]
    return found


SHARD_NAMES = st.sampled_from(
    [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors",
        "x.bin",
        "../x.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "",
        ".",
        "x" * 300 + ".safetensors",
        "C:\\x.safetensors",
        "adapter_model.safetensors",
        "consolidated.safetensors",
        "MODEL.safetensors",
        "a\0b.safetensors",
        "http://x/y.safetensors",
        "\ud800.safetensors",
    ]
)


@st.composite
def indexes(draw: st.DrawFn) -> Files:
    """Shards, an index that may or may not be theirs, and files beside them."""
    found: Files = {"config.json": LLAMA["config.json"]}
    weight_map: dict[str, str] = {}
    total = 0
    for number in (1, 2):
        header, end = draw(headers.laid_out())
        file = f"model-0000{number}-of-00002.safetensors"
        found[file] = draw(st.just(headers.file_bytes(written(header), bytes(end))) | headers.FILES)
        weight_map |= dict.fromkeys((name for name in header if name != "__metadata__"), file)
        total += end
    weight_map |= draw(st.dictionaries(headers.NAMES, SHARD_NAMES, max_size=2))
    index = {
        "metadata": {"total_size": total + draw(st.sampled_from([0, 0, 1, -1]))},
        "weight_map": weight_map,
    }
    document = draw(damaged(st.just(index)))
    if draw(st.booleans()):
        found["config.json"] = written(
            {"transformers_weights": draw(SHARD_NAMES | ODD), "model_type": "llama"}
        )
    data = written(document)
    found["model.safetensors.index.json"] = draw(st.just(data) | st.just(data) | bitten(st.just(data)))
    for file in draw(st.lists(SHARD_NAMES.filter(_is_plain), max_size=2)):
        found[file] = draw(headers.FILES)
    if draw(st.integers(0, 3)) == 0:
        del found[f"model-0000{draw(st.integers(1, 2))}-of-00002.safetensors"]
    return found


def _is_plain(name: str) -> bool:
    return name.isprintable() and len(name) < 250 and name not in ("", ".") and not set(name) & set("/\\:")


# Tokenizers -----------------------------------------------------------------------------------------------


@st.composite
def tokenizers(draw: st.DrawFn) -> Files:
    """A tokenizer, alone or beside the configuration and the table of a model."""
    found = draw(tokenizer_files.files())
    if draw(st.integers(0, 2)) == 0:
        rows = draw(st.integers(0, 20))
        header = {
            "model.embed_tokens.weight": {"dtype": "U8", "shape": [rows, 2], "data_offsets": [0, rows * 2]}
        }
        found["model.safetensors"] = headers.file_bytes(written(header), bytes(rows * 2))
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": rows}
        config |= draw(
            st.dictionaries(
                FIELDS, st.integers(-1, 20) | st.lists(st.integers(0, 20), max_size=3), max_size=3
            )
        )
        found["config.json"] = written(config)
    return found


# Templates ------------------------------------------------------------------------------------------------


@st.composite
def chat_templates(draw: st.DrawFn) -> Files:
    """Templates in files of their own, or in those where loaders look for them."""
    found: Files = {"config.json": LLAMA["config.json"]}
    files = [
        "chat_template.jinja",
        "additional_chat_templates/rag.jinja",
        "additional_chat_templates/\u202e.jinja",
    ]
    for name in draw(st.lists(st.sampled_from(files), max_size=2, unique=True)):
        found[name] = draw(templates.FILES)
    name = draw(st.sampled_from(["tokenizer_config.json", "chat_template.json", "processor_config.json"]))
    text = templates.TEXT
    named = st.lists(st.builds(lambda name, text: {"name": name, "template": text}, TEXTS, text), max_size=3)
    stated = draw(text | named | st.dictionaries(TEXTS, text, max_size=2) | ODD)
    found[name] = written(
        draw(damaged(st.just({"chat_template": stated, "eos_token": "</s>", "bos_token": "<s>"})))
    )
    if draw(st.integers(0, 4)) == 0:
        found["tokenizer.json"] = LLAMA["tokenizer.json"]
    return found


# Files of the user ----------------------------------------------------------------------------------------


@cache
def _lock() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = build(base("llama"), Path(name) / "model")
        document: dict[str, Any] = json.loads(tokaudit.lock_text(tokaudit.lock(folder, deep=True)))
        return document


@cache
def _baseline() -> dict[str, Any]:
    entry = {
        "rule": "TA101",
        "slug": "token-id-out-of-range",
        "file": "tokenizer.json",
        "subject": "x",
        "level": "error",
        "message": "3 ids have no row",
        "fingerprint": "0" * 64,
    }
    return {"baselineVersion": 1, "models": {".": [entry, entry], "model": []}}


def _with_digests(document: Any) -> Any:
    """The lock with the digests of what stands in it now, as far as there are some."""
    if not isinstance(document, dict) or not all(
        isinstance(document.get(key), dict) for key in ("layers", "digests")
    ):
        return document
    for name, layer in document["layers"].items():
        if name in ("mapping", "merges", "scores"):
            continue
        try:
            canonical = rfc8785.dumps(layer)
        except (ValueError, TypeError, RecursionError):
            continue
        document["digests"][name] = "sha256:" + hashlib.sha256(canonical).hexdigest()
    return document


@st.composite
def locks(draw: st.DrawFn) -> Files:
    """A model with a lock or a baseline that somebody edited."""
    found = {name: data for name, data in LLAMA.items() if name != "tokenizer.json" or draw(st.booleans())}
    if draw(st.integers(0, 3)):
        lock = draw(damaged(st.builds(_lock)))
        data = written(_with_digests(lock) if draw(st.integers(0, 4)) else lock)
        found["tokaudit.lock"] = draw(st.just(data) | st.just(data) | bitten(st.just(data)))
    else:
        data = written(draw(damaged(st.builds(_baseline))))
        found["baseline.json"] = draw(st.just(data) | bitten(st.just(data)))
    return found


TOML_KEYS = st.sampled_from([*READERS, "severity", "suppress", "nosuch"])
TOML_LINES = (
    st.builds("{} = {}".format, TOML_KEYS, JSON.map(lambda value: _toml(value)))
    | st.builds(
        "{} = {}".format, TOML_KEYS, st.sampled_from(["2027-01-31", "1e9", "0x10", "inf", "'TA101'", "[1, ]"])
    )
    | st.builds("[{}]".format, st.sampled_from(["severity", "suppress", "tool.tokaudit", "a.b", "", "'x'"]))
    | st.builds(
        "{} = '{}'".format,
        st.sampled_from(["TA101", "pad-token-missing", "TA2", "TA999", "ta101"]),
        st.sampled_from(["off", "note", "x"]),
    )
    | st.builds(
        "[[suppress]]\nrule = {}\nreason = {}\n{} = {}".format,
        st.sampled_from(['"TA101"', '"TA1"', "3", '""']),
        JSON.map(lambda value: _toml(value)),
        st.sampled_from(["expires", "model", "subject", "deep"]),
        st.sampled_from(["2027-01-31", '"x"', "1", "[]", "2027-01-31T00:00:00Z"]),
    )
    | st.just("a = " + "[" * 5000)
)


def _toml(value: Any) -> str:
    """A value as TOML has it, or nearly."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


@st.composite
def settings_files(draw: st.DrawFn) -> Files:
    data = "\n".join(draw(st.lists(TOML_LINES, max_size=4))).encode("utf-8", "surrogatepass")
    return {"tokaudit.toml": draw(st.just(data) | st.just(data) | bitten(st.just(data)))}


# Resize ---------------------------------------------------------------------------------------------------

NEW = (
    st.sampled_from(
        [*tokenizer_files.SPECIAL, "<new>", "<other>", "abc abc", "ab", "\u2581c", "c c", " ", ""]
    )
    | TEXTS
)
FRESH = st.text("etaoinshrdlu <>|_", min_size=2, max_size=7).map(lambda text: f"<{text}>")


@st.composite
def resizes(draw: st.DrawFn) -> Files:
    """A small model with any tokenizer that loads, and what is asked of a resize."""
    found = draw(checkpoints.small())
    tokens = draw(
        st.lists(
            st.fixed_dictionaries(
                {"content": FRESH | FRESH | NEW},
                optional={"special": st.booleans(), "lstrip": st.booleans(), "normalized": st.booleans()},
            ),
            max_size=3,
            unique_by=lambda token: token["content"],
        )
    )
    request = {
        "tokens": tokens,
        "init": draw(st.sampled_from(["mean-of-subwords", "mean", "normal", "zeros", "copy=a"])),
    }
    request |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "rows": st.integers(20, 60) | st.integers(20, 60) | st.integers(-1, 60),
                "multiple": st.sampled_from([1, 2, 3, 8, 8, 64, 64, 0, 10**12]),
                "force": st.booleans(),
            },
        )
    )
    found[REQUEST] = written(request)
    if draw(st.integers(0, 7)) == 0:
        found["tokenizer_config.json"] = written(draw(tokenizer_files.settings_files()))
    return found


@st.composite
def optimizer_inputs(draw: st.DrawFn) -> Files:
    """The state of an optimizer, perhaps also the one that lies beside a model."""
    found = draw(pickles.optimizers())
    if draw(st.integers(0, 3)) == 0:
        found |= {**LLAMA, "optimizer.pt": draw(pickles.STATE_FILES)}
    return found


# Anything -------------------------------------------------------------------------------------------------


@cache
def _catalogue() -> tuple[Files, ...]:
    """The damaged and hostile directories of tests/hostile, those whose files are plain files."""
    with tempfile.TemporaryDirectory() as name:
        made = [sys.executable, str(HOSTILE_CASES), name, "--only", "CT", "ST", "IX", "JS", "TK", "PK", "AD"]
        subprocess.run(made, check=True, capture_output=True)
        folders = [files_of(folder) for folder in sorted(Path(name).iterdir()) if folder.is_dir()]
    return tuple(files for files in folders if files)


@st.composite
def mauled(draw: st.DrawFn, models: st.SearchStrategy[Mapping[str, bytes]]) -> Files:
    """One of the folders with a few files damaged as bytes or as documents, or exchanged."""
    found = dict(draw(models))
    for name in draw(st.lists(st.sampled_from(sorted(found)), min_size=1, max_size=2, unique=True)):
        document = _document(found[name])
        if isinstance(document, (dict, list)) and draw(st.integers(0, 2)):
            found[name] = written(draw(damaged(st.just(document), least=1)))
        elif draw(st.integers(0, 5)) == 0:
            found[name] = found[draw(st.sampled_from(sorted(found)))]
        else:
            found[name] = draw(bitten(st.just(found[name])))
    return found


TARGETS: Mapping[str, st.SearchStrategy[Files]] = {
    "headers": weights(),
    "index": indexes(),
    "tokenizer": tokenizers(),
    "config": configs(),
    "template": chat_templates(),
    "lock": locks(),
    "settings": settings_files(),
    "resize": resizes(),
    "anything": mauled(MODELS),
    "hostile": mauled(st.deferred(lambda: st.sampled_from(_catalogue()))),
    "parser": headers.FILES.map(lambda data: {"model.safetensors": data}),
    "numbering": tokenizer_files.sound().map(tokenizer_files.as_file),
    "adapter": adapters.adapters(),
    "data": data_files.folders().map(lambda files: LLAMA_ALONE | files),
    "arrays": data_files.alone(),
    "tables": data_files.alone(data_files.table_files()),
    "ledger": ledger_files.LEDGERS,
    "ledgers": ledger_files.LEDGERS,
    "optimizer": optimizer_inputs(),
    "pickles": pickles.optimizers(),
    "pair": pairs.pairs(),
    "pairs": pairs.pairs(),
}
