from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, RowClass, TableValues
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.values._rows import never_encoded, token_tables
from tokaudit.text import counted


class IdenticalRows(Rule):
    """Several tokens share one row, bit for bit.

    ## What it finds

    Rows of the input or output embeddings with exactly the same bytes, zero rows aside, that belong to two
    or more tokens in use. It is a note where at most one of them is in use (padding that repeats one row,
    reserved tokens that were made alike) and where no text encodes to the tokens. It needs `--deep`.

    ## Why it matters

    The model cannot tell such tokens apart: the same input, the same probability. Training never makes two
    rows equal; these were written by an initialiser and not trained since, or a row was written to the wrong
    place.

    ## How to fix it

    Train the rows of the tokens. Tokens that start from one row, such as the mean, should get a little noise,
    or rows of their own (`tokaudit resize`).
    """

    code = "TA604"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        _ = contract.values
        unread = never_encoded(contract.vocabulary)
        for table in token_tables(contract):
            spoken: list[tuple[int, ...]] = []
            silent: list[tuple[int, ...]] = []
            for group in table.identical:
                used = [id for id in group if RowClass.IN_USE in table.class_of(id) and id not in unread]
                (spoken if len(used) > 1 else silent).append(group)
            for groups, severity in ((spoken, Severity.WARNING), (silent, Severity.NOTE)):
                if groups:
                    yield self._finding(contract, table, groups, severity)

    def _finding(
        self, contract: Contract, table: TableValues, groups: list[tuple[int, ...]], severity: Severity
    ) -> Finding:
        warned = severity is Severity.WARNING
        name = table.table.name
        first, *others = groups
        what = "tokens share one row" if warned else "rows, none or one of them in use, are the same"
        more = f"; and {counted(len(others), 'more group')}" if others else ""
        return self.finding(
            f"{len(first)} {what} bit for bit in {name}: {contract.names(first)}{more}",
            [Claim(table.at(id), f"the same bytes as row {first[0]}") for id in first[1:3]],
            why="the model cannot tell these tokens apart"
            if warned
            else "they were made alike and never trained",
            fix="train these rows, or give each a start of its own"
            if warned
            else "nothing, as long as nothing uses them",
            severity=severity,
            subject=name if warned else f"{name} unused rows",
        )
