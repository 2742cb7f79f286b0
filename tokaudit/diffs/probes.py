"""Probe texts that encode differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tokaudit.diffs.difference import Side
from tokaudit.text import shown

REFUSED = "the library refuses the text"
END = "the end"


@dataclass(frozen=True, slots=True)
class ProbeDiff:
    """A text whose encodings differ; ``first`` is the place of the first token that does.

    ``left`` and ``right`` say what stands there.
    """

    text: str
    first: int
    left: str
    right: str

    def __str__(self) -> str:
        return f"{shown(self.text)}, token {self.first}: {self.left} -> {self.right}"


@dataclass(frozen=True, slots=True)
class ProbesDiff:
    """``compared`` counts the texts that both sides were asked."""

    compared: int
    different: tuple[ProbeDiff, ...] = ()


def probes_diff(left: Side, right: Side) -> ProbesDiff | None:
    """None where a side was not asked."""
    if left.lock.probes is None or right.lock.probes is None:
        return None
    others = {probe.text: probe.ids for probe in right.lock.probes}
    both = [(p.text, p.ids, others[p.text]) for p in left.lock.probes if p.text in others]
    different = [_first(text, left, one, right, other) for text, one, other in both if one != other]
    return ProbesDiff(len(both), tuple(different))


def _first(
    text: str, left: Side, one: Sequence[int] | None, right: Side, other: Sequence[int] | None
) -> ProbeDiff:
    if one is None or other is None:
        words = [REFUSED if ids is None else f"{len(ids)} tokens" for ids in (one, other)]
        return ProbeDiff(text, 0, *words)
    first, (a, b) = next((i, pair) for i, pair in enumerate(zip_longest(one, other)) if pair[0] != pair[1])
    return ProbeDiff(text, first, END if a is None else left.named(a), END if b is None else right.named(b))
