from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Missing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule


class MappingDrift(Rule):
    """The token-to-id mapping is not the one in the lock.

    ## What it finds

    Tokens that were added, removed, replaced or moved since the lock was made. The ids are those that the
    `tokenizers` library gives when it loads the file; how the file is written does not matter. A lock
    holds the texts of added tokens and of tokens with a role. Of the others it holds digests, one for
    4096 ids each, so a change among them is placed but not named; `tokaudit diff OLD NEW` names it.

    ## Why it matters

    A token id is the address of a row. A moved token reads another token's row, and nothing fails: the
    model answers with worse text. A copy of the tokenizer in a container, a library's own default or a
    new revision under an old name are the usual ways in.

    ## How to fix it

    Deploy the tokenizer that the lock was made of. If the change is meant (tokens were added with
    `tokaudit resize`), review it with `tokaudit diff` and make the lock again: `tokaudit lock PATH`.
    """

    code = "TA501"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        held = drift.required(lock.mapping, "token-to-id mapping")
        there = drift.locked(contract, "mapping", drift.tokens(held))
        if isinstance(contract.vocabulary_or, Missing):
            yield self.finding(
                "the lock holds a token-to-id mapping, and there is no tokenizer",
                [Claim(Location(""), contract.vocabulary_or.reason), there],
                why="what is deployed cannot be the tokenizer that the lock was made of",
                fix="give the directory of the tokenizer with --tokenizer",
            )
            return
        contract.vocabulary.effective  # noqa: B018  (raises where the library does not load the file)
        change = drift.mapping_change(contract)
        if change is not None:
            now = drift.required(contract.snapshot.mapping, "token-to-id mapping")
            tables = contract.vocabulary.tables
            at = contract.vocabulary.token(change.added[0][1]).at if change.added else tables[0].at
            yield self.finding(
                f"the token-to-id mapping is not the lock's: {'; '.join(change.sentences())}",
                [Claim(at, drift.tokens(now)), there],
                why="an id is the address of a row: text reaches rows that were trained for other text",
                fix=f"deploy the tokenizer that the lock was made of; {drift.MAKE_AGAIN}",
            )
