from __future__ import annotations

import sys
from collections.abc import Iterator

from tokaudit.contract import Contract, Missing
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._beyond import RowLimit, row_limit
from tokaudit.rules.vocabulary._appended import Appended, appended
from tokaudit.text import counted, listed, named


class TokenAppendedOnLoad(Rule):
    """A special token that no file gives an id is appended when the tokenizer is loaded.

    ## What it finds

    Roles (bos, eos, pad ...) and additional special tokens whose text `tokenizer.json` does not hold, the
    ones that the tokenizer class fills in where the files are silent included, and for T5 the sentinels. The
    loader appends them after the last id, in its own order, whatever `added_tokens.json` says about them. It
    is an error when the id has no row and a warning when the row exists: the token then takes over a padding
    row, or a row that belongs to something else. A token that gets the very id that a file declares for it is
    fine.

    ## Why it matters

    No file shows the id, so a count of rows against the files looks right. The first batch that needs the
    token indexes past the table; or the token gets a row that was never trained for it.

    ## How to fix it

    If the model was trained with the token, restore the `tokenizer.json` that has it. If the declaration is a
    mistake (a class default that the model has no use for), state a token that exists, or `null`:
    `"pad_token": null`. To keep the new token, save the tokenizer with it and give it a row:
    `tokaudit resize SRC DST --to-tokenizer DIR`.
    """

    code = "TA412"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        tokens = [token for token in appended(contract) if token.role and not _as_declared(contract, token)]
        if not tokens:
            return
        limit = _limit(contract)
        rows = sys.maxsize if limit is None else limit.rows
        beyond = [token for token in tokens if token.id >= rows]
        within = [token for token in tokens if token.id < rows]
        for group, severity in ((beyond, Severity.ERROR), (within, Severity.WARNING)):
            if group:
                yield self._appended(contract, group, limit, severity)

    def _appended(
        self, contract: Contract, tokens: list[Appended], limit: RowLimit | None, severity: Severity
    ) -> Finding:
        if limit is None:
            rows = ""
        elif severity is Severity.ERROR:
            rows = f", and have no row: {limit.words}"
        else:
            rows = ", on rows that are not theirs"
        words = [f"{named(token.id, token.content)} ({token.role})" for token in tokens]
        return self.finding(
            f"{counted(len(tokens), 'special token')} that tokenizer.json lacks, appended on load: "
            f"{listed(words, 3)}{rows}",
            [
                *(Claim(token.at, f"asks for {named(token.id, token.content)}") for token in tokens[:3]),
                Claim(contract.vocabulary.base.at, "has no such token"),
                *([limit.claim] if limit else ()),
            ],
            why="the id stands in no file: the first use of the token reads past the table or a foreign row",
            fix="restore the tokenizer.json that has the tokens, or state tokens that exist (null for none)",
            severity=severity,
            subject=tokens[0].role,
        )


def _as_declared(contract: Contract, token: Appended) -> bool:
    """Whether some file declares the id that the token gets."""
    return any(table.ids.get(token.content) == token.id for table in contract.vocabulary.tables)


def _limit(contract: Contract) -> RowLimit | None:
    """The rows, where anything tells them: a tokenizer alone is judged, too."""
    if isinstance(contract.embeddings_or, Missing):
        return None
    try:
        return row_limit(contract)
    except FactMissing:
        return None
