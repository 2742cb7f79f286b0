from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Checkpoint, Contract, Embeddings, Missing, Tensor
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class StaleWeightsFile(Rule):
    """Two sets of weights lie side by side, and loaders differ in which one they read.

    ## What it finds

    A `model.safetensors` beside an index that names other files, or beside parts of another save
    (`model-00001-of-00004.safetensors`), and `transformers_weights` in `config.json` pointing to other files
    than the ordinary ones. The audit judges what transformers reads
    (`transformers_weights`, then `model.safetensors`, then the index) and says so here. It is an error when
    the embeddings in the two sets have different shapes.

    ## Why it matters

    transformers prefers the single file to the index without a word; other engines load every
    *.safetensors file, or follow the index. After a conversion or a resize into the same directory the
    older weights are the ones that run.

    ## How to fix it

    Delete the set that is not meant: `model.safetensors`, or the index with its shards. Remove
    `transformers_weights` from `config.json` if the files have their ordinary names.
    """

    code = "TA709"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        others = _passed_over(checkpoint)
        if not others and checkpoint.chosen_by is None:
            return
        read = [shard.file for shard in checkpoint.shards]
        unlike = _unlike(checkpoint, contract.embeddings_or)
        used = (
            f"transformers reads {listed([shown(file) for file in read], 2)}"
            if read
            else "transformers reads weights that are not there"
        )
        beside = f" and passes over {listed([shown(file) for file in others], 2)}" if others else ""
        differ = f"; {counted(len(unlike), 'table')} differ in shape: {_shapes(*unlike[0])}" if unlike else ""
        because = " because config.json says so" if checkpoint.chosen_by else ""
        yield self.finding(
            f"{used}{because}{beside}{differ}",
            [
                *([Claim(checkpoint.chosen_by, "chooses the file")] if checkpoint.chosen_by else ()),
                *(Claim(Location(file), "is read, and judged here") for file in read[:1]),
                *(Claim(Location(file), "is passed over") for file in others[:2]),
                *(tensor.says(f"shape {list(tensor.shape)}") for pair in unlike[:1] for tensor in pair),
            ],
            why="other engines read the other files: one directory holds two models",
            fix="delete the weights that are not meant"
            + (", and transformers_weights from config.json" if checkpoint.chosen_by else ""),
            severity=Severity.ERROR if unlike else Severity.WARNING,
        )


def _passed_over(checkpoint: Checkpoint) -> list[str]:
    """The files that would be read if the chosen ones were not there: the index first, then shards."""
    index = [checkpoint.unused_index.file] if checkpoint.unused_index else []
    return index + [shard.file for shard in checkpoint.stale]


def _unlike(checkpoint: Checkpoint, embeddings: Embeddings | Missing) -> list[tuple[Tensor, Tensor]]:
    """(read, passed over) for each table of token rows that both sets hold in different shapes."""
    if isinstance(embeddings, Missing):
        return []
    return [
        (table.tensor, shard.tensors[table.name])
        for table in embeddings.tables
        for shard in checkpoint.stale
        if table.name in shard.tensors and shard.tensors[table.name].shape != table.tensor.shape
    ]


def _shapes(read: Tensor, other: Tensor) -> str:
    places = (f"{list(tensor.shape)} in {shown(tensor.file)}" for tensor in (read, other))
    return f"{shown(read.name)} is {' and '.join(places)}"
