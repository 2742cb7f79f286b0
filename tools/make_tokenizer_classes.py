"""Rebuild tokaudit/families/data/tokenizer_classes.json.

usage: make_tokenizer_classes.py MEASURED.json        (in an environment with transformers 5)

MEASURED.json lists, for transformers 5 and 4, tokenizer classes with the special tokens that their
constructors fill in. Kept are the class names per generation and the defaults that are texts. What
`AutoTokenizer` makes of a class name and of a model type is asked of the installed transformers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers import TokenizersBackend
from transformers.models.auto import tokenization_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

TARGET = Path(__file__).resolve().parents[1] / "tokaudit/families/data/tokenizer_classes.json"
GENERIC = (
    "MistralCommonBackend",
    "PreTrainedTokenizer",
    "PreTrainedTokenizerFast",
    "PythonBackend",
    "SentencePieceBackend",
    "TokenizersBackend",
)
# Classes of transformers 4 that the measurement leaves out, because they cannot be made without files.
ALSO_IN_4 = (
    "BloomTokenizerFast",
    "DPRContextEncoderTokenizer",
    "DPRReaderTokenizer",
    "FastSpeech2ConformerTokenizer",
    "MarkupLMTokenizer",
    "MistralCommonTokenizer",
    "NougatTokenizerFast",
    "Pop2PianoTokenizer",
    "PreTrainedTokenizer",
    "PreTrainedTokenizerFast",
)


def main(measured: str) -> None:
    source = json.loads(Path(measured).read_text(encoding="utf-8"))
    names = sorted({*source["v4"]["classes"], *source["v5"]["classes"], *GENERIC, *ALSO_IN_4, *_defined()})
    lines = [
        f"  {json.dumps(name)}: {json.dumps(_entry(name, source), ensure_ascii=False)}" for name in names
    ]
    versions = {generation: source[generation]["transformers"] for generation in ("v4", "v5")}
    registered = {
        model_type: name
        for model_type, name in sorted(auto.TOKENIZER_MAPPING_NAMES.items())
        if name is not None
    }
    overruled = sorted(auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS)
    TARGET.write_text(
        '{"transformers": ' + json.dumps(versions)
        + ',\n"classes": {\n' + ",\n".join(lines) + "\n}"
        + ',\n"registered": ' + json.dumps(registered)
        + ',\n"overruled": ' + json.dumps(overruled)
        + ',\n"model_types": ' + json.dumps(sorted({*CONFIG_MAPPING_NAMES, *registered}))
        + "\n}\n",
        encoding="utf-8",
    )  # fmt: skip


def _defined() -> set[str]:
    """Names of tokenizer classes that the installed transformers defines, aliases included."""
    pattern = re.compile(r"^(?:class )?(\w+Tokenizer(?:Fast)?)\b(?:\(| = )", re.MULTILINE)
    root = Path(transformers.__file__).parent / "models"
    files = root.glob("*/tokenization_*.py")
    return {name for file in files for name in pattern.findall(file.read_text(encoding="utf-8"))}


def _entry(name: str, source: dict[str, Any]) -> dict[str, Any]:
    found = auto.tokenizer_class_from_name(name)
    in_4 = {*source["v4"]["classes"], *ALSO_IN_4}
    # AutoTokenizer of transformers 4 looks for the fast class of a slow name, too.
    generations = [4] if in_4 & {name, name + "Fast", name.removesuffix("Fast")} else []
    if found is not None:
        generations.append(5)
    entry: dict[str, Any] = {"generations": generations, "defaults": _defaults(name, source)}
    if found is not None:
        entry["becomes"] = found.__name__
        if issubclass(found, TokenizersBackend):
            entry["rebuilds"] = found is not TokenizersBackend and "__init__" in vars(found)
    return entry


def _defaults(name: str, source: dict[str, Any]) -> dict[str, str]:
    defaults: dict[str, str] = {}
    for generation in ("v4", "v5"):
        facts = source[generation]["classes"].get(name, {}).get("defaults", {})
        defaults = {field: text for field, text in facts.items() if isinstance(text, str)} or defaults
    return defaults


if __name__ == "__main__":
    main(*sys.argv[1:])
