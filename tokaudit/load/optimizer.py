"""The state of an optimizer on disk: which file it is, and the shapes in it.

- transformers' Trainer: ``optimizer.pt``, parameters by number; Accelerate: ``optimizer.bin``.
- torch.distributed.checkpoint: a folder with ``.metadata``; Accelerate calls it ``optimizer_0``.
- DeepSpeed: ``latest`` names a folder with ``*_model_states.pt``.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator

from tokaudit.contract import Moments, OptimizerState
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits
from tokaudit.formats.sniff import HEAD_BYTES, sniff
from tokaudit.pickles.process import read_shapes
from tokaudit.sources import OpenFile, Source, open_named, open_source

_FILES = ("optimizer.pt", "optimizer.bin", ".metadata", "optimizer_0/.metadata")
_GIVE = "give optimizer.pt, or the folder of a checkpoint"
_LATEST = "latest"  # DeepSpeed's pointer: the name of a folder
_MODEL_STATES = (
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_model_states.pt",  # stage 3
)


def read_optimizer(path: str) -> OptimizerState:
    """The shapes in a file, or in the one that a directory holds under one of the usual names.

    Raises FactMissing where nobody knows what the file holds, and Unreadable: "no-optimizer" where no such
    file is there, or where it holds something else.
    """
    if not os.path.isdir(path):
        with open_named(path) as named:
            return _read(named, path)
    source = open_source(path)
    for name in _names(source):
        try:
            file = source.open(name)
        except Unreadable as error:
            if error.code == "no-such-file":
                continue
            raise
        with file:
            return _read(file, posixpath.join(path, name))
    words = "there is no state of an optimizer that tokaudit knows"
    raise Unreadable("no-optimizer", path, words, hint=_GIVE)


def _names(source: Source) -> Iterator[str]:
    yield from _FILES
    if _LATEST in source.names():
        with source.open(_LATEST) as file:
            folder = file.read_all(limits.POINTER_BYTES).decode("utf-8", "replace").strip()
        yield from (f"{folder}/{name}" for name in _MODEL_STATES)
    yield from _MODEL_STATES


def _read(file: OpenFile, path: str) -> OptimizerState:
    sniffed = sniff(file.read(0, min(HEAD_BYTES, file.size)))
    if sniffed is not None and sniffed.lfs_pointer:
        raise Unreadable(
            "lfs-pointer", path, f"expected a file of torch, found {sniffed.words}", hint=sniffed.hint
        )
    shapes = read_shapes(file)
    if shapes.instead:
        words = f"expected an optimizer's state, found {shapes.instead}"
        raise Unreadable("no-optimizer", path, words, hint=_GIVE)
    if not shapes.layout:
        raise FactMissing(f"{path} holds no state of an optimizer that tokaudit knows")
    at = Location(path, outside=True)
    return OptimizerState(
        at,
        shapes.layout,
        tuple(
            Moments(str(name), isinstance(name, str), tensors, at.child("state", name))
            for name, tensors in shapes.parameters
            if tensors
        ),
    )
