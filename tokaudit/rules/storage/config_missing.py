from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import shown

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json|pytorch_model\.bin")
_SIDES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
_ASIDE = re.compile(r"(generation|tokenizer|(video_)?preprocessor|processor|quantize)_config\.json")
# What tells another loader how the model is built: params.json, model_index.json, gliner_config.json ...
_ANOTHER = re.compile(
    r"[^/]*(config|params|args|model_index)[^/]*\.json|modules\.json|[^/]*\.(ya?ml|py|gguf|nemo|ini)"
)
_STATE = re.compile(r"random_states_\d+\.pkl")  # accelerate saves the state of a run without one


class ConfigMissing(Rule):
    """Weights and what is saved with them lie there under the names of transformers, and no config.json.

    ## What it finds

    A directory with weights under the names of transformers (`model.safetensors`, its shards or their index,
    `pytorch_model.bin`) and one of the files that are saved with them (`generation_config.json`,
    `tokenizer_config.json`, `special_tokens_map.json`), but without `config.json`. What has another
    description of the model is not meant: `params.json`, `adapter_config.json`, `model_index.json`,
    `modules.json`, any other configuration, or code.

    ## Why it matters

    `config.json` says which class the weights are for. Without it neither transformers nor an engine that
    reads its layout loads the model, and most rules here are skipped: a pass says little.

    ## How to fix it

    Fetch `config.json` from where the model comes from, or write it by `model.config.save_pretrained`.
    """

    code = "TA713"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        files = contract.files
        if "config.json" in files or any(map(_describes, files)) or any(map(_STATE.fullmatch, files)):
            return
        weights = sorted(filter(_WEIGHTS.fullmatch, files))
        sides = [file for file in _SIDES if file in files]
        if weights and sides:
            yield self.finding(
                f"{shown(weights[0])} and {shown(sides[0])} are there, and no config.json",
                [
                    Claim(Location(weights[0]), "holds weights, by its name"),
                    Claim(Location(sides[0]), "is saved with a model"),
                    Claim(Location("config.json"), "there is no such file"),
                ],
                why="AutoModel of transformers does not know what to build, and most rules are skipped",
                fix="fetch config.json from where the model comes from",
            )


def _describes(file: str) -> bool:
    return bool(_ANOTHER.fullmatch(file)) and not _ASIDE.fullmatch(file)
