from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokaudit.contract import Contract, Missing, Role, RowClass, TableValues
from tokaudit.contract.values import DEAD
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._kind import is_static
from tokaudit.rules.values._rows import (
    leaves_nothing_unknown,
    never_encoded,
    row_claims,
    token_tables,
)

_VITAL = frozenset({Role.BOS, Role.EOS, Role.UNK})
_KINDS = {
    Severity.ERROR: "tokens that matter most",
    Severity.WARNING: "tokens in use",
    Severity.NOTE: "tokens that no text yields",
}


class DeadRowsInUse(Rule):
    """Tokens that are in use have rows that are zero, or next to it.

    ## What it finds

    Rows of tokens in use, in the input or output embeddings, that are zero throughout, or whose norm is
    below 0.5 % of the table's typical one and far outside its distribution (static embeddings weigh
    frequent words so: only zero counts there). It is an error for bos, eos and unk, and for tokens that the
    data given as `--data` visits; a warning for tokens that the chat template prints, added tokens and
    ordinary ones. It is a note for tokens that no text yields: unreachable ones, byte tokens, and the unk
    token of a tokenizer that spells everything in bytes (Llama 2 is released so). The row of a pad token,
    placeholders for images, padding rows, and reserved tokens to which nothing refers may be zero: no
    finding. It needs `--deep`.

    ## Why it matters

    A zero input row tells the model nothing about its token, and layers that divide by the norm may amplify
    noise. A zero output row gives a logit of 0 whatever the context, which can win where all trained logits
    are negative. Added tokens whose rows were never written are the usual cause; weight decay on rows that
    never had a gradient is another.

    ## How to fix it

    Give the rows values (`tokaudit resize` does for tokens that it adds) and train them; or do not use the
    tokens.
    """

    code = "TA602"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        _ = contract.values
        usual = never_encoded(contract.vocabulary)
        wanted = RowClass.ZERO if is_static(contract) else DEAD
        stated = _stated_roles(contract)
        for table in token_tables(contract):
            found: dict[Severity, list[int]] = {}
            for id in table.having(wanted, within=RowClass.IN_USE):
                severity = _severity(contract, id, stated.get(id, frozenset()), usual)
                if severity is not None:
                    found.setdefault(severity, []).append(id)
            for severity, ids in found.items():
                yield self._finding(contract, table, severity, ids)

    def _finding(self, contract: Contract, table: TableValues, severity: Severity, ids: list[int]) -> Finding:
        zero = sum(RowClass.ZERO in table.class_of(id) for id in ids)
        state = "zero" if zero == len(ids) else "near zero" if not zero else f"zero ({zero}) or near zero"
        rows = "row of" if len(ids) == 1 else "rows of"
        name = table.table.name
        return self.finding(
            f"{len(ids)} {rows} {_KINDS[severity]} in {name} {'is' if len(ids) == 1 else 'are'} {state}: "
            f"{contract.names(ids)}",
            row_claims(table, ids),
            why="the rows say nothing about their tokens"
            if severity is not Severity.NOTE
            else "they were never trained; nothing is lost as long as no text yields the tokens",
            fix="give these rows values and train them, or do not use the tokens"
            if severity is not Severity.NOTE
            else "nothing, in a released model",
            severity=severity,
            subject=name if severity is Severity.WARNING else f"{name} {_KINDS[severity]}",
        )


def _visited(contract: Contract, id: int) -> bool:
    data = contract.data_or
    return not isinstance(data, Missing) and data.visited(id)


def _stated_roles(contract: Contract) -> Mapping[int, frozenset[Role]]:
    """The roles that the configurations give an id; what a class fills in is no statement."""
    found: dict[int, frozenset[Role]] = {}
    for field in contract.id_fields:
        if field.role and not field.by_default:
            found |= {id: found.get(id, frozenset()) | {field.role} for id in field.ids}
    return found


def _severity(contract: Contract, id: int, stated: frozenset[Role], usual: frozenset[int]) -> Severity | None:
    """None for a row that may be dead. ``stated`` are the roles that the configurations give it."""
    uses = contract.uses.get(id, ())
    roles = stated | {use.role for use in uses if use.role}
    placeholder = bool(uses) and all(use.placeholder for use in uses)
    if _visited(contract, id) and roles != {Role.PAD} and not placeholder:
        return Severity.ERROR
    if roles & _VITAL:
        unused_unk = roles <= {Role.UNK, Role.PAD} and leaves_nothing_unknown(contract.vocabulary)
        return Severity.NOTE if unused_unk else Severity.ERROR
    printed = any(use.kind in ("chat template", "post-processor") for use in uses)
    if not printed and (roles == {Role.PAD} or placeholder):
        return None
    return Severity.NOTE if id in usual and not printed else Severity.WARNING
