from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Damage
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import by_cause, claims, described, remedy


class NotWeights(Rule):
    """A weights file holds something else: a Git LFS pointer, a web page, an archive, a pickle.

    ## What it finds

    Files with the name of a safetensors file and other contents: a Git LFS pointer that was never replaced
    by its file, an HTML or JSON error page that a download saved, a zip or PyTorch archive, a pickle, GGUF;
    and an index that names files of another kind. They are told by their first bytes and never opened as
    what they claim to be.

    ## Why it matters

    Loading fails with an error about the header that does not name the cause. A pickle under the name of a
    safetensors file can run code in a tool that falls back to unpickling.

    ## How to fix it

    For a pointer: `git lfs pull` in the repository, or download the file itself. For a page: download
    again, with access to the repository. For a pickle or an archive: convert it to safetensors.
    """

    code = "TA705"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for files in by_cause(contract.checkpoint.damaged, Damage.NOT_WEIGHTS):
            yield self.finding(
                described(files, "weights files hold something else"),
                claims(files),
                why="no loader can read weights from it",
                fix=remedy(files, "download the file itself"),
                subject=files[0].file,
            )
