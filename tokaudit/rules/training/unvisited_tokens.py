from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, reserved_name
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class UnvisitedTokens(Rule):
    """Tokens that the training data never visits.

    ## What it finds

    Tokens that occur nowhere in the data that `--data` names: a warning for added tokens, by name, a note for
    the others. Reserved names (`<|reserved_special_token_7|>`), placeholders of images and sounds, and tokens
    with a role (bos, pad ...) count among the others: most data does without some of them. If a part of the
    data could not be read, the rule is skipped.

    ## Why it matters

    The input row of a token that never occurs gets no gradient: it stays what it was, for a new token its
    initial value. Used later, it says nothing to the model. (Its output row does move: the softmax pushes it
    away from everything.)

    ## How to fix it

    For an added token: check that the data was made with the tokenizer that has it, and that the text
    contains it. Nothing, for ordinary tokens.
    """

    code = "TA905"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        statistics, vocabulary = contract.data.all, contract.vocabulary
        unvisited = [id for id in sorted(vocabulary.by_id) if not statistics.count(id)]
        added = {vocabulary.by_content[token.content] for token in vocabulary.added}
        named = [id for id in unvisited if id in added and _is_meant_to_occur(contract, id)]
        others = sorted(set(unvisited) - set(named))
        if named:
            yield self._finding(contract, named, "added token", Severity.WARNING)
        if others:
            yield self._finding(contract, others, "token", Severity.NOTE)

    def _finding(self, contract: Contract, ids: Sequence[int], noun: str, severity: Severity) -> Finding:
        data, vocabulary = contract.data, contract.vocabulary
        of = f" of {len(vocabulary.by_id)}" if severity is Severity.NOTE else ""
        names = contract.names(ids)
        return self.finding(
            f"{counted(len(ids), noun)}{of} {'is' if len(ids) == 1 else 'are'} never visited: {names}",
            [
                *(Claim(vocabulary.locate(id), f"id {id}") for id in ids[:3]),
                Claim(data.at, f"{data.statistics.items} ids, none of them these"),
            ],
            why="their input rows get no gradient and stay as they are",
            fix="check that the data was made with this tokenizer and contains them"
            if severity is Severity.WARNING
            else "nothing, as long as the data is only a part of what the model is trained on",
            severity=severity,
            subject=noun,
        )


def _is_meant_to_occur(contract: Contract, id: int) -> bool:
    uses = contract.uses.get(id, ())
    kept = any(use.role is not None or use.placeholder for use in uses)
    return not kept and not reserved_name(contract.vocabulary.by_id[id])
