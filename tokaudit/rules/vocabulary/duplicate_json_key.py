from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, DuplicateKey
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class DuplicateJsonKey(Rule):
    """A JSON file states one key twice.

    ## What it finds

    Objects with a repeated key, at any depth, in every JSON file that was read: configurations, vocabularies,
    the index of the weights.

    ## Why it matters

    JSON leaves open which value counts. Python and most libraries take the last one, others the first, and
    editors show both: what a person reads in the file need not be what runs. In a vocabulary it means that a
    token has two ids, one of which is lost.

    ## How to fix it

    Decide on one value and delete the other line.
    """

    code = "TA411"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        files: dict[str, list[DuplicateKey]] = {}
        for duplicate in contract.duplicate_keys:
            files.setdefault(duplicate.at.file, []).append(duplicate)
        for file, found in files.items():
            yield self.finding(
                f"{counted(len(found), 'key')} stated twice in {file}: "
                f"{listed([shown(duplicate.key) for duplicate in found], 3)}",
                [
                    Claim(duplicate.at, "stands more than once; the last value was taken")
                    for duplicate in found[:3]
                ],
                why="readers differ in which of the two values counts",
                fix="keep one of the values",
                subject=file,
            )
