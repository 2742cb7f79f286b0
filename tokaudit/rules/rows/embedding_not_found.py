from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Checkpoint, Contract, Embeddings, Missing, Table, Tie
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed

# Only drafts hold these: EAGLE-3 maps its own ids to the target's, whose input table it borrows.
_DRAFT_MAPS = ("d2t", "t2d")


class EmbeddingNotFound(Rule):
    """No tensor of the checkpoint is the input embeddings.

    ## What it finds

    A readable checkpoint in which no tensor has a name that the architecture's loader takes for its
    input table, and none that the name and shape of an unknown architecture's table would have. The
    tensors that might have been meant are listed. It is a warning where the architecture is unknown to
    tokaudit, and a note for checkpoints that are no language models and for drafts that borrow the
    target's table. Where only the output table of a tied pair is stored, `inverted-tie` says so
    instead.

    ## Why it matters

    Loaders match tensors by name. A table under another name is skipped with a warning at most, and the
    model starts with random input embeddings.

    ## How to fix it

    Rename the tensor to the name that the class loads (the finding lists the candidates), or correct
    `architectures` in `config.json`.
    """

    code = "TA111"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        found = embeddings.input_or
        if isinstance(found, Table) or _only_output_of_a_tie(embeddings):
            return
        if "adapter_config.json" in contract.files:
            raise FactMissing("an adapter has no input embeddings of its own")
        checkpoint = contract.whole_checkpoint
        candidates = embeddings.candidates
        shapes = [f"{tensor.name} {list(tensor.shape)}" for tensor in candidates]
        meant = f"; it might be {listed(shapes)}" if candidates else ""
        yield self.finding(
            f"no tensor is the input embeddings: {found.reason}{meant}",
            [
                *(tensor.says(f"shape {list(tensor.shape)}") for tensor in candidates[:3]),
                Claim(_class_location(contract), f"names {embeddings.architecture or 'no class'}"),
            ],
            why="loaders match tensors by name: the model would start with random input embeddings",
            fix="rename the table to the name that the class loads, or correct config.json's `architectures`",
            severity=_severity(embeddings, checkpoint),
        )


def _only_output_of_a_tie(embeddings: Embeddings) -> bool:
    tie = embeddings.tie_or
    return isinstance(embeddings.output_or, Table) and isinstance(tie, Tie) and tie.tied


def _severity(embeddings: Embeddings, checkpoint: Checkpoint) -> Severity:
    if not embeddings.language_model or any(name in checkpoint.tensors for name in _DRAFT_MAPS):
        return Severity.NOTE
    return Severity.ERROR if embeddings.known else Severity.WARNING


def _class_location(contract: Contract) -> Location:
    config = contract.config_or
    return Location("config.json") if isinstance(config, Missing) else config.at.child("architectures", 0)
