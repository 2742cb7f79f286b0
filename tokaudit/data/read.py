"""Reads the token data that a contract is held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tokaudit.contract import Contract, Missing, Role, Table, Vocabulary
from tokaudit.contract.data import DataOptions, DataStatistics, DecodedSample, Sample, TokenData
from tokaudit.data.engines import Engine, engine, spread
from tokaudit.data.find import find
from tokaudit.data.plan import Unit, plan
from tokaudit.data.tally import Measure, Tally, merged
from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.parallel import Lost
from tokaudit.tokenizing import TokenizerFailure, TokenizerProcess

UNIT_BYTES = 64 << 20  # of a large file
LEAST_BYTES, MOST_BYTES = 64 << 20, 1 << 30  # of the units that one process counts
MOST_UNITS = 1024  # that one process counts
SHARES = 4  # of a worker: those that are done early take from the others
LARGEST_ID = (1 << 63) - 1  # that torch compares with; a configuration may state any number
MOST_BINS = 1 << 24  # ids that are counted one by one; a tokenizer may declare any id
_WAITING_BYTES = 64 << 20  # of parts that wait to be merged: each has a count of every id
_PLANNED = 64  # files that are planned together


@dataclass(frozen=True, slots=True)
class Found:
    """Of some units: their statistics, and the parts that could not be read."""

    statistics: DataStatistics
    problems: tuple[Unreadable, ...]


def read_data(
    contract: Contract, options: DataOptions, process: TokenizerProcess | Missing
) -> tuple[TokenData | Missing, tuple[Unreadable, ...]]:
    """The data, and the parts of it that could not be read. Raises UsageError for a wrong option."""
    files, problems = find(options.paths)
    run = engine(options)
    measure = measure_of(contract)
    units = list(_plans(run, files, options, measure, problems))
    if not units:
        return Missing("no token data could be read"), tuple(
            problems or [_no_ids(path) for path in files[:1]]
        )
    statistics = count(run, units, measure, options, problems)
    if not (statistics.items or problems):
        problems.append(_no_ids(files[0]))
    columns = tuple(dict.fromkeys(unit.column for unit in units))
    texts = _texts(process, statistics.samples)
    data = TokenData(columns, statistics, measure.rows, complete=not problems, texts_or=texts)
    return data, tuple(problems)


def measure_of(contract: Contract) -> Measure:
    """What the ids are held against. Raises FactMissing where neither rows nor tokens are known."""
    vocabulary = contract.vocabulary_or
    required = vocabulary.required_rows.value if isinstance(vocabulary, Vocabulary) else 0
    rows = _rows(contract) or required
    if not rows:
        raise FactMissing("neither the tokenizer nor the weights say which ids there are")
    roles = {role: token.id for role, token in contract.roles.items()}
    pads = [*_known(roles, Role.PAD), *(id for field in contract.fields(Role.PAD) for id in field.ids)]
    pad = next(_possible(pads), None)
    stops = [*_known(roles, Role.EOS), *(id for field in contract.stop_ids for id in field.ids)]
    ends = set(_possible(stops))
    others = ends | {id for role, id in roles.items() if role is not Role.PAD}
    return Measure(
        rows=min(rows, LARGEST_ID),
        bins=min(MOST_BINS, max(rows, required)),
        pad=pad,
        pad_shared=pad in others,
        ends=tuple(sorted(ends)),
    )


def _possible(ids: Iterable[int]) -> Iterator[int]:
    return (id for id in ids if 0 <= id <= LARGEST_ID)


def _known(roles: dict[Role, int], role: Role) -> list[int]:
    return [roles[role]] if role in roles else []


def _rows(contract: Contract) -> int | None:
    """The rows of the input table, or those that config.json asks for; None where neither is known."""
    try:
        embeddings = contract.embeddings
        if isinstance(embeddings.input_or, Table) and isinstance(embeddings.input_or.rows_or, int):
            return embeddings.input_rows.value
        expected = embeddings.expected_input
    except FactMissing:
        return None
    return expected.value if expected.terms else None


def _plans(
    run: Engine, files: Sequence[str], options: DataOptions, measure: Measure, problems: list[Unreadable]
) -> Iterator[Unit]:
    """The units of all files, in the order of the files."""
    groups = [files[first : first + _PLANNED] for first in range(0, len(files), _PLANNED)]
    planned: dict[str, list[Unit]] = {}
    work = partial(plan_files, dtype=options.dtype, required_rows=measure.bins)
    for group, result in spread(run, work, groups):
        if isinstance(result, Lost):
            problems.append(_lost(group[0], result))
            continue
        units, failed = result
        planned.update(units)
        problems += failed
    for file in files:
        yield from planned.get(file, [])


def plan_files(
    files: Sequence[str], *, dtype: str | None, required_rows: int
) -> tuple[dict[str, list[Unit]], list[Unreadable]]:
    """The units of each file. Raises UsageError where a package is missing."""
    planned: dict[str, list[Unit]] = {}
    problems: list[Unreadable] = []
    for file in files:
        try:
            planned[file] = plan(file, dtype, required_rows, UNIT_BYTES)
        except Unreadable as error:
            problems.append(error)
        except UsageError as error:
            problems.append(Unreadable("no-package", file, error.message, hint=error.hint))
    return planned, problems


def count(
    run: Engine,
    units: Sequence[Unit],
    measure: Measure,
    options: DataOptions,
    problems: list[Unreadable],
) -> DataStatistics:
    """The statistics of all units together; what cannot be read is added to the problems."""
    total = sum(unit.nbytes for unit in units)
    groups = list(grouped(units, min(MOST_BYTES, max(LEAST_BYTES, total // (SHARES * run.width)))))
    options.progress.start(total)
    parts: list[DataStatistics] = []
    for group, found in spread(run, partial(count_units, measure=measure), groups):
        options.progress.advance(sum(unit.nbytes for unit in group))
        if isinstance(found, Lost):
            problems.append(_lost(group[0].column.file, found))
            continue
        problems += found.problems
        parts.append(found.statistics)
        if len(parts) * measure.bins * 8 >= _WAITING_BYTES:
            parts = [merged(parts, measure.bins)]
    return merged(parts, measure.bins)


def count_units(units: Sequence[Unit], *, measure: Measure) -> Found:
    """Count some units one after the other. What cannot be read of one leaves the others as they are."""
    import torch

    torch.set_num_threads(1)  # the work is spread over processes
    tally = Tally(measure)
    problems: list[Unreadable] = []
    for unit in units:
        try:
            tally.take(unit)
        except Unreadable as error:
            problems.append(error)
    return Found(tally.result(), tuple(problems))


def grouped(units: Iterable[Unit], nbytes: int) -> Iterator[list[Unit]]:
    """Neighbours together, up to so many bytes."""
    group: list[Unit] = []
    size = 0
    for unit in units:
        if group and (size + unit.nbytes > nbytes or len(group) >= MOST_UNITS):
            yield group
            group, size = [], 0
        group.append(unit)
        size += unit.nbytes
    if group:
        yield group


def _no_ids(file: str) -> Unreadable:
    return Unreadable(
        "no-data", file, "no ids in it, nor in any other file", hint="what wrote it stopped early"
    )


def _lost(file: str, lost: Lost) -> Unreadable:
    return Unreadable("no-result", file, lost.reason, hint="is the file damaged, or are its rows huge?")


def _texts(
    process: TokenizerProcess | Missing, samples: Sequence[Sample]
) -> tuple[DecodedSample, ...] | Missing:
    if isinstance(process, Missing):
        return process
    try:
        texts = process.decode([sample.ids for sample in samples])
    except TokenizerFailure as failure:
        return Missing(f"the tokenizers library failed: {failure.message}")
    return tuple(map(DecodedSample, samples, texts))
