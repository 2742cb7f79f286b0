from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._witnesses import TokenFile, token_files
from tokaudit.text import counted, listed, shown


class DuplicateTokenId(Rule):
    """Two tokens share one id.

    ## What it finds

    Different texts with one id within one file: two keys of a vocabulary, two added tokens that declare the
    same id, or an added token that declares the id of an ordinary token. A token that stands in the base
    vocabulary and among the added tokens is one token, whatever id the second entry declares.

    ## Why it matters

    Both texts read and train the same row, and decoding can give back only one of them. For two added
    tokens the library moves one to another id when the file is loaded, so that neither the declared ids nor
    the rows can be trusted.

    ## How to fix it

    Give each token an id of its own: the next free one for a new token, and a row for it
    (`tokaudit resize`). If one of the two was added by mistake, take its entry out.
    """

    code = "TA402"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        for file in token_files(contract.vocabulary):
            shared = _shared(file)
            if shared:
                words = [_words(id, texts) for id, texts in islice(shared.items(), 3)]
                texts = next(iter(shared.values()))
                yield self.finding(
                    f"{counted(len(shared), 'id')} with more than one token in {file.name}: "
                    f"{listed(words, 3, len(shared))}",
                    [_claim(file, text, next(iter(shared))) for text in texts[:3]],
                    why="the tokens share one row, and only one of them comes back when ids are decoded",
                    fix="give each token an id of its own, or take out the entry that is a mistake",
                    subject=file.name,
                )


def _words(id: int, texts: list[str]) -> str:
    if len(texts) == 2:
        return f"{id} is {shown(texts[0])} and {shown(texts[1])}"
    return f"{id} is {listed([shown(text) for text in texts[:5]], 5, len(texts))}"


def _shared(file: TokenFile) -> dict[int, list[str]]:
    """Ids with several texts, and the texts; a text counts in the first table that has it."""
    repeated: set[int] = set()
    seen: set[int] = set()
    for number, table in enumerate(file.tables):
        ids = [id for _, id in _own_pairs(file, number)] if number else list(table.ids.values())
        distinct = set(ids)
        repeated |= distinct & seen
        if len(distinct) < len(ids):
            repeated |= {id for id, times in Counter(ids).items() if times > 1}
        seen |= distinct
    if not repeated:
        return {}
    texts: dict[int, dict[str, None]] = {id: {} for id in sorted(repeated)}
    for number in range(len(file.tables)):
        for content, id in _own_pairs(file, number):
            if id in repeated:
                texts[id][content] = None
    return {id: list(found) for id, found in texts.items() if len(found) > 1}


def _own_pairs(file: TokenFile, number: int) -> Iterator[tuple[str, int]]:
    """The pairs of a table without the texts that an earlier one of the file has."""
    earlier = file.tables[:number]
    for content, id in file.tables[number].pairs():
        if not any(content in table.ids for table in earlier):
            yield content, id


def _claim(file: TokenFile, text: str, id: int) -> Claim:
    return Claim(file.table(text).location(text), f"{shown(text)} has id {id}")
