"""What is known of a model in memory: its tables, how they are tied, what holds their parameters.

Locations in it have the file "module" (with the name of a tensor) or "optimizer" (with a JSON Pointer).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tokaudit.contract.facts import Fact, Missing, present
from tokaudit.findings import Claim, Location

NO_OUTPUT_MODULE = Missing("the module has no output embeddings")
NO_OPTIMIZER = Missing("no optimizer was given")


class TiedBy(enum.Enum):
    """What makes two tables one."""

    PARAMETER = "one parameter"
    STORAGE = "one storage"  # a view, or two parameters over the same memory
    PARAMETRIZATION = "one parameter under a parametrization"


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table in memory. ``name`` is the tensor that it would be saved as.

    ``trained`` tells whether a gradient reaches it, ``adapter`` is the PEFT wrapper around it ("" for none).
    """

    name: str
    rows: int
    trained: bool
    adapter: str = ""

    @property
    def at(self) -> Location:
        return Location("module", tensor=self.name)

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """The options of ``nn.Embedding``; ``padding_index`` counts from the front, as the module keeps it."""

    padding_index: int | None = None
    max_norm: float | None = None
    scale_by_frequency: bool = False
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class LiveTie:
    """Whether the two tables are one in memory.

    ``by`` compares identity and memory (None for two tables). ``asked_or`` is what class and configuration
    ask for, where they say it. ``equal_or`` tells whether two tables hold the same values. ``parameters``
    counts the parameters that hold them: two over one storage get a gradient and an update each.
    """

    by: TiedBy | None
    asked_or: Fact[bool] | Missing
    equal_or: bool | Missing
    parameters: int

    @property
    def over_one_storage(self) -> bool:
        return self.by is TiedBy.STORAGE

    @property
    def asked(self) -> Fact[bool]:
        return present(self.asked_or)

    @property
    def equal(self) -> bool:
        return present(self.equal_or)


@dataclass(frozen=True, slots=True)
class Held:
    """A parameter of a table, and where an optimizer holds it: one place for each time.

    ``moments`` is the shape of what the optimizer keeps for it; None before the first step.
    """

    name: str
    trained: bool
    places: tuple[Location, ...]
    shape: tuple[int, ...]
    moments: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """A parameter that an optimizer holds and that is none of the model's, with the width of a table."""

    shape: tuple[int, ...]
    at: Location


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """What the optimizers hold of the tables.

    ``names`` are their classes. ``refuses_sparse`` and ``refuses_dense`` are the classes, of those that hold
    the input table, that raise an error on such a gradient.
    """

    names: tuple[str, ...]
    held: tuple[Held, ...]
    stale: tuple[Stale, ...]
    refuses_sparse: tuple[str, ...] = ()
    refuses_dense: tuple[str, ...] = ()


class DeviationKind(enum.Enum):
    SCALED = "scaled"
    CAPPED = "capped"
    HOOKED = "hooked"
    ADAPTED = "adapted"
    PACKED = "packed"
    ABSENT = "absent"
    OF_ITS_CLASS = "of its class"  # nothing simpler, by a class of transformers
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a module does beside the plain lookup or projection, in words that follow its name."""

    kind: DeviationKind
    words: str
    at: Location

    @property
    def explained(self) -> bool:
        return self.kind is not DeviationKind.UNEXPLAINED


@dataclass(frozen=True, slots=True)
class Probed:
    """What a module was seen to do; no deviation means the plain thing.

    ``unanswered`` says why it could not be called ("" where it was, or where a deviation says it).
    """

    deviations: tuple[Deviation, ...]
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class LiveModule:
    """A model in memory. ``parameter_count`` counts a tied table once, ``untied_count`` twice."""

    input: LiveTable
    output_or: LiveTable | Missing
    options: LookupOptions
    tie_or: LiveTie | Missing
    parameter_count: int
    untied_count: int
    lookup: Probed
    projection_or: Probed | Missing
    optimizer_or: OptimizerFacts | Missing

    @property
    def output(self) -> LiveTable:
        return present(self.output_or)

    @property
    def tie(self) -> LiveTie:
        return present(self.tie_or)

    @property
    def tied(self) -> bool:
        return isinstance(self.tie_or, LiveTie) and self.tie_or.by is not None

    @property
    def optimizer(self) -> OptimizerFacts:
        return present(self.optimizer_or)

    @property
    def projection(self) -> Probed:
        return present(self.projection_or)
