"""What each generation of loaders makes of the tie flags and the tables that are stored."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from tokaudit.contract import Contract, Table, Tie, TieReading
from tokaudit.findings import Claim
from tokaudit.rules.rows._tables import stored_output

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
    pair = stored_pair(contract)
    if not pair:
        return tuple((reading, Outcome.ONE if reading.tied else Outcome.RANDOM) for reading in tie.readings)
    if contract.comparison(*pair[0]).equal:
        return tuple((reading, Outcome.ONE) for reading in tie.readings)
    return tuple((reading, _of_unequal(reading)) for reading in tie.readings)


def _of_unequal(reading: TieReading) -> Outcome:
    keeps = not reading.tied or reading.loader == KEEPS_UNEQUAL
    return Outcome.TWO if keeps else Outcome.DROPPED


def flag_claims(contract: Contract) -> Iterator[Claim]:
    """What the configuration says about the tie; the family's default where it is silent."""
    tie = contract.embeddings.tie
    for fact in tie.flags.values():
        yield fact.says("tied" if fact.value else "untied")
    if not tie.flags:
        default = "tied" if tie.tied else "untied"
        at = contract.config.at.child("tie_word_embeddings")
        yield Claim(at, f"not stated: {contract.embeddings.architecture} is {default} by default")
