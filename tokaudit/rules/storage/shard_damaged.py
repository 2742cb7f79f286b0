from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Damage
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import by_cause, claims, described, remedy


class ShardDamaged(Rule):
    """A weights file is cut short, or its header is impossible.

    ## What it finds

    safetensors files that break the format: shorter or longer than the header says, a header of length
    zero or longer than the file, tensors that overlap or leave a gap, a span that does not fit shape and
    dtype, an unknown dtype, a header that is no JSON. Nothing but the header is read for this.

    ## Why it matters

    The format has no tolerance: every loader refuses the whole file. The usual cause is a copy or a
    download that stopped, or a disk that was full while the model was saved.

    ## How to fix it

    Fetch the file again and compare its size with the source's. After a failed save, save the model again
    to a disk with room for it.
    """

    code = "TA702"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for files in by_cause(contract.checkpoint.damaged, Damage.BROKEN):
            yield self.finding(
                described(files, "weights files are damaged"),
                claims(files),
                why="loaders refuse the whole file",
                fix=remedy(files, "fetch the file again, or save the model again"),
                subject=files[0].file,
            )
