from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed

if TYPE_CHECKING:
    from tokaudit.contract.module import Held, OptimizerFacts


class OptimizerMissesParameter(Rule):
    """The optimizer does not hold the parameter of a table exactly once, and as it is.

    ## What it finds

    A trained table that no group holds, one that is held more than once, and a parameter that is no longer
    the model's, with the width of a table, that a group still holds; and moments of another shape than the
    table, which was resized in place. Tables that are not trained need not be held. Give every optimizer of
    the run, as a list, where there are several.

    ## Why it matters

    The optimizer keeps the parameters that it was made with. A table that is tied, resized or replaced
    afterwards is another parameter: gradients reach it and nothing is updated, without an error. One that is
    held twice is moved twice in each step. Where the live tables are held and a stale one besides, the run
    itself is right; its saved state fits no optimizer that is made of the model as it is, so resuming fails.

    ## How to fix it

    Make the optimizer after the model is complete: after `tie_weights`, `resize_token_embeddings`, wrapping
    and moving.
    """

    code = "TA912"
    severity = Severity.ERROR
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module, optimizer = contract.module, contract.module.optimizer
        missing = [held for held in optimizer.held if held.trained and not held.places]
        if missing:
            yield self._missing(optimizer, missing)
        elif optimizer.stale:
            yield self._stale(optimizer)
        for held in optimizer.held:
            if len(held.places) > 1:
                yield self._repeated(held.name, held.places)
            if held.moments is not None and held.moments != held.shape:
                yield self._outgrown(held, held.moments)
        held_twice = [held for held in optimizer.held if held.places]
        if module.tied and module.tie.parameters > 1 and len(held_twice) > 1:
            places = [place for held in held_twice for place in held.places]
            yield self._repeated(f"the storage of {module.input.name}", places)

    def _missing(self, optimizer: OptimizerFacts, missing: Sequence[Held]) -> Finding:
        names = [held.name for held in missing]
        stale = [group(old.at) for old in optimizer.stale]
        instead = f"; {listed(list(dict.fromkeys(stale)))} holds an old one instead" if stale else ""
        kinds = listed(optimizer.names)
        return self.finding(
            f"{kinds} does not hold {listed(names)}{instead}",
            [
                *(
                    Claim(Location("module", tensor=name), f"trained, and in no group of {kinds}")
                    for name in names
                ),
                *_old(optimizer),
            ],
            why="its gradients are computed and dropped: the table stays as it is, without an error",
            fix="make the optimizer after the tables are tied, resized and wrapped; "
            "freeze a table that is not to be trained, and give every optimizer of the run",
            subject=names[0],
        )

    def _stale(self, optimizer: OptimizerFacts) -> Finding:
        places = list(dict.fromkeys(group(old.at) for old in optimizer.stale))
        return self.finding(
            f"{listed(places)} holds a table that is no longer the model's",
            _old(optimizer),
            why="it gets no gradient, and resuming fails: the saved state fits no optimizer of this model",
            fix="make the optimizer after the tables are tied, resized and wrapped",
            subject="stale",
        )

    def _outgrown(self, held: Held, moments: tuple[int, ...]) -> Finding:
        return self.finding(
            f"{held.name} is {list(held.shape)}, and the optimizer's moments of it are {list(moments)}",
            [
                Claim(Location("module", tensor=held.name), str(list(held.shape))),
                *(Claim(place, f"moments {list(moments)}") for place in held.places),
            ],
            why="the table was resized after a step: the next one raises an error",
            fix="make the optimizer anew after resizing, or resize its moments with the table",
            subject=f"{held.name} moments",
        )

    def _repeated(self, name: str, places: Sequence[Location]) -> Finding:
        return self.finding(
            f"{name} is held {len(places)} times: in {listed([group(place) for place in places])}",
            [Claim(place, name) for place in places],
            why="each step moves it once for every time",
            fix="leave it in one group",
            subject=name,
        )


def _old(optimizer: OptimizerFacts) -> list[Claim]:
    return [
        Claim(old.at, f"a parameter {list(old.shape)} that is none of the model's") for old in optimizer.stale
    ]


def group(at: Location) -> str:
    """``group 1``; of several optimizers also which."""
    number = at.pointer.split("/")[2]
    return f"group {number}" if at.file == "optimizer" else f"group {number} of {at.file}"
