from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Checkpoint, Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import tensors
from tokaudit.text import listed, shown


class IndexEntryWithoutTensor(Rule):
    """The index places a tensor in a shard that does not hold it.

    ## What it finds

    Entries of the index's `weight_map` whose shard can be read and has no tensor of that name, and, where
    another shard holds the tensor, which one. Entries of shards that are missing or damaged are left to
    `shard-missing` and `shard-damaged`.

    ## Why it matters

    A loader that opens the shard by the index fails with a key error. transformers takes only the set of
    files from the index: where the tensor is in none of them, the model starts with random values in its
    place and a line in the log.

    ## How to fix it

    Write the index again by saving the model (`save_pretrained`), or correct the entry when another shard
    holds the tensor. If no shard does, the tensor is lost: take the shards from the source.
    """

    code = "TA703"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        index = checkpoint.index
        holdings = {shard.file: shard for shard in checkpoint.shards}
        wrong = [
            (name, file)
            for name, file in index.weight_map.items()
            if file in holdings and name not in holdings[file].tensors
        ]
        if not wrong:
            return
        first, file = wrong[0]
        yield self.finding(
            f"{tensors(len(wrong))} not where the index says: "
            + listed([_words(checkpoint, name, file) for name, file in wrong], 3),
            [
                Claim(index.at(first), f"places it in {shown(file)}"),
                Claim(Location(file), f"holds no {shown(first)}"),
                *(
                    checkpoint.tensors[name].says("stands here")
                    for name, _ in wrong[:1]
                    if name in checkpoint.tensors
                ),
            ],
            why="loaders that follow the index fail; the others start with random values where it is absent",
            fix="write the index again by saving the model"
            if all(name in checkpoint.tensors for name, _ in wrong)
            else "take the shards from the source again, then write the index by saving the model",
            subject=first,
        )


def _words(checkpoint: Checkpoint, name: str, file: str) -> str:
    found = checkpoint.tensors.get(name)
    whereabouts = f"{shown(found.file)} holds it" if found else "no file holds it"
    return f"{shown(name)} is not in {shown(file)} ({whereabouts})"
