from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract, part
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown

# What transformers and diffusers call shards, and never save without an index.
_INDEXED = ("model", "diffusion_pytorch_model")
_LEAST_DIGITS = 5
_INDEX = re.compile(r"[^/]*\.safetensors\.index[^/]*\.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class IndexMissing(Rule):
    """Weights are cut into shards, and there is no index that names them.

    ## What it finds

    Files that are named as transformers and diffusers name shards, `model-00001-of-00004.safetensors` or
    `diffusion_pytorch_model-00001-of-00002.safetensors`, also of a variant
    (`model.fp16-00001-of-00002.safetensors`), where no `*.safetensors.index.json` lies beside them. Where
    pickled weights do, transformers loads those. Shards under other names, which other engines read, are not
    meant. One that is not there is TA701's.

    ## Why it matters

    transformers and diffusers find shards by the index and by nothing else: they say that there is no file
    named model.safetensors and stop. Engines that open every *.safetensors file start.

    ## How to fix it

    Fetch `model.safetensors.index.json` from where the model comes from; downloads by a pattern such as
    `*.safetensors` leave it out. Or load the shards with what reads them and save the model again.
    """

    code = "TA712"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        if checkpoint.layout != "loose" or any(map(_INDEX.fullmatch, contract.files)):
            return
        sets: dict[str, list[str]] = {}
        for shard in checkpoint.shards:
            found = part(shard.file)
            if found is None or min(len(found.digits), len(found.total)) < _LEAST_DIGITS:
                continue
            name, dot, variant = found.prefix.partition(".")
            if name in _INDEXED:
                sets.setdefault(f"{name}.safetensors.index{dot}{variant}.json", []).append(shard.file)
        pickled = next((name for name in _PICKLED if name in contract.files), None)
        for index, files in sets.items():
            names = [shown(file) for file in files]
            yield self.finding(
                f"{counted(len(files), 'shard')} and no {index}: {listed(names, 3)}",
                [
                    *(Claim(Location(file), "is a shard by its name") for file in files[:2]),
                    Claim(Location(index), "there is no such file"),
                    *([Claim(Location(pickled), "is what transformers loads instead")] if pickled else ()),
                ],
                why=f"transformers finds shards by the index alone: it loads {pickled}, not judged here"
                if pickled
                else "transformers and diffusers find shards by the index alone and load nothing without it",
                fix=f"fetch {index} from where the model comes from, or save the model again",
                subject=index,
            )
