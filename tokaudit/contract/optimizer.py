"""The state of an optimizer, as far as it tells shapes: which parameter has moments of which shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokaudit.contract.facts import Missing
from tokaudit.findings import Claim, Location

NO_OPTIMIZER = Missing("no --optimizer was given")

# Adafactor keeps a mean for each row and one for each column: of transformers, and of torch.
FACTORS = (("exp_avg_sq_row", "exp_avg_sq_col"), ("row_var", "col_var"))

Shape = tuple[int, ...]


def has_shape(tensors: Mapping[str, Shape], shape: Shape) -> bool:
    """Whether the tensors that an optimizer keeps of one parameter are those of a parameter of that shape."""
    factored = _factored(tensors)
    return shape in tensors.values() if factored is None else factored == shape


def parameter_shape(tensors: Mapping[str, Shape]) -> Shape:
    """The shape of the parameter that these tensors are kept of; () where they do not tell."""
    factored = _factored(tensors)
    return max(tensors.values(), key=_count, default=()) if factored is None else factored


def _factored(tensors: Mapping[str, Shape]) -> Shape | None:
    """The shape that row and column means are of; None for an optimizer that keeps none."""
    for names in FACTORS:
        if all(name in tensors for name in names):
            rows, columns = (_count(tensors[name]) for name in names)
            return rows, columns
    return None


def _count(shape: Shape) -> int:
    elements = 1
    for length in shape:
        elements *= length
    return elements


@dataclass(frozen=True, slots=True)
class Moments:
    """What the optimizer keeps of one parameter.

    ``name`` is the parameter's name, or its number where the file has no names (``named`` is False then).
    ``tensors`` are the shapes of what is kept, by the optimizer's names ("exp_avg").
    """

    name: str
    named: bool
    tensors: Mapping[str, Shape]
    at: Location

    @property
    def shape(self) -> Shape:
        return parameter_shape(self.tensors)

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """``layout`` says whose file it is: "torch", "distributed checkpoint" or "DeepSpeed"."""

    at: Location
    layout: str
    parameters: tuple[Moments, ...]
