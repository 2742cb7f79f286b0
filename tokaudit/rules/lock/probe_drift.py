from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, present
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class ProbeDrift(Rule):
    """Texts encode to other ids than those in the lock.

    ## What it finds

    The probe texts of the lock (digits, spaces, line ends, contractions, code, scripts, emoji, combining
    marks, and the tokenizer's own special tokens inside text) whose ids are not those that the lock
    holds. They are encoded by the `tokenizers` library with the post-processor on, truncation and padding
    off. For each text the first token that differs is shown.

    ## Why it matters

    It is the behaviour itself. Where mapping and pipeline are the lock's and a probe differs, the library
    has changed: the same file means other ids than when the lock was made.

    ## How to fix it

    Read `mapping-drift` and `pipeline-drift` first: their causes show here, too. If this rule stands
    alone, compare the versions of `tokenizers` that made the lock and that serve. If the change is meant,
    make the lock again: `tokaudit lock PATH`.
    """

    code = "TA506"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        drift.required(lock.probes, "probes")
        present(contract.vocabulary.loaded.probes)
        found = drift.probe_changes(contract)
        if found.different:
            first = found.different[0]
            count = f"{len(found.different)} of {counted(found.compared, 'probe')}"
            words = drift.said(found.different)
            document = contract.vocabulary.pipeline.document
            yield self.finding(
                f"{count} encode to other ids: {words}",
                [
                    Claim(document.at, f"token {first.first} is {first.right}"),
                    drift.locked(contract, "probes", f"token {first.first} is {first.left}"),
                ],
                why="the model reads other tokens for the same text",
                fix=f"see mapping-drift and pipeline-drift for the cause; {drift.MAKE_AGAIN}",
            )
