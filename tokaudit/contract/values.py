"""What `--deep` learns from the values of the tables: numbers for each row, and what they make of it."""

from __future__ import annotations

import enum
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tokaudit.contract.checkpoint import Table
from tokaudit.contract.facts import Missing
from tokaudit.findings import Location

NEEDS_DEEP = Missing("needs --deep")


class RowClass(enum.Flag):
    """What a row is for (one of the first four, none where no tokenizer tells), and what is odd about it.

    The order is that of interest: `TableValues.worst` lists the later ones first.
    """

    IN_USE = 1
    PADDING = 2
    RESERVED = 4
    HOLE = 8
    OUTLIER = 16
    UNDER_TRAINED = 32
    IDENTICAL = 64
    NEAR_ZERO = 128
    ZERO = 256
    NON_FINITE = 512

    @property
    def words(self) -> str:
        """``in-use, near-zero``; "unknown" for none."""
        names = [member.slug for member in RowClass if member in self]
        return ", ".join(names) or "unknown"

    @property
    def slug(self) -> str:
        """``near-zero``, of a single class."""
        return (self.name or "").lower().replace("_", "-")


PURPOSES = RowClass.IN_USE | RowClass.PADDING | RowClass.RESERVED | RowClass.HOLE
DEAD = RowClass.ZERO | RowClass.NEAR_ZERO

_BRACKETED = re.compile(r"(?:<\|?|\[|\{)(.+?)(?:\|?>|\]|\})")
_RESERVED = re.compile(
    r"(?:.*[_\W])?(?:reserved|unused)(?:[_\W\d].*)?"
    r"|(?:dummy|placeholder|extra|pad|unk|empty|spare)[_-]?(?:token)?[_-]?\d+",
    re.IGNORECASE,
)
_FIRST = frozenset("<[{m")
_NUMBERED = re.compile(r"<SPECIAL_\d+>|\[control_\d+\]|madeupword\d+")


