from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.tie._outcomes import Outcome, flag_claims, outcomes, stored_pair, tied_everywhere


class TieDependsOnLoader(Rule):
    """Loaders in use make different models of these files, because they decide the tie differently.

    ## What it finds

    Checkpoints that transformers 4 and transformers 5 load differently: what each of them does is
    listed. The flag that counts moved from the text part to the top of the configuration for most
    composite models. T5 and its relatives ignore the flag in version 5 and keep two stored tables
    apart, where version 4 obeys it. A flag that says tied over two different tables is
    `tied-tables-differ` instead.

    ## Why it matters

    The same files give two models: one of the loaders discards a trained output table, or starts with a
    random one, with a warning at most.

    ## How to fix it

    Make the files say one thing: state `tie_word_embeddings` at the top and in the text part with the
    same value, `true` when one table is stored and `false` when two are (for T5 as well).
    """

    code = "TA208"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        if tied_everywhere(embeddings.tie) or len(embeddings.tie.readings) < 2:
            return
        found = outcomes(contract)
        kinds = {outcome for _, outcome in found}
        if len(kinds) == 1 or (Outcome.RANDOM in kinds and not contract.generates):
            return
        does = "; ".join(f"{reading.loader} {outcome.value} ({reading.why})" for reading, outcome in found)
        tables = [table for pair in stored_pair(contract) for table in pair] or [embeddings.input]
        value = "false" if len(tables) == 2 else "true"
        yield self.finding(
            f"what the tie becomes depends on the loader: {does}",
            [*flag_claims(contract), *(table.says(f"{table.rows} rows") for table in tables)],
            why="the same files give two different models",
            fix=f"set `tie_word_embeddings` to {value} at the top of config.json and in its text part",
        )
