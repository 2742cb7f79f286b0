from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Damage, DamagedFile
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import by_cause, claims, described, remedy


class PathOutsideDirectory(Rule):
    """A name or a link leads out of the model directory.

    ## What it finds

    File names in the index or in `transformers_weights` that are absolute, go up (`..`), are addresses, or
    would lead elsewhere on another operating system; and symbolic links to places outside the directory (the
    links of a Hugging Face cache snapshot into its own `blobs` are fine). What they lead to is never opened.

    ## Why it matters

    Loaders follow such names. A model downloaded from a stranger can make a tool read, copy or publish a
    file of yours; and a model that works only because of a link breaks when its directory is moved.

    ## How to fix it

    Put the file into the directory and name it plainly. If the directory is a download, do not use it.
    """

    code = "TA711"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for files in by_cause(contract.outside, Damage.OUTSIDE):
            yield self._leaving(files)
        for files in by_cause(contract.checkpoint.damaged, Damage.OUTSIDE):
            yield self._leaving(files)

    def _leaving(self, files: tuple[DamagedFile, ...]) -> Finding:
        return self.finding(
            described(files, "files lie outside the model directory"),
            claims(files),
            why="loaders follow it and read a file that is no part of the model",
            fix=remedy(files, "put the file into the directory and name it plainly"),
            subject=files[0].file,
        )
