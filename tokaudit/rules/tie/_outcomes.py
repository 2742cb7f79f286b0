"""What each generation of loaders makes of the tie flags and the tables that are stored."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from tokaudit.contract import Contract, Table, TableComparison, Tie, TieReading, Values
from tokaudit.findings import Claim
from tokaudit.rules.rows._tables import stored_output
from tokaudit.text import listed

# Keeps stored tables apart when they differ, whatever the flag says (measured: 5.24 keeps both and warns,
# 4.57 ties silently and discards the output table).
KEEPS_UNEQUAL = "transformers 5"


class Outcome(enum.Enum):
    """The input and output tables of the loaded model."""

    ONE = "uses one table for input and output"
    TWO = "keeps the two stored tables"
    DROPPED = "uses the input table for both and discards the stored output table"
    RANDOM = "starts with a random output table"


def tied_everywhere(tie: Tie) -> bool:
    """Whether every loader that knows the class reads the flags as tied, and obeys them."""
    return not tie.always and all(reading.tied for reading in tie.readings)


def untied_everywhere(tie: Tie) -> bool:
    return not any(reading.tied for reading in tie.readings)


def stored_pair(contract: Contract) -> tuple[tuple[Table, Table], ...]:
    """The output table and the one whose storage it shares under a tie, where both are stored."""
    return tuple((contract.embeddings.tie_partner, output) for output in stored_output(contract))


def outcomes(contract: Contract) -> tuple[tuple[TieReading, Outcome], ...]:
    """What each loader ends up with. Raises FactMissing where the tables had to be compared and were not."""
    tie = contract.embeddings.tie
    pairs = stored_pair(contract)
    if not pairs:
        return tuple((reading, Outcome.ONE if reading.tied else Outcome.RANDOM) for reading in tie.readings)
    if untied_everywhere(tie):
        return tuple((reading, Outcome.TWO) for reading in tie.readings)
    if any(contract.comparison(*pair).equal for pair in pairs):
        return tuple((reading, Outcome.ONE) for reading in tie.readings)
    return tuple((reading, _of_unequal(reading)) for reading in tie.readings)


def _of_unequal(reading: TieReading) -> Outcome:
    keeps = not reading.tied or reading.loader == KEEPS_UNEQUAL
    return Outcome.TWO if keeps else Outcome.DROPPED


def difference(contract: Contract, comparison: TableComparison) -> str:
    """``12 rows differ (0 "a", 1 "b" and 10 more; by up to 0.25)``; more with `--deep`."""
    left, right = comparison.left, comparison.right
    apart = _apart(contract, comparison)
    if left.dtype != right.dtype:
        return f"they are stored as {left.dtype} and {right.dtype}, so that no row is the same{apart}"
    which = listed([contract.named(row) for row in comparison.first], total=comparison.different_rows)
    largest = comparison.max_difference
    by = "" if largest is None else f"; by up to {largest:.3g}"
    differ = "row differs" if comparison.different_rows == 1 else "rows differ"
    return f"{comparison.different_rows} {differ} ({which}{by}){apart}"


def _apart(contract: Contract, comparison: TableComparison) -> str:
    """How far the rows are apart, where the values were read."""
    if not isinstance(contract.values_or, Values):
        return ""
    for found in contract.values_or.divergences:
        rows = found.ordered
        if rows and (found.left.name, found.right.name) == (comparison.left.name, comparison.right.name):
            median, most = (found.relative[row] for row in (rows[len(rows) // 2], rows[-1]))
            return (
                f"; the rows are apart by {median:.2g} of their norm in the median and by at most "
                f"{most:.2g}, in row {contract.named(rows[-1])}"
            )
    return ""


def flag_claims(contract: Contract) -> Iterator[Claim]:
    """What the configuration says about the tie; the family's default where it is silent."""
    return contract.embeddings.tie_claims(contract.config)
