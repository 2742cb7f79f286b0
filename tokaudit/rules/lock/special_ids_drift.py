from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule


class SpecialIdsDrift(Rule):
    """Roles or their ids are not those in the lock.

    ## What it finds

    A role (bos, eos, pad, unk, sep, cls, mask) whose token or id differs; a token id field of config.json
    that names other ids; and the ids that generation reads, from generation_config.json or, where that
    file is absent, from config.json. Lists are compared as sets. A value that a file states and one that
    its class fills in are the same.

    ## Why it matters

    Generation that no longer stops, padding that is trained on, a model that begins without its first
    token: each follows from one id that another file or another version replaced.

    ## How to fix it

    Restore the field that the finding names. If the change is meant, make the lock again:
    `tokaudit lock PATH`.
    """

    code = "TA504"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        held = lock.ids if lock.roles is None else lock.roles
        drift.required(held, "special ids")
        changes = drift.special_changes(contract)
        if changes:
            yield self.finding(
                f"special ids are not the lock's: {drift.said(changes)}",
                drift.claims(contract, changes),
                why="by these ids sequences begin and end, and padding is masked",
                fix=f"restore the fields that are named here; {drift.MAKE_AGAIN}",
                subject=", ".join(sorted({change.path[0] for change in changes})),
            )
        if lock.roles is not None:
            contract.vocabulary.effective  # noqa: B018  (raises where roles have no ids to compare)
        if lock.ids is not None:
            contract.config  # noqa: B018  (raises where there are no fields to compare)
