from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Damage, Index, Missing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import by_cause, remedy, tensors
from tokaudit.text import counted, listed, shown


class ShardMissing(Rule):
    """A weights file that the index names, or that the names of the others count, is not there.

    ## What it finds

    Files that `model.safetensors.index.json` (or `transformers_weights` in `config.json`) names and that
    the directory does not hold, with the number of tensors that each was to bring. File names are compared
    exactly: `Model-00001.safetensors` is another file than `model-00001.safetensors`, also where a file
    system does not tell them apart. Where no index lies beside the shards, their names count: of
    `model-00001-of-00004.safetensors` there are four.

    ## Why it matters

    A loader that follows the index stops at the file. One that reads whatever lies in the folder starts,
    and the tensors of the absent file keep random values.

    ## How to fix it

    Fetch the file again. If the model was saved again with another number of shards, the index is a
    left-over of the earlier save: delete it and save the model once more, so that it is written anew.
    """

    code = "TA701"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        checkpoint = contract.checkpoint
        for files in by_cause(checkpoint.damaged, Damage.ABSENT):
            names = [file.file for file in files]
            lost = _lost_tensors(checkpoint.index_or, set(names))
            yield self.finding(
                f"{counted(len(names), 'weights file')} missing: {listed([shown(name) for name in names], 3)}"
                + (f", with {tensors(lost)}" if lost else ""),
                [
                    *(
                        Claim(file.named_by, f"names {shown(file.file)}")
                        for file in files[:3]
                        if file.named_by
                    ),
                    *(Claim(Location(file.file), file.reason) for file in files[:3]),
                ],
                why="loading stops there, or goes on with random values in the tensors of that file",
                fix=remedy(files, "fetch the file again"),
                subject=names[0],
            )


def _lost_tensors(index: Index | Missing, files: set[str]) -> int:
    if isinstance(index, Missing):
        return 0
    return sum(file in files for file in index.weight_map.values())
