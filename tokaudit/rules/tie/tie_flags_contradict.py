from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Fact
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import outcomes


class TieFlagsContradict(Rule):
    """One tie flag stands at two levels of the configuration with different values.

    ## What it finds

    `tie_word_embeddings` (or the family's own name for it) at the top of `config.json` and inside its
    text or decoder part, once true and once false. It is a warning where every loader ends up with the
    same model all the same: because both tables are stored and equal, because the loaders read the same
    one of the flags, or because the weights were not read.

    ## Why it matters

    transformers 4 reads the nested flag of composite models, transformers 5 the one at the top for most
    of them, serving engines either. One of them ties what the other keeps apart: it discards a trained
    table, or starts with a random one.

    ## How to fix it

    Set the flag to the same value at every path: `true` if one table is stored or both are equal,
    `false` if two different ones are.
    """

    code = "TA204"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for name, facts in _by_name(contract).items():
            if len({fact.value for fact in facts}) < 2:
                continue
            paths = [fact.at.field for fact in facts]
            values = ", ".join(f"{fact.at.field} is {str(fact.value).lower()}" for fact in facts)
            yield self.finding(
                f"the configuration contradicts itself about the tie: {values}",
                [fact.says(str(fact.value).lower()) for fact in facts],
                why="which flag counts depends on the loader and its version",
                fix=f"set {' and '.join(paths)} to the same value in config.json",
                severity=_severity(contract),
                subject=name,
            )


def _by_name(contract: Contract) -> dict[str, list[Fact[bool]]]:
    """The stated flags, by the field's own name."""
    found: dict[str, list[Fact[bool]]] = {}
    for path, fact in contract.embeddings.tie.flags.items():
        found.setdefault(path.rpartition(".")[2], []).append(fact)
    return found


def _severity(contract: Contract) -> Severity:
    if contract.embeddings.tie.loaders_agree:
        return Severity.WARNING
    try:
        same = len({outcome for _, outcome in outcomes(contract)}) == 1
    except FactMissing:
        return Severity.WARNING
    return Severity.WARNING if same else Severity.ERROR