def reserved_name(content: str) -> bool:
    """Whether a text says that it keeps a place: ``<|reserved_special_token_7|>``, ``[unused3]``."""
    if content[:1] not in _FIRST:  # nearly every token of a large vocabulary
        return False
    if _NUMBERED.fullmatch(content):
        return True
    inner = _BRACKETED.fullmatch(content)
    return inner is not None and _RESERVED.fullmatch(inner[1]) is not None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A token in use whose row points in nearly the same direction."""

    id: int
    cosine: float


@dataclass(frozen=True)
class Indicators:
    """How far each output row is from the rows of tokens that are known to be unused (none of them if NaN).

    After "Fishing for Magikarp" (Land and Bartolo, 2024), for the mean c of ``unused`` known rows: ``cosine``
    is 1 - cos(row, c), ``centred`` the same after the tables' mean is subtracted, ``without_component`` after
    the first principal component is removed, ``distance`` is the L2 distance to c. ``level`` is the limit
    in the one named by ``judged_by``: 1.5 times what 95 % of the known rows themselves stay below.
    """

    unused: int
    cosine: array[float]
    centred: array[float]
    without_component: array[float]
    distance: array[float]
    judged_by: str
    level: float


@dataclass(frozen=True)
class TableValues:
    """One table, row by row; row n belongs to id ``first_id`` + n.

    ``norms`` are L2 norms and ``largest`` absolute values (float64, NaN for a row that is not finite);
    ``classes`` holds the value of each row's RowClass. ``non_finite`` counts values by id. ``identical`` are
    groups of ids whose rows have the same bytes and are not zero. ``typical_norm`` is the median over rows in
    use, ``spread`` the robust standard deviation of their logarithms. ``signs`` says by id why a row looks
    never trained, ``new`` are the nearest tokens in use by id of added tokens.
    """

    table: Table
    first_id: int
    norms: array[float]
    largest: array[float]
    classes: array[int]
    non_finite: Mapping[int, int]
    identical: tuple[tuple[int, ...], ...]
    typical_norm: float
    spread: float
    signs: Mapping[int, str]
    indicators_or: Indicators | Missing
    new: Mapping[int, tuple[Neighbour, ...]]

    @property
    def ids(self) -> range:
        return range(self.first_id, self.first_id + len(self.norms))

    def at(self, id: int) -> Location:
        row = id - self.first_id
        return replace(self.table.at, rows=(row, row + 1))

    def class_of(self, id: int) -> RowClass:
        return RowClass(self.classes[id - self.first_id])

    def norm(self, id: int) -> float:
        return self.norms[id - self.first_id]

    def having(self, wanted: RowClass, *, within: RowClass = PURPOSES) -> list[int]:
        """Ids of the rows that have one of the wanted classes and one of the purposes ``within``."""
        if not any(self.counts[member] for member in RowClass if member in wanted):
            return []
        bits, purposes = wanted.value, within.value if within is not PURPOSES else -1
        rows = zip(self.ids, self.classes, strict=True)
        return [id for id, value in rows if value & bits and value & purposes]

    @cached_property
    def counts(self) -> Mapping[RowClass, int]:
        """Rows of each class; a row may have several."""
        by_value = Counter(self.classes)
        return {
            member: sum(count for value, count in by_value.items() if value & member.value)
            for member in RowClass
        }

    @cached_property
    def judged(self) -> list[float]:
        """The norms that the distribution is made of, in order: of finite rows in use that are not zero."""
        rows = zip(self.norms, self.classes, strict=True)
        if not self.counts[RowClass.IN_USE]:
            return sorted(norm for norm in self.norms if norm > 0)
        purpose = RowClass.IN_USE.value
        return sorted([norm for norm, value in rows if value & purpose and norm > 0])

    def percentile(self, id: int) -> float:
        """The share of the rows in use, in percent, whose norm is smaller."""
        norm = self.norm(id)
        return 100 * bisect_left(self.judged, norm) / max(1, len(self.judged)) if norm == norm else norm

    def quantiles(self, shares: Iterable[float]) -> list[float]:
        """The norms that these shares (0 to 1) of the judged rows do not exceed; none without rows."""
        last = len(self.judged) - 1
        return [self.judged[round(share * last)] for share in shares] if last >= 0 else []

    def histogram(self, bins: int) -> list[int]:
        """How many judged rows have a norm in each of so many equal parts of the range."""
        norms = self.judged
        if not norms:
            return [0] * bins
        low, high = norms[0], norms[-1]
        width = (high - low) / bins or 1.0
        starts = [
            bisect_left(norms, part, key=lambda norm: int((norm - low) / width)) for part in range(bins)
        ]
        return [past - start for start, past in zip(starts, [*starts[1:], len(norms)], strict=True)]

    def worst(self) -> list[int]:
        """All ids, the oddest rows first: by class, padding and holes last, then by norm."""
        spare = (RowClass.PADDING | RowClass.HOLE | RowClass.RESERVED).value

        def key(id: int) -> tuple[bool, int, float]:
            value = self.classes[id - self.first_id]
            return bool(value & spare), -(value & ~PURPOSES.value), self.norm(id)

        return sorted(self.ids, key=key)


@dataclass(frozen=True)
class Divergence:
    """How far two tables that should be one are apart: the L2 distance of each row, and over its norm.

    ``relative`` is the distance divided by the larger norm of the two rows (float64; 0 where both are zero,
    NaN where a row is not finite).
    """

    left: Table
    right: Table
    distances: array[float]
    relative: array[float]

    @cached_property
    def ordered(self) -> list[int]:
        """The rows that are finite on both sides, by their relative distance: those apart most come last."""
        finite = [row for row, value in enumerate(self.relative) if value == value]
        return sorted(finite, key=self.relative.__getitem__)


@dataclass(frozen=True)
class Values:
    """The tables whose rows were read, why others were not (by tensor), and tied ones that differ."""

    tables: tuple[TableValues, ...]
    unread: Mapping[str, str]
    divergences: tuple[Divergence, ...] = ()
