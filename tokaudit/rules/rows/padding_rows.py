from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Table
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._padding import padding
from tokaudit.text import size


class PaddingRows(Rule):
    """The input embeddings have more rows than the tokenizer has ids.

    ## What it finds

    Rows past the largest token id: how many, which round number the total is a multiple of, and the
    bytes they take in the input and the output table. Rows that the family adds by design are not
    counted, and one or two rows that no rounding explains are left to `lost-added-token`.

    ## Why it matters

    It is normal. Training rounds the row count up for the hardware, or keeps room for more tokens:
    Qwen2.5 has 151,936 rows for 151,665 ids. It matters to code that takes the tokenizer's length for
    the table's: resizing to it cuts rows off. An untrained padding row can also win a greedy step when
    its logit is not masked.

    ## How to fix it

    Leave the rows. When tokens are added, `tokaudit resize SRC DST --add-token TEXT` uses them before
    it adds new ones. Never call `resize_token_embeddings(len(tokenizer))` on such a model.
    """

    code = "TA108"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        found = padding(contract)
        if found.count == 0 or found.looks_lost:
            return
        first = found.required.value
        have = "row of {} has" if found.count == 1 else "rows of {} have"
        yield self.finding(
            f"{found.count} {have.format(found.rows)} no token: the largest id is {first - 1}, "
            f"and {found.rows} is {found.words} ({size(found.count * _bytes_per_id(contract))})",
            [found.table.says(f"{found.rows} rows"), found.required.says(f"id {first - 1}, the largest")],
            why="normal; code that resizes the table to the tokenizer's length cuts rows off",
            fix="leave them: `tokaudit resize` uses them first when tokens are added",
        )


def _bytes_per_id(contract: Contract) -> int:
    """Bytes of one row in the input table and, where it is stored, the output table."""
    embeddings = contract.embeddings
    tables = [table for table in (embeddings.input_or, embeddings.output_or) if isinstance(table, Table)]
    return sum(table.tensor.nbytes // table.rows for table in tables if not table.malformed)
