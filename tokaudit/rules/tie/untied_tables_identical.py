from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import flag_claims, stored_pair, untied_everywhere
from tokaudit.text import size


class UntiedTablesIdentical(Rule):
    """The configuration says untied, but the two tables are byte for byte the same.

    ## What it finds

    Input and output embeddings that are stored as two equal tables under a flag that says untied.

    ## Why it matters

    Two tables that were trained apart are never equal: one is a copy of the other. Either the model is
    tied and the flag is wrong, so that the next training run lets the two drift apart; or a conversion
    wrote the input table into both places and the trained output table is lost.

    ## How to fix it

    If the model was trained tied, set `tie_word_embeddings` to `true` at every path that states it.
    Otherwise take the output table from the checkpoint that this one was made of.
    """

    code = "TA205"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        if not untied_everywhere(contract.embeddings.tie):
            return
        for source, output in stored_pair(contract):
            if source.tensor.shape != output.tensor.shape or not contract.comparison(source, output).equal:
                continue
            yield self.finding(
                f"the configuration says untied, but {output.name} is a copy of {source.name} "
                f"({size(output.tensor.nbytes)})",
                [
                    output.says("equal to the input embeddings, byte for byte"),
                    source.says(f"{source.rows} rows"),
                    *flag_claims(contract),
                ],
                why="tables that were trained apart are never equal: the flag is wrong, or a table was lost",
                fix="set `tie_word_embeddings` to true if the model was trained tied, "
                "or take the output embeddings from the original checkpoint",
                subject=output.name,
            )
