from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, present
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import json_value


class IndexSizeMismatch(Rule):
    """The index states another total size than its tensors have.

    ## What it finds

    `metadata.total_size` of the index that is not the number of bytes of all tensors in its shards. An
    index without that field is fine.

    ## Why it matters

    Loaders ignore the number; tools that plan memory or disk by it do not. It usually shows that a shard
    was changed and the index was not, which is worth knowing when something else is wrong as well.

    ## How to fix it

    Set `metadata.total_size` to the sum, or save the model again.
    """

    code = "TA707"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        stated = present(checkpoint.index.total_size)
        if not checkpoint.complete:
            raise FactMissing("not every shard can be read, so the size of all tensors is not known")
        # Writers count a tensor that two shards hold once or twice.
        twice = sum(tensor.nbytes for shard in checkpoint.shards for tensor in shard.tensors.values())
        if type(stated.value) is int and stated.value in (checkpoint.nbytes, twice):
            return
        yield self.finding(
            f"the index says {json_value(stated.value)} bytes, its tensors have {checkpoint.nbytes}",
            [
                stated.says(f"states {json_value(stated.value)}"),
                *(Claim(Location(shard.file), "is part of the sum") for shard in checkpoint.shards[:2]),
            ],
            why="loaders ignore the number, tools that plan memory by it do not",
            fix=f'set "total_size": {checkpoint.nbytes}',
        )
