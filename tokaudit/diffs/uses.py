"""What a diff means for a use: whether one side will do for the other, and why not."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokaudit.diffs import merge, speculative
from tokaudit.diffs.comparison import Comparison, holds
from tokaudit.errors import UsageError


class Use(enum.Enum):
    """``DROP_IN``: the right side in the place of the left one.

    ``SPECULATIVE``: the right side drafts for the left one. ``MERGE``: both are parents of one model.
    """

    DROP_IN = "drop-in"
    SPECULATIVE = "speculative"
    MERGE = "merge"


def use_named(name: str) -> Use:
    """Raises UsageError where no use has that name."""
    for use in Use:
        if use.value == name:
            return use
    raise UsageError(f"--for must be drop-in, speculative or merge, not {name!r}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """``reasons`` speak against the use, ``remarks`` are worth knowing.

    ``needs`` are the groups without which there is no verdict.
    """

    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    needs: tuple[str, ...]


def judge(use: Use, found: Comparison) -> Judgement:
    reasons, remarks, needs = _JUDGES[use](found)
    return Judgement(tuple(reasons), tuple(remarks), needs)


Judged = tuple[list[str], list[str], tuple[str, ...]]


def _drop_in(found: Comparison) -> Judged:
    """Whatever changes an encoding, an id or a row counts. Two tokenizers, or two checkpoints, will do."""
    reasons = [*found.mapping_words(), *found.words("pipeline", "templates", "special", "tables")]
    reasons += [*map(str, found.different_rows), *found.probe_words()]
    groups = ("mapping", "pipeline", "tables", "probes")
    stated = tuple(group for group in groups if holds(found.left, group) or holds(found.right, group))
    return reasons, [], stated or groups


_JUDGES: Mapping[Use, Callable[[Comparison], Judged]] = {
    Use.DROP_IN: _drop_in,
    Use.SPECULATIVE: lambda found: (speculative.reasons(found), speculative.remarks(found), ("mapping",)),
    Use.MERGE: lambda found: (merge.reasons(found), merge.remarks(found), ("mapping", "tables")),
}
