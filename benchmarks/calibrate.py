"""Audit tiny models of every architecture that the installed transformers can build: none may get an alarm.

    python benchmarks/calibrate.py [PATTERN]      model classes whose name matches, all by default

Each class is built from its own configuration class with small sizes, saved by `save_pretrained` (in one
file, and in shards for every eighth class) beside a tokenizer that transformers saved, and audited. Prints
one line for each class with a warning or an error, then the figures. Needs transformers and torch.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PretrainedConfig, PreTrainedTokenizerFast

import tokaudit
from tokaudit.findings import Severity

ROWS = 320
MOST_PARAMETERS = 60_000_000
PLACEHOLDERS = ("image", "video", "audio")

IDS = re.compile(r"(^|_)token_(ids?|index)$|suppress_tokens$|^(pad|bos|eos)_id$")

# Alarms that are right: loaders read what the class saves in two ways, or this tokenizer is not the model's.
RIGHT = {
    "BigBirdPegasusForCausalLM": "transformers 5 never ties it, version 4 discards the output table",
    "LukeForMaskedLM": "transformers 5 never ties it, version 4 discards the output table",
    "Pop2PianoForConditionalGeneration": "transformers 5 never ties it, version 4 discards the output table",
    "OpenAIGPTDoubleHeadsModel": "transformers 5 saves its output table only, which version 4 cannot load",
    "Siglip2ForImageClassification": "SigLIP 2's class rebuilds the tokenizer, which is none of its kind",
    "Siglip2Model": "SigLIP 2's class rebuilds the tokenizer, which is none of its kind",
    "SeamlessM4TTextToUnitForConditionalGeneration": "its ids are those of units",
    "ClvpForCausalLM": "a table of sounds under a name of its own",
    "ClvpModel": "a table of sounds under a name of its own",
    "CsmBackboneModel": "a table of sounds under a name of its own",
    "Qwen3OmniMoeTalkerCodePredictorModel": "a table of sounds under a name of its own",
    "Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration": "a table of sounds under its own name",
    "PatchTSTForClassification": "a time series, which has no tokenizer",
    "PatchTSTForPrediction": "a time series, which has no tokenizer",
    "PatchTSTForPretraining": "a time series, which has no tokenizer",
    "PatchTSTForRegression": "a time series, which has no tokenizer",
}

# Sizes by the names that configuration classes use for them; a name ends in one of these.
SIZES = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "emb_dim": 32,
    "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48, "n_inner": 48, "ffn_hidden_size": 48,
    "hidden_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_intermediate_size": 16,
    "max_position_embeddings": 64, "n_positions": 64, "image_size": 32, "patch_size": 8,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "projection_dim": 32, "out_hidden_size": 32, "depth": 2,
    "vocab_size": ROWS, "q_lora_rank": 16, "kv_lora_rank": 16, "embedding_size": 16, "state_size": 8,
    "encoder_hidden_size": 32, "n_ctx": 64, "shared_expert_intermediate_size": 16,
    "expert_intermediate_size": 16, "num_mel_bins": 16,
}  # fmt: skip


def tokenizer(folder: Path) -> dict[str, int]:
    """Save a byte-level tokenizer of ROWS - 8 ids with the usual roles; the ids of its added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", *(f"<|{kind}|>" for kind in PLACEHOLDERS)]
    special += [f"<|{kind}_{end}|>" for kind in PLACEHOLDERS for end in ("start", "end")]
    vocabulary = {text: id for id, text in enumerate(special + alphabet)}
    pieces = [a + b for a in "etaoinsh" for b in "rdlucmfwy"][: ROWS - 8 - len(vocabulary)]
    merges = [(piece[0], piece[1]) for piece in pieces]
    vocabulary |= {piece: len(vocabulary) + place for place, piece in enumerate(pieces)}
    core = Tokenizer(models.BPE(vocabulary, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.ByteLevel(trim_offsets=True)
    core.add_special_tokens(special)
    names = dict(zip(("pad", "bos", "eos", "unk", "mask"), special, strict=False))
    PreTrainedTokenizerFast(
        tokenizer_object=core,
        cls_token="<s>",
        sep_token="</s>",
        **{f"{role}_token": text for role, text in names.items()},
    ).save_pretrained(folder)
    return {role: vocabulary[text] for role, text in names.items()} | {
        f"<|{name}|>": vocabulary[f"<|{name}|>"]
        for kind in PLACEHOLDERS
        for name in (kind, f"{kind}_start", f"{kind}_end")
    }


def shrink(config: PretrainedConfig, ids: dict[str, int], seen: int = 0) -> None:
    """Give every size of a configuration and its parts a small value, and every id field a right one."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            if seen < 4:
                shrink(value, ids, seen + 1)
        elif re.search(r"(^|_)token_(ids?|index)$|suppress_tokens$", name) or name in (
            "pad_id",
            "bos_id",
            "eos_id",
        ):
            _set(config, name, _id(name, value, ids))
        elif name == "vocab_size" or (type(value) is int and value > SIZES.get(name, value)):
            _set(config, name, SIZES[name])
        elif isinstance(value, int) and name.endswith("vocab_size") and value > ROWS:
            _set(config, name, ROWS)
    inner = config.get_text_config()
    if (
        inner is not config
        and hasattr(config, "tie_word_embeddings")
        and hasattr(inner, "tie_word_embeddings")
    ):  # as releases have it: stated alike
        _set(inner, "tie_word_embeddings", config.tie_word_embeddings)
    layers = getattr(config, "num_hidden_layers", None)
    types = getattr(config, "layer_types", None)
    if isinstance(layers, int) and isinstance(types, list):
        _set(config, "layer_types", types[:layers])
        kinds = getattr(config, "mlp_layer_types", None)
        if isinstance(kinds, list):
            _set(config, "mlp_layer_types", kinds[:layers])


def _set(config: PretrainedConfig, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:
        return


def _id(name: str, value: Any, ids: dict[str, int]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_id(name, each, ids) for each in value]
    role = name.partition("_")[0]
    for kind in PLACEHOLDERS:
        if kind in name:
            end = next((end for end in ("start", "end") if end in name or end[0] + "o" in name), "")
            return ids[f"<|{kind}_{end}|>" if end else f"<|{kind}|>"]
    if "start" in name or role in ("boi", "boa"):
        return ids["<|image_start|>"]
    if role in ("boi", "eoi", "boa", "eoa") or name.endswith("end_token_id"):
        return ids["<|image_end|>"]
    if role == "decoder":
        return ids["pad"]
    role = {"sep": "eos", "cls": "bos"}.get(role, role)
    if role in ids and value is not None:
        return ids[role]
    return ids["unk"] if type(value) is int and value >= ROWS else value


def build(cls: type[Any], folder: Path, ids: dict[str, int], *, shards: bool = False) -> None:
    """Save a small model of the class."""
    config = cls.config_class()
    shrink(config, ids)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in cls(copy.deepcopy(config)).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"{count} parameters after shrinking")
    torch.manual_seed(0)
    model = cls(config)
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "5GB")


def classes(pattern: str) -> list[type[Any]]:
    found = []
    for name in sorted(dir(transformers)):
        if not re.search(r"For|LMHead|Model$|WithProjection", name) or not re.search(pattern, name):
            continue
        try:
            cls = getattr(transformers, name)
        except Exception:
            continue
        model = inspect.isclass(cls) and issubclass(cls, transformers.PreTrainedModel) and cls.config_class
        if model and not re.search("^Auto|PreTrained", name):
            found.append(cls)
    return found


def main(pattern: str = "") -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(60)
    transformers.logging.disable_progress_bar()
    found: Counter[str] = Counter()
    for number, cls in enumerate(classes(pattern)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                build(cls, folder, tokenizer(folder), shards=number % 8 == 0)
            except BaseException as reason:
                if isinstance(reason, KeyboardInterrupt):
                    raise
                found["not built"] += 1
                print(
                    f"{cls.__name__}: not built: {type(reason).__name__}: {str(reason)[:100]!r}", flush=True
                )
                continue
            report = tokaudit.check(folder)
        loud = [each for each in report.findings if each.severity >= Severity.WARNING]
        found["audited"] += 1
        found["with an alarm that is right"] += bool(loud) and cls.__name__ in RIGHT
        found["with a false alarm"] += bool(loud) and cls.__name__ not in RIGHT
        for each in loud:
            why = f" ({RIGHT[cls.__name__]})" if cls.__name__ in RIGHT else ""
            print(f"{cls.__name__}: {each.rule} {each.severity.word}: {each.message}{why}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in found.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
