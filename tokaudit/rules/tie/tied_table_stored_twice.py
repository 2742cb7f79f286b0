from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import flag_claims, stored_pair
from tokaudit.text import size


class TiedTableStoredTwice(Rule):
    """A tied table is stored twice, and both copies are equal.

    ## What it finds

    A checkpoint whose configuration ties the tables and which stores the output table beside the input
    table, byte for byte the same. Older files and converted ones look like this (Falcon, Qwen3 0.6B).

    ## Why it matters

    Every loader ends up with the right model. The second copy costs download and disk; and a tool that
    edits one copy only makes them differ.

    ## How to fix it

    Nothing has to be done. Loading the model and saving it again with transformers writes one copy.
    """

    code = "TA202"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        if not contract.embeddings.tie.tied:
            return
        for source, output in stored_pair(contract):
            if not contract.comparison(source, output).equal:
                continue
            yield self.finding(
                f"{output.name} is tied to {source.name} and stored all the same: "
                f"{size(output.tensor.nbytes)} could be saved",
                [output.says("equal, byte for byte"), source.says("the table"), *flag_claims(contract)],
                why="harmless while both copies stay equal",
                fix=f"leave it, or take {output.name} out of the checkpoint",
                subject=output.name,
            )
