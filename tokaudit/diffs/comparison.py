"""Everything that differs between two sides, whatever it is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tokaudit.contract import TableKind
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.mapping import MappingDiff
from tokaudit.diffs.probes import ProbesDiff
from tokaudit.diffs.rows import RowsDiff
from tokaudit.diffs.tables import place
from tokaudit.text import counted

MOST_JOINED = 4  # differences in one sentence
TITLES = {
    "mapping": "token-to-id mapping",
    "pipeline": "pipeline",
    "templates": "chat template",
    "special": "special ids",
    "tables": "tables",
    "probes": "probes",
}


@dataclass(frozen=True)
class Comparison:
    """What differs, in groups. ``mapping`` is None where it does not, ``probes`` where none were asked.

    ``not_compared`` are reasons by group, for what at least one side should have.
    """

    left: Side
    right: Side
    mapping: MappingDiff | None
    pipeline: tuple[Difference, ...]
    templates: tuple[Difference, ...]
    special: tuple[Difference, ...]
    tables: tuple[Difference, ...]
    probes: ProbesDiff | None
    rows: tuple[RowsDiff, ...] = ()
    not_compared: Mapping[str, str] = field(default_factory=dict)

    @property
    def different_rows(self) -> tuple[RowsDiff, ...]:
        return tuple(rows for rows in self.rows if rows.different)

    def group(self, name: str) -> tuple[Difference, ...]:
        """The differences of "pipeline", "templates", "special" or "tables"."""
        found: tuple[Difference, ...] = getattr(self, name)
        return found

    def mapping_words(self) -> Iterator[str]:
        """One sentence, where the mapping differs."""
        if self.mapping is not None:
            yield f"{TITLES['mapping']}: {'; '.join(self.mapping.sentences())}"

    def words(self, *groups: str) -> Iterator[str]:
        """One sentence for each of the groups that has differences."""
        for group in groups:
            differences = [str(difference) for difference in self.group(group)]
            if differences:
                yield f"{TITLES[group]}: {joined(differences)}"

    def probe_words(self) -> Iterator[str]:
        """One sentence, where probes differ."""
        if self.probes is not None and self.probes.different:
            count = f"{len(self.probes.different)} of {counted(self.probes.compared, 'text')}"
            yield f"{TITLES['probes']}: {count} encode differently, first {self.probes.different[0]}"


def joined(sentences: Sequence[str]) -> str:
    """A few sentences as one, and how many were left out."""
    more = len(sentences) - MOST_JOINED
    return "; ".join([*sentences[:MOST_JOINED], *([f"and {more} more"] if more > 0 else [])])


def holds(side: Side, group: str) -> bool:
    """Whether the side has what the group compares."""
    lock = side.lock
    facts = {"mapping": lock.mapping, "pipeline": lock.parts, "tables": lock.tables, "probes": lock.probes}
    return facts[group] is not None


def rows_of(side: Side, table: str) -> int | None:
    """How many rows a side's table has, by what it is compared with."""
    tables = side.lock.tables or ()
    return next((held.rows for held in tables if place(held) == table), None)


def input_rows(side: Side) -> int | None:
    return rows_of(side, TableKind.INPUT.value)
