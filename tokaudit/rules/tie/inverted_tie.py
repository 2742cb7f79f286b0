from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Checkpoint, Contract, Table
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import flag_claims


class InvertedTie(Rule):
    """Only the output embeddings of a tied pair are stored.

    ## What it finds

    A tied model whose checkpoint holds the output table and no input table: the name that should have
    been dropped was kept. It is a warning where the metadata in the weights file declares the input
    table an alias of the stored one, as `safetensors.torch.save_model` writes it.

    ## Why it matters

    transformers 5 notices and ties in the other direction. Version 4 reports nothing, leaves the input
    table without values and fails in the first forward pass; most engines and converters stop at the
    missing tensor.

    ## How to fix it

    Rename the stored tensor to the input table's name (in the index too), or load the model with
    transformers 5 and save it again.
    """

    code = "TA206"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        output = embeddings.output_or
        if isinstance(embeddings.input_or, Table) or not isinstance(output, Table):
            return
        checkpoint = contract.whole_checkpoint
        if not embeddings.tie.tied:
            return
        aliases = list(_aliases(checkpoint, output))
        yield self.finding(
            f"the tables are tied, but only the output embeddings {output.name} are stored",
            [output.says("the only table"), *flag_claims(contract), *aliases],
            why="transformers 5 swaps them; version 4 and most engines find no input embeddings",
            fix=f"store {output.name} under the input embeddings' name",
            severity=Severity.WARNING if aliases else Severity.ERROR,
            subject=output.name,
        )


def _aliases(checkpoint: Checkpoint, output: Table) -> Iterator[Claim]:
    """Where the files' own metadata says that another name stands for the stored table."""
    for shard in checkpoint.shards:
        for name, kept in shard.metadata.items():
            if kept == output.name:
                at = Location(shard.file).child("__metadata__", name)
                yield Claim(at, f"{name} is an alias of {kept}")
