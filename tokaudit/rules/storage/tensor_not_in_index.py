from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import tensors
from tokaudit.text import counted, listed, shown


class TensorNotInIndex(Rule):
    """A shard holds tensors that the index does not name.

    ## What it finds

    Tensors in the index's own shards without an entry in its `weight_map`. A *.safetensors file that the
    index never names is no shard of it: such files are mentioned once, as a note.

    ## Why it matters

    A loader that follows the index leaves the tensor out, one that loads whole files takes it: the same
    directory gives two models. It happens when a table was added to a shard and the index stayed.

    ## How to fix it

    Save the model again, which writes the index anew, or add the entry to `weight_map`. A file that nothing
    reads can be deleted.
    """

    code = "TA704"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        index = checkpoint.index
        extra = [
            tensor
            for shard in checkpoint.shards
            for name, tensor in shard.tensors.items()
            if name not in index.weight_map
        ]
        if extra:
            yield self.finding(
                f"{tensors(len(extra))} in a shard and not in the index: "
                + listed([f"{shown(tensor.name)} in {shown(tensor.file)}" for tensor in extra], 3),
                [
                    *(tensor.says("stands here") for tensor in extra[:3]),
                    Claim(Location(index.file).child("weight_map"), "has no entry for it"),
                ],
                why="loaders that follow the index leave it out, those that read whole files take it",
                fix="save the model again, or add the entry to weight_map",
                subject=extra[0].name,
            )
        if checkpoint.unreferenced:
            names = [shown(name) for name in checkpoint.unreferenced]
            yield self.finding(
                f"{counted(len(names), 'weights file')} that the index does not name: {listed(names, 3)}",
                [
                    *(Claim(Location(name), "no entry names it") for name in checkpoint.unreferenced[:3]),
                    Claim(Location(index.file).child("weight_map"), "names other files"),
                ],
                why="loaders do not read it, and tools that load every *.safetensors do",
                fix="delete it if nothing else uses it",
                severity=Severity.NOTE,
                subject=checkpoint.unreferenced[0],
            )
