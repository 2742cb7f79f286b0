from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import difference, flag_claims, stored_pair, tied_everywhere


class TiedTablesDiffer(Rule):
    """The configuration says tied, both tables are stored, and they are not the same.

    ## What it finds

    A checkpoint whose flag (or whose family's default, where the flag is absent) makes the output
    embeddings the input embeddings, but which stores two tables that differ: how many rows, which ones
    first, and the largest difference among those. T5 and its relatives are left to
    `tie-depends-on-loader`: their newest loader ignores the flag.

    ## Why it matters

    One of the two tables is lost, depending on the loader: transformers 4 and several engines use the
    input table for both and discard the other silently, transformers 5 keeps both and warns. A model
    that was trained untied gives wrong logits in the former.

    ## How to fix it

    If the two tables were trained apart, set `tie_word_embeddings` to `false` (at every path that
    states it). If they should be one, remove the stale one: load the model, tie the weights, save it
    again.
    """

    code = "TA201"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        if not tied_everywhere(contract.embeddings.tie):
            return
        for source, output in stored_pair(contract):
            comparison = contract.comparison(source, output)
            if comparison.equal:
                continue
            yield self.finding(
                f"the configuration ties {output.name} to {source.name}, "
                f"but {difference(contract, comparison)}",
                [
                    output.says(f"differs in {comparison.different_rows} rows"),
                    source.says(f"{source.rows} rows"),
                    *flag_claims(contract),
                ],
                why="some loaders discard the stored output table silently, others keep both",
                fix="set `tie_word_embeddings` to false if both tables were trained, "
                f"or take {output.name} out of the checkpoint",
                subject=output.name,
            )
