from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted


class DataDtypeTooNarrow(Rule):
    """The integers of the data are too narrow for the tokenizer's largest id.

    ## What it finds

    Files whose dtype (`uint8`, `int16`, `uint16` ...) cannot hold the tokenizer's largest id, even if every
    id in them fits. JSON has no dtype and is never meant. The dtype of a raw file is deduced where `--dtype`
    does not state it.

    ## Why it matters

    Larger ids were cut to the dtype when the data was written, without an error: 65,600 becomes 64 in 16
    bits. The data then holds other tokens than the text did, all of them in range. If nothing was cut so far,
    the next file may be: special tokens, which have the largest ids, come first.

    ## How to fix it

    Write the data again with a wider dtype: `uint16` holds ids up to 65,535, `uint32` any.
    """

    code = "TA902"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        required = contract.vocabulary.required_rows
        largest = required.value - 1
        for dtype, columns in contract.data.dtypes.items():
            most = columns[0].largest
            if most >= largest:
                continue
            deduced = ", as far as its bytes tell (--dtype states it)" if columns[0].deduced else ""
            yield self.finding(
                f"{counted(len(columns), 'file')} of {dtype} {'holds' if len(columns) == 1 else 'hold'} ids "
                f"up to {most}{deduced}; the tokenizer's largest is {contract.named(largest)}",
                [
                    *(Claim(column.at, f"{dtype}: ids up to {most}") for column in columns[:3]),
                    required.says(f"id {contract.named(largest)}"),
                ],
                why="larger ids were cut off when the data was written, to ids of other tokens",
                fix=f"tokenise again and store the ids as {'uint16' if largest < 1 << 16 else 'uint32'}",
                subject=dtype,
            )
