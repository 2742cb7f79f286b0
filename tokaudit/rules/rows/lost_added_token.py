from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._padding import padding
from tokaudit.text import counted


class LostAddedToken(Rule):
    """One or two rows too many: they look like added tokens whose tokenizer entry was lost.

    ## What it finds

    A table with exactly one or two rows more than the tokenizer has ids, where the total is no multiple
    of 8, 16, 32 ... that rounding would give, and where neither the family (Moshi: 1) nor the converter
    (NLLB: 2) has them by design.

    ## Why it matters

    Somebody added a token (usually a pad token), trained the model with it, and saved weights and
    tokenizer apart. The model now expects an id that the tokenizer never produces, and the next token
    to be added silently takes over the trained row.

    ## How to fix it

    Find the tokenizer that the model was trained with; its `added_tokens.json` or
    `tokenizer_config.json` names the token. If the rows are padding after all, ignore this rule for the
    model.
    """

    code = "TA109"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        found = padding(contract)
        if not found.looks_lost:
            return
        first = found.required.value
        lost = range(first, first + found.count)
        named_by = [reference for id in lost for reference in contract.references.get(id, ())]
        yield self.finding(
            f"{found.rows} rows for {first} token ids: {counted(found.count, 'row')} without a token "
            f"({'ids' if found.count > 1 else 'id'} {', '.join(map(str, lost))}), "
            "and no rounding explains it",
            [
                found.table.says(f"{found.rows} rows"),
                found.required.says(f"id {first - 1}, the largest"),
                *(Claim(reference.at, f"names id {reference.id}") for reference in named_by),
            ],
            why="a token that the model was trained with has probably lost its tokenizer entry",
            fix=f"restore the entry for id {first} from the tokenizer that the model was trained with",
        )
