from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import AddedToken, Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._appended import appended
from tokaudit.text import counted, listed, shown


class RenumberedOnLoad(Rule):
    """An added token gets another id when the tokenizer is loaded than the file declares.

    ## What it finds

    The ids that added tokens declare in `tokenizer.json`, and those of tokens that stand only in
    `added_tokens_decoder`, against the ids that the `tokenizers` library gives them. The library keeps ids of
    the base vocabulary and numbers all other added tokens on from the *count* of base tokens, in the order of
    the list: holes are closed, another order changes the ids, and where the base vocabulary has holes an
    added token lands on the id of a live token. A hole is safe when every added token also stands in the base
    vocabulary. An entry with an empty text is dropped. For tokens that stand only in `added_tokens_decoder`
    and that nothing refers to it is a warning.

    ## Why it matters

    The library says so only in a log line. The model gets the row of another token for it, and the row that
    was trained for the token is never used.

    ## How to fix it

    Order the entries by id, without holes, from the number of base tokens on; fill a hole with reserved
    tokens (`<|reserved_0|>` ...), or put the tokens into `model.vocab` with their ids as well. Then load the
    file and compare `tokenizer.get_vocab()` with the rows that were trained.
    """

    code = "TA403"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        effective = vocabulary.loaded.effective
        base = vocabulary.base.ids
        own = {token.content for token in vocabulary.added if token.content in effective}
        moved = [
            (token, effective.get(token.content))
            for table in vocabulary.tables
            for token in table.entries
            if table.at.file == vocabulary.base.at.file and effective.get(token.content) != token.id
        ]
        if moved:
            live = {id: content for content, id in base.items()}
            yield self._renumbered(moved, live, Severity.ERROR)
        if all(token.content in own or token.content in base for token in vocabulary.added):
            return
        late = [
            (token.declared, token.id)
            for token in appended(contract)
            if token.declared is not None and token.declared.id != token.id
        ]
        if late:
            used = any(token.id in contract.references for token, _ in late)
            yield self._renumbered(late, {}, Severity.ERROR if used else Severity.WARNING)

    def _renumbered(
        self, moved: Sequence[tuple[AddedToken, int | None]], live: dict[int, str], severity: Severity
    ) -> Finding:
        words = [_words(token, id, live) for token, id in moved]
        return self.finding(
            f"{counted(len(moved), 'added token')} renumbered on load: {listed(words, 3)}",
            [
                Claim(token.at, f"declares id {token.id}, the library gives {'none' if id is None else id}")
                for token, id in moved[:3]
            ],
            why="the model gets the row of another token, and the row that was trained is never used",
            fix="list the added tokens by id, without holes, from the count of base tokens on",
            severity=severity,
            subject=moved[0][0].content,
        )


def _words(token: AddedToken, id: int | None, live: dict[int, str]) -> str:
    says = f"{shown(token.content)} says {token.id} and "
    if id is None:
        return says + "is dropped"
    other = live.get(id, token.content)
    return says + f"becomes {id}" + (f", the id of {shown(other)}" if other != token.content else "")
