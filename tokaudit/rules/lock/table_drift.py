from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Missing
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class TableDrift(Rule):
    """The tables of token rows are not those in the lock.

    ## What it finds

    Tables that were added or lost; rows, width or dtype that differ; another tie; another row count that
    the configuration asks for. With `--deep`, and a lock that was made with it, also tables whose bytes
    differ. How the checkpoint is divided into files does not matter, nor does an equal copy that is
    stored under a tie.

    ## Why it matters

    Rows that were cut off take tokens with them; another width or dtype is another model; an output table
    that came untied was trained apart, or was not trained at all.

    ## How to fix it

    Deploy the checkpoint that the lock was made of. If the change is meant, make the lock again:
    `tokaudit lock PATH`, with `--deep` where the contents are to be pinned, too. Where only a tokenizer is
    deployed, check it with `--no-weights`.
    """

    code = "TA505"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        held = drift.required(lock.tables, "tables")
        if isinstance(contract.checkpoint_or, Missing) and contract.options.read_weights:
            there = drift.locked(contract, "tables", counted(len(held), "table"))
            yield self.finding(
                "the lock holds tables, and there are no weights",
                [Claim(Location(""), contract.checkpoint_or.reason), there],
                why="what is deployed cannot be the checkpoint that the lock was made of",
                fix="give the directory of the weights, or --no-weights to check a tokenizer alone",
            )
            return
        changes = drift.table_changes(contract)
        if changes:
            yield self.finding(
                f"tables are not the lock's: {drift.said(changes)}",
                drift.claims(contract, changes),
                why="rows are trained for the tokens of one mapping, in one shape",
                fix=f"deploy the checkpoint that the lock was made of; {drift.MAKE_AGAIN}",
                subject=", ".join(sorted({change.path[0] for change in changes if change.path})),
            )
        contract.whole_checkpoint  # noqa: B018  (raises where a table may be missing)
        contract.embeddings  # noqa: B018  (raises where tables are not known)
        if lock.contents is not None and not contract.options.deep:
            raise FactMissing("the bytes of the tables are compared with --deep")
        if lock.contents is None and contract.options.deep:
            raise FactMissing("the lock holds no digests of the tables' bytes: it was made without --deep")
