from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed


class IdHole(Rule):
    """Some ids below the largest one belong to no token.

    ## What it finds

    Ids from 0 to the largest one, over every file that gives ids, that no token has. Released models have
    them: reserved space, tokens that were taken out.

    ## Why it matters

    The number of tokens is smaller than the rows that they need, so `len(tokenizer)` is not the next free
    id: resizing the model to it cuts off live rows, and a token that is added gets the id of a live one in
    some loaders.

    ## How to fix it

    Nothing, as long as rows are counted by the largest id. `tokaudit resize` does; with other tools give the
    number of rows (`max(tokenizer.get_vocab().values()) + 1`) and not `len(tokenizer)`.
    """

    code = "TA404"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        base = vocabulary.base
        required = vocabulary.required_rows
        holes = vocabulary.holes
        if not holes:
            return
        count = vocabulary.hole_count
        spans = _spans(holes)
        yield self.finding(
            f"{counted(count, 'id')} below {required.value} without a token: "
            + (listed(spans, 5) if count == len(holes) else f"{', '.join(spans[:5])} ..."),
            [
                required.says(f"id {required.value - 1}, the largest"),
                Claim(base.at, f"{len(vocabulary.by_id)} ids in all files"),
            ],
            why="len(tokenizer) is not the next free id: resizing to it cuts off live rows",
            fix=f"count rows by the largest id ({required.value}), never by the number of tokens",
        )


def _spans(ids: tuple[int, ...]) -> list[str]:
    """Runs of ids as "7" and "9-12"."""
    spans: list[list[int]] = []
    for id in ids:
        if spans and id == spans[-1][1] + 1:
            spans[-1][1] = id
        else:
            spans.append([id, id])
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]
