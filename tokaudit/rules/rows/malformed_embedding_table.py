from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Table
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed


class MalformedEmbeddingTable(Rule):
    """A table of token rows is empty, flat, or not as wide as the configuration says.

    ## What it finds

    An input or output table (or another table of token rows) whose shape is no table: no rows at all
    (`[0]`), one axis instead of two (a shard of a flattened parameter), or rows of another width than
    the family takes from the configuration. Widths that differ by design are known:
    `word_embed_proj_dim` (OPT 350M), `embedding_size` (ALBERT), Reformer's output table of twice the
    hidden size. Packed (quantised) tables are judged by the shape that their own metadata states.

    ## Why it matters

    Such a tensor is what a sharded optimiser leaves when parameters were saved without being gathered
    first. Loaders fail on it, or keep a random table in its place.

    ## How to fix it

    Save the model again with the full parameters (DeepSpeed:
    `stage3_gather_16bit_weights_on_model_save`, or `zero_to_fp32.py`; FSDP: a full state dict). If the
    width is what is wrong, correct the field that the finding names.
    """

    code = "TA110"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        _ = contract.checkpoint
        for table in embeddings.tables:
            if table.malformed:
                yield self._malformed(table)

    def _malformed(self, table: Table) -> Finding:
        shape = f"[{listed([str(size) for size in table.tensor.shape])}]"
        return self.finding(
            f"the {table.kind.value} {table.name} of shape {shape} is malformed: {table.malformed}",
            [table.says(f"shape {shape}, {table.tensor.dtype}")],
            why="loaders refuse the tensor, or keep a random table in its place",
            fix="save the model again with gathered (full) parameters, or correct the width in config.json",
            subject=table.name,
        )
