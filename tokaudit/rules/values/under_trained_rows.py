from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Role, RowClass, TableValues
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.values._rows import never_encoded, token_tables


class UnderTrainedRows(Rule):
    """Rows that look as if they had never been trained.

    ## What it finds

    Rows of tokens in use that look like rows that are known to be unused (padding, holes, reserved names):
    input embeddings of an untied model by their norm, output embeddings by their direction; where no row is
    known to be unused, input rows with a norm far below all others. And added tokens whose rows are still
    the mean of the table, or what the configuration's `initializer_range` makes an initialiser draw.
    It says how many of them no text encodes to. It needs `--deep`; the definitions are in docs/values.md.

    ## Why it matters

    A model that meets such a token for the first time after training may do anything: these are the "glitch
    tokens". They are candidates and no verdict: only prompting the model proves one.

    ## How to fix it

    Train the rows of tokens that you added; give them a better start (`tokaudit resize` uses the mean of the
    tokens that they replace). In a released model, keep the others out of prompts.
    """

    code = "TA603"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        _ = contract.values
        unreachable = never_encoded(contract.vocabulary)
        added = {token.id for token in contract.vocabulary.added}
        pad = next((token.id for role, token in contract.roles.items() if role is Role.PAD), None)
        for table in token_tables(contract):
            ids = [id for id in table.having(RowClass.UNDER_TRAINED, within=RowClass.IN_USE) if id != pad]
            yield from self._ordinary(contract, table, [id for id in ids if id not in added], unreachable)
            yield from self._added(contract, table, [id for id in ids if id in added])

    def _ordinary(
        self, contract: Contract, table: TableValues, ids: list[int], unreachable: frozenset[int]
    ) -> Iterator[Finding]:
        if not ids:
            return
        worst = sorted(ids, key=table.norm)
        of = table.counts[RowClass.IN_USE]
        yield self.finding(
            f"{len(ids)} of {of} rows in use of {table.table.name} look never trained: "
            f"{contract.names(worst)}; no text encodes to {len(unreachable & set(ids))} of them",
            [Claim(table.at(id), table.signs[id]) for id in worst[:3]],
            why="a model may do anything when it meets such a token",
            fix="keep them out of prompts, or train on texts that contain them; `tokaudit rows` lists them",
            subject=table.table.name,
        )

    def _added(self, contract: Contract, table: TableValues, ids: list[int]) -> Iterator[Finding]:
        if not ids:
            return
        yield self.finding(
            f"{len(ids)} added token{'s' if len(ids) > 1 else ''} in {table.table.name} "
            f"look{'' if len(ids) > 1 else 's'} never trained: {contract.names(ids)}",
            [Claim(table.at(id), _described(contract, table, id)) for id in ids[:3]],
            why="until they are trained, their rows are those that they were given at the start",
            fix="train the rows, with the embeddings unfrozen",
            subject=f"{table.table.name} added tokens",
        )


def _described(contract: Contract, table: TableValues, id: int) -> str:
    """``still the mean of the table; norm at 0 %; nearest 5 "a" (0.91)``"""
    words = f"{table.signs[id]}; norm {table.norm(id):.3g}, above {table.percentile(id):.0f} % of the others"
    for other in table.new.get(id, ())[:1]:
        words += f"; nearest {contract.named(other.id)} ({other.cosine:.2f})"
    return words
