from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import stored_output
from tokaudit.rules.tie._outcomes import flag_claims, untied_everywhere


class UntiedOutputMissing(Rule):
    """The configuration says untied, and no output embeddings are stored.

    ## What it finds

    A class that generates, a tie flag that is false (or absent where the family's default is untied),
    and no output table in the checkpoint. It is a note for checkpoints that pool or embed and only kept
    the name of a generating class: `modules.json`, a pooling folder or the model card show it. It is a
    warning for checkpoints whose tables have no prefix, which are those of the model below the head: drafts
    for speculative decoding (EAGLE) borrow the head of another model. Classes without an output table are
    not concerned. Where loaders read the flags differently,
    `tie-depends-on-loader` says what each of them does.

    ## Why it matters

    The loader creates the output table with random values and goes on, with a warning that is easily
    missed: the model then produces noise. It happens when a tool drops the copy of a tied table and
    also writes `tie_word_embeddings: false`, or when an embedding model is served as a language model.

    ## How to fix it

    If the model was trained tied, set `tie_word_embeddings` to `true` at the path the finding names.
    Otherwise save the model again with its output table.
    """

    code = "TA203"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        if not embeddings.generates or not untied_everywhere(embeddings.tie) or stored_output(contract):
            return
        pools = contract.pools
        headless = embeddings.input.name.count(".") == 1
        evidence = [Claim(pools, "shows that the model pools")] if pools else []
        if pools:
            severity, why = (
                Severity.NOTE,
                "the model only pools, but serving it as a language model would start with random output",
            )
        elif headless:
            severity, why = (
                Severity.WARNING,
                "served by itself it starts with random output; a draft model borrows another model's head",
            )
        else:
            severity, why = (
                Severity.ERROR,
                "loaders create the output embeddings with random values and go on",
            )
        yield self.finding(
            "no output embeddings are stored, and the configuration says untied",
            [*flag_claims(contract), embeddings.input.says("the only table"), *evidence],
            why=why,
            fix="set `tie_word_embeddings` to true in config.json if the model was trained tied, "
            "or save it again with its output embeddings",
            severity=severity,
        )
