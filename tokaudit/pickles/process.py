"""The isolated process that reads the shapes in a pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tokaudit.errors import Unreadable
from tokaudit.isolation.failures import Kind, ProcessFailure, one_line
from tokaudit.isolation.process import IsolatedProcess, Limits, Spawned, patience, spawn
from tokaudit.sources import OpenFile

_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
_LIMITS = Limits(load_seconds=30.0, cpu_seconds=30)
_OPENINGS: dict[Kind, str] = {
    "rejected": "it cannot be read without running it",
    "panicked": "reading it failed",
    "aborted": "reading it ends the process that does",
    "timeout": "reading it takes too long",
    "memory": "reading it takes too much memory",
    "died": "the process that reads it failed",
}


@dataclass(frozen=True, slots=True)
class Shapes:
    """``layout`` is "torch", "distributed checkpoint", "DeepSpeed", or "" for no state of an optimizer.

    ``instead`` says what a file without one holds, where that is known: "the state of a scheduler" ...
    ``parameters`` are pairs: the parameter's name (a number where the file has none), and the shapes of what
    is kept of it.
    """

    layout: str
    parameters: tuple[tuple[str | int, Mapping[str, tuple[int, ...]]], ...]
    instead: str = ""


def read_shapes(file: OpenFile) -> Shapes:
    """The shapes in an opened file.

    Raises Unreadable: "pickle-rejected", "pickle-memory", "pickle-timeout" ..., or "no-process".
    """
    limits = _LIMITS.times(patience())
    try:
        spawned = spawn(_WORKER, file.fileno(), limits)
    except OSError as error:
        raise Unreadable(
            "no-process",
            file.name,
            f"no process can be started to read it: {error.strerror}",
            hint="pickles are read apart: is the limit on processes or memory reached?",
        ) from error
    with _Reading(spawned, limits) as process:
        try:
            return process.shapes()
        except ProcessFailure as failure:
            hint = "leave --optimizer out, or save the state again with torch.save"
            raise Unreadable(f"pickle-{failure.kind}", file.name, failure.message, hint=hint) from failure


class _Reading(IsolatedProcess):
    def __init__(self, spawned: Spawned, limits: Limits) -> None:
        super().__init__(
            spawned, limits, lambda kind, cause: ProcessFailure(one_line(_OPENINGS[kind], cause), kind)
        )

    def shapes(self) -> Shapes:
        return self._first(_shapes)


def _shapes(answer: object) -> Shapes:
    match answer:
        case {"layout": str(layout), "parameters": list(parameters), "instead": str(instead)}:
            found = tuple((_name(name), _tensors(kept)) for name, kept in parameters)
            return Shapes(layout, found, instead)
    raise TypeError


def _name(name: object) -> str | int:
    if isinstance(name, (str, int)):
        return name
    raise TypeError


def _tensors(kept: object) -> Mapping[str, tuple[int, ...]]:
    if not isinstance(kept, dict):
        raise TypeError
    return {name: tuple(map(int, shape)) for name, shape in kept.items()}
