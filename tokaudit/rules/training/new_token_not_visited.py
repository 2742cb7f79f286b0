from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._ledger import names, new_ids, window
from tokaudit.text import counted


class NewTokenNotVisited(Rule):
    """New tokens that no input of the recorded training steps held.

    ## What it finds

    Ids that were given to `GradientLedger` as new, and that stood at no position of an input whose gradient
    came back. It looks at recorded training steps; without new ids it is skipped.

    ## Why it matters

    Through the input path the row of such a token gets no gradient: it keeps what it was initialised with, or
    what weight decay leaves of that. In tied embeddings the output path moves it all the same, away from
    every context that occurs, so that it looks trained and is not.

    ## How to fix it

    Put the tokens into the training data: look at how it is tokenised (an old tokenizer splits the new
    tokens), at templates that should print them, and at what is filtered out. If the window of the ledger was
    short, record more steps.
    """

    code = "TA931"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        ledger = contract.ledger
        new = new_ids(ledger)
        visited = frozenset(ledger.visited_new)
        unseen = [id for id in new if id not in visited]
        if not unseen:
            return
        given = ledger.input
        at = Location("ledger") if given is None else ledger.at(given, unseen[0])
        was = "was" if len(unseen) == 1 else "were"
        yield self.finding(
            f"{len(unseen)} of {counted(len(new), 'new token')} {was} not visited {window(ledger)}: "
            f"{names(ledger, unseen)}",
            [Claim(at, f"visited 0 times; {len(ledger.visited_old)} old rows were visited")],
            why="their rows learn nothing from being read",
            fix="look for the tokens in the tokenised training data, or record more steps",
            subject="new tokens",
        )
