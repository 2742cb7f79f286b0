from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from tokaudit.contract import Contract, Table
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed

ROUND = 64


class RowsNotDivisible(Rule):
    """The row count is not divisible by 64, or by the tensor-parallel size that was asked for.

    ## What it finds

    Input or output tables whose rows 64 does not divide: a note, as in many released models. With
    `--tensor-parallel N`, rows that N does not divide are a warning instead.

    ## Why it matters

    Matrix kernels run faster on multiples of 64, and kernels for quantised tables can require them.
    Tensor parallelism gives each of N ranks an equal share of the rows: engines that do not pad the
    table themselves refuse, or fail in the gather.

    ## How to fix it

    `tokaudit resize SRC DST --pad-to-multiple-of 64` (for N ranks: the least common multiple of 64 and N)
    adds rows at the end; ids stay as they are.
    """

    code = "TA112"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        ranks = contract.options.tensor_parallel
        tables = [embeddings.input]
        if isinstance(embeddings.output_or, Table) and not embeddings.output_or.malformed:
            tables.append(embeddings.output_or)
        if ranks and (uneven := [table for table in tables if table.rows % ranks]):
            yield self._uneven(uneven, ranks, Severity.WARNING)
        elif uneven := [table for table in tables if table.rows % ROUND]:
            yield self._uneven(uneven, ROUND, Severity.NOTE)

    def _uneven(self, tables: list[Table], divisor: int, severity: Severity) -> Finding:
        rows = sorted({table.rows for table in tables})
        asked = severity is Severity.WARNING
        return self.finding(
            f"{listed([str(number) for number in rows])} rows are not divisible by {divisor}"
            + (" tensor-parallel ranks" if asked else ""),
            [
                table.says(f"{table.rows} rows, {table.rows % divisor} past a multiple of {divisor}")
                for table in tables
            ],
            why="the ranks cannot share the rows evenly"
            if asked
            else "kernels prefer round sizes; nothing is wrong",
            fix=f"`tokaudit resize SRC DST --pad-to-multiple-of {lcm(divisor, ROUND)}` adds rows at the end",
            severity=severity,
        )
