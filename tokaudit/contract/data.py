"""What the given token data holds: ids and how often, where the first one without a row is, labels.

Statistics of parts of the data are merged into those of the whole: in any order, and always to the same
result.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add
from typing import Any, TypeVar

from tokaudit.contract.facts import Missing, present
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.progress import Progress, Quiet

IGNORED = -100  # the label that a loss passes over: the default of torch and of transformers
MOST_SAMPLES = 4
DTYPES = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("u", ""))
ENGINES = ("local", "ray")
LEAST_JUDGED = 64  # ids of a sample that say something about their tokenizer
_BROKEN = re.compile("\ufffd+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The data that was asked for: files, directories or patterns.

    ``dtype`` is that of raw files ("uint16"), None to deduce it. ``engine`` is "local" or "ray"; the local
    one uses ``jobs`` processes, None for one on each core. ``progress`` follows the bytes that are counted.
    """

    paths: tuple[str, ...]
    dtype: str | None = None
    engine: str = "local"
    jobs: int | None = None
    progress: Progress = field(default_factory=Quiet)


@dataclass(frozen=True, slots=True)
class DataColumn:
    """Ids of one file: an array, or a column of lists. ``column`` is "" where a file holds only one array.

    ``dtype`` is that of the ids as they are stored ("uint16"); "" for JSON, whose numbers have none.
    ``deduced`` marks one that nothing states. ``labels`` names the column of their labels, if there is one.
    """

    file: str
    column: str
    dtype: str
    deduced: bool = False
    labels: str = ""

    @property
    def at(self) -> Location:
        return Location(self.file, tensor=self.column, outside=True)

    @property
    def largest(self) -> int:
        """The largest id that the dtype holds."""
        return capacity(self.dtype)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where an id stands: its row and its item within the row, both from 0; a flat array is one row."""

    file: str
    column: str
    row: int
    item: int
    id: int
    flat: bool = False

    @property
    def at(self) -> Location:
        first = self.item if self.flat else self.row
        return Location(self.file, tensor=self.column, rows=(first, first + 1), outside=True)

    @property
    def words(self) -> str:
        return f"item {self.item}" if self.flat else f"row {self.row}, item {self.item}"


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """The first ids of one file."""

    file: str
    column: str
    ids: tuple[int, ...]

    @property
    def at(self) -> Location:
        return Location(self.file, tensor=self.column, outside=True)


@dataclass(frozen=True, slots=True)
class LabelStatistics:
    """What labels say about their inputs; counts of positions, but for ``unaligned``.

    ``trained`` labels are not IGNORED. ``negative`` and ``beyond`` labels are no ids with a row; the first of
    them is ``outside``. Of the trained labels, ``same`` are the input at their position; of the ``followed``
    ones, that have a next input in their row, ``shifted`` are that one. ``pads`` are pad positions of the
    inputs, ``ends`` end-of-sequence inputs after a trained one that is none. ``unaligned`` rows have more or
    fewer labels than inputs and count nowhere else.
    """

    unaligned: int = 0
    items: int = 0
    trained: int = 0
    negative: int = 0
    beyond: int = 0
    same: int = 0
    followed: int = 0
    shifted: int = 0
    pads: int = 0
    pads_trained: int = 0
    ends: int = 0
    ends_masked: int = 0
    outside: Place | None = None
    pad_trained: Place | None = None
    end_masked: Place | None = None

    @property
    def of_inputs(self) -> bool:
        """Whether the labels are made of the inputs, as those of a language model are."""
        return self.same * 2 >= self.trained

    @property
    def moved(self) -> bool:
        """Whether they are the inputs moved by one. (In a run of one id everything is both.)"""
        return 0 < self.followed * 9 <= self.shifted * 10 and self.same * 2 < self.trained

    def merge(self, other: LabelStatistics) -> LabelStatistics:
        joined: dict[str, Any] = {
            field.name: _joined(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
        }
        return LabelStatistics(**joined)


def all_labels(parts: Iterable[LabelStatistics]) -> LabelStatistics:
    return reduce(LabelStatistics.merge, parts, LabelStatistics())


def _joined(left: int | Place | None, right: int | Place | None) -> int | Place | None:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _first([left, right])


def _first(places: Iterable[object]) -> Place | None:
    return min((place for place in places if isinstance(place, Place)), default=None)


@dataclass(frozen=True, slots=True)
class DataStatistics:
    """Of the inputs: ``counts`` (64 bits, by id from 0) and what is outside of them; and of their labels.

    ``beyond`` counts ids at or past the end of ``counts``. ``outside`` is the first id without a row.
    ``labelled`` has the labels of each column that has any.
    """

    counts: array[int] = field(repr=False)
    items: int = 0
    beyond: int = 0
    negative: int = 0
    least: int | None = None
    most: int | None = None
    outside: Place | None = None
    labelled: Mapping[DataColumn, LabelStatistics] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()

    @property
    def labels(self) -> LabelStatistics:
        return all_labels(self.labelled.values())

    def merge(self, other: DataStatistics) -> DataStatistics:
        """The statistics of both parts together; ``counts`` must be of one length."""
        if len(self.counts) != len(other.counts):
            raise ValueError(f"counts of {len(self.counts)} and {len(other.counts)} ids cannot be merged")
        return DataStatistics(
            counts=array("q", map(add, self.counts, other.counts)),
            items=self.items + other.items,
            beyond=self.beyond + other.beyond,
            negative=self.negative + other.negative,
            least=min(known([self.least, other.least]), default=None),
            most=max(known([self.most, other.most]), default=None),
            outside=_first([self.outside, other.outside]),
            labelled={
                **self.labelled,
                **{
                    column: self.labelled[column].merge(labels) if column in self.labelled else labels
                    for column, labels in other.labelled.items()
                },
            },
            samples=first_samples([*self.samples, *other.samples]),
        )

    def count(self, id: int) -> int:
        return self.counts[id] if 0 <= id < len(self.counts) else 0

    def without_row(self, rows: int) -> int:
        """How many ids have no row of so many."""
        return self.negative + self.beyond + sum(self.counts[rows:])

    def frequent(self, most: int) -> list[tuple[int, int]]:
        """The most frequent ids and their counts, the most frequent first."""
        from heapq import nlargest

        ids = nlargest(most, range(len(self.counts)), key=lambda id: (self.counts[id], -id))
        return [(id, self.counts[id]) for id in ids if self.counts[id]]


def known(values: Iterable[T | None]) -> list[T]:
    """Those that are not None."""
    return [value for value in values if value is not None]


def first_samples(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    return tuple(sorted(samples)[:MOST_SAMPLES])


@dataclass(frozen=True, slots=True)
class DecodedSample:
    """The text that the tokenizer gives for a sample of ids."""

    sample: Sample
    text: str


@dataclass(frozen=True)
class TokenData:
    """All of the given data. Ids below ``rows`` have a row; ``complete`` unless a part could not be read."""

    columns: tuple[DataColumn, ...]
    statistics: DataStatistics
    rows: int
    complete: bool
    texts_or: tuple[DecodedSample, ...] | Missing

    @property
    def at(self) -> Location:
        return self.columns[0].at

    @property
    def texts(self) -> tuple[DecodedSample, ...]:
        return present(self.texts_or)

    @property
    def all(self) -> DataStatistics:
        """The statistics, where they are those of all the data: only then is an id known to be absent."""
        if not self.complete:
            raise FactMissing("a part of the data could not be read")
        return self.statistics

    @property
    def labels(self) -> LabelStatistics:
        """Raises FactMissing where no row has labels that can be held against its inputs."""
        labels = self.statistics.labels
        if not labels.items:
            reason = "no row has as many labels as inputs" if labels.unaligned else "the data has no labels"
            raise FactMissing(reason)
        return labels

    @property
    def moved(self) -> Sequence[DataColumn]:
        """The columns whose labels are their inputs moved by one; those with few labels go by all of them.

        Raises FactMissing as ``labels`` does.
        """
        all_moved = self.labels.moved
        found = [
            column
            for column, labels in self.statistics.labelled.items()
            if labels.followed and (labels.moved if labels.followed >= LEAST_JUDGED else all_moved)
        ]
        return sorted(found, key=lambda column: (column.file, column.column))

    def labels_of(self, columns: Iterable[DataColumn]) -> LabelStatistics:
        return all_labels(self.statistics.labelled[column] for column in columns)

    @property
    def telling(self) -> DataStatistics:
        """The statistics, where there are enough ids to tell their tokenizer."""
        if self.statistics.items < LEAST_JUDGED:
            raise FactMissing(f"fewer than {LEAST_JUDGED} ids are too few to tell their tokenizer")
        return self.statistics

    def visited(self, id: int) -> bool:
        return self.statistics.count(id) > 0

    @property
    def garbled(self) -> float:
        """The share of the sampled ids after which the text is broken: their bytes make no character.

        Raises FactMissing where there is no text, or too little.
        """
        ids = sum(len(decoded.sample.ids) for decoded in self.texts)
        if ids < LEAST_JUDGED:
            raise FactMissing(f"fewer than {LEAST_JUDGED} ids are too few to tell their tokenizer")
        # A sample may end within a character.
        return sum(len(_BROKEN.findall(decoded.text.rstrip("\ufffd"))) for decoded in self.texts) / ids

    @property
    def dtypes(self) -> Mapping[str, Sequence[DataColumn]]:
        """The columns of each dtype that has a capacity, by the name of the dtype."""
        found: dict[str, list[DataColumn]] = {}
        for column in self.columns:
            if column.dtype:
                found.setdefault(column.dtype, []).append(column)
        return found


def width(dtype: str) -> int:
    """Bytes of an id: ``width("uint16") == 2``."""
    return int(dtype.removeprefix("u").removeprefix("int")) // 8


def capacity(dtype: str) -> int:
    """The largest id that an integer dtype holds: ``capacity("int16") == 32767``."""
    sign = 0 if dtype.startswith("u") else 1
    return (1 << 8 * width(dtype) - sign) - 1
