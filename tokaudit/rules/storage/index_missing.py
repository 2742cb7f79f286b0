from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract, part
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown

# What transformers and diffusers call shards, and never save without an index.
_INDEXED = ("model", "diffusion_pytorch_model")
_ANOTHER_WAY = re.compile(r"[^/]*\.safetensors\.index[^/]*\.json|pytorch_model\.bin(\.index\.json)?")


class IndexMissing(Rule):
    """Weights are cut into shards, and there is no index that names them.

    ## What it finds

    Files that are named as transformers and diffusers name shards, `model-00001-of-00004.safetensors` or
    `diffusion_pytorch_model-00001-of-00002.safetensors`, where no `*.safetensors.index.json` lies beside
    them. Shards under other names, which other engines read, are not meant. One that is not there is TA701's.

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
        if checkpoint.layout != "loose" or any(map(_ANOTHER_WAY.fullmatch, contract.files)):
            return
        for prefix in _INDEXED:
            files = [
                shard.file
                for shard in checkpoint.shards
                if (found := part(shard.file)) is not None and found.prefix == prefix
            ]
            if not files:
                continue
            index, names = f"{prefix}.safetensors.index.json", [shown(file) for file in files]
            yield self.finding(
                f"{counted(len(files), 'shard')} and no {index}: {listed(names, 3)}",
                [
                    *(Claim(Location(file), "is a shard by its name") for file in files[:2]),
                    Claim(Location(index), "there is no such file"),
                ],
                why="transformers and diffusers find shards by the index alone and load nothing without it",
                fix=f"fetch {index} from where the model comes from, or save the model again",
                subject=prefix,
            )
