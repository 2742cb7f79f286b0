"""Two paths -> a Diff: both sides are read side by side, compared, and judged for a use."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from tokaudit.contract import Contract, Lock, Options, present
from tokaudit.diffs.comparison import TITLES, Comparison, holds
from tokaudit.diffs.difference import Side
from tokaudit.diffs.mapping import mapping_diff
from tokaudit.diffs.pipeline import pipeline_differences
from tokaudit.diffs.probes import probes_diff
from tokaudit.diffs.rows import RowsDiff, rows_diffs
from tokaudit.diffs.special import special_differences, template_differences
from tokaudit.diffs.tables import table_differences
from tokaudit.diffs.uses import Use, judge
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.load import Opening
from tokaudit.locks import read

Path = str | os.PathLike[str]


class Answer(enum.Enum):
    """Whether both sides are the same for the use."""

    SAME = "same"
    DIFFERS = "differs"
    NO_VERDICT = "no-verdict"


@dataclass(frozen=True)
class Diff:
    """What differs between two sides, and what it means for a use.

    ``reasons`` speak against the use; ``remarks`` are worth knowing. With ``undecided`` (what could not be
    compared and the use rests on) or ``unreadable`` parts there may be no verdict.
    """

    use: Use
    comparison: Comparison
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    undecided: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def answer(self) -> Answer:
        if self.unreadable:
            return Answer.NO_VERDICT
        if self.reasons:
            return Answer.DIFFERS
        return Answer.NO_VERDICT if self.undecided else Answer.SAME


def diff(
    left: Path, right: Path, *, use: Use = Use.DROP_IN, deep: bool = False, read_weights: bool = True
) -> Diff:
    """Compare two model directories, two locks, or one of each.

    Raises Unreadable where a side cannot be read at all.
    """
    one, other = _sides((left, right), deep=deep, read_weights=read_weights)
    found = compare(one, other, deep=deep)
    judgement = judge(use, found)
    return Diff(
        use=use,
        comparison=found,
        reasons=judgement.reasons,
        remarks=judgement.remarks,
        undecided=tuple(
            f"{TITLES[group]} not compared, {found.not_compared[group]}"
            for group in judgement.needs
            if group in found.not_compared
        ),
        unreadable=tuple(error for side in (one, other) for error in _unreadable(side)),
    )


def compare(left: Side, right: Side, *, deep: bool = False) -> Comparison:
    """Everything that differs between two sides that were read."""
    mapping = mapping_diff(left, right)
    changed = mapping.contents if mapping is not None else frozenset()
    not_compared = dict(_not_compared(left, right))
    rows: tuple[RowsDiff, ...] = ()
    if deep:
        try:
            rows = rows_diffs(left, right)
        except FactMissing as missing:
            if not (left.lock.contents and right.lock.contents):
                not_compared["rows"] = missing.reason
    return Comparison(
        left=left,
        right=right,
        mapping=mapping,
        pipeline=tuple(pipeline_differences(left, right, changed)),
        templates=tuple(template_differences(left, right)),
        special=tuple(special_differences(left, right)),
        tables=tuple(table_differences(left, right)),
        probes=probes_diff(left, right),
        rows=rows,
        not_compared=not_compared,
    )


def _sides(paths: tuple[Path, Path], *, deep: bool, read_weights: bool) -> list[Side]:
    """Both sides; the tokenizers of two directories are loaded at the same time.

    A directory beside a lock is asked the lock's probes.
    """
    for path in paths:
        if not os.path.exists(path):
            raise Unreadable("no-such-path", "", f"there is no such directory or lock: {path}")
    with ExitStack() as stack:
        locks = [None if os.path.isdir(path) else read.read(path) for path in paths]
        held = next((lock for lock in locks if lock is not None), None)
        digests = deep and held is not None
        options = Options(read_weights=read_weights, deep=digests, lock=held, snapshot=True)
        opened = [
            stack.enter_context(Opening(path)) if lock is None else lock
            for path, lock in zip(paths, locks, strict=True)
        ]
        return [_side(one, options) for one in opened]


def _side(opened: Opening | Lock, options: Options) -> Side:
    if isinstance(opened, Lock):
        return Side(opened)
    contract = opened.contract(options)
    return Side(contract.snapshot, contract, opened.model)


def _not_compared(left: Side, right: Side) -> Iterator[tuple[str, str]]:
    """(group, reason) for what one side lacks, or both."""
    for group in _ASK:
        for side in (left, right):
            if not holds(side, group):
                yield group, f"{side.name}: {_why_missing(side, group)}"
                break


# Asking the contract for the fact of a group that is missing says why it is.
_ASK: Mapping[str, Callable[[Contract], object]] = {
    "mapping": lambda contract: contract.vocabulary.effective,
    "pipeline": lambda contract: contract.vocabulary.pipeline,
    "tables": lambda contract: contract.whole_checkpoint,
    "probes": lambda contract: present(contract.vocabulary.loaded.probes),
}


def _why_missing(side: Side, group: str) -> str:
    if side.contract is None:
        return f"the lock holds no {TITLES[group]}"
    try:
        _ASK[group](side.contract)
    except FactMissing as missing:
        return missing.reason
    return "it is not known"


def _unreadable(side: Side) -> tuple[Unreadable, ...]:
    return side.contract.damage if side.contract is not None else ()
