"""A path -> its lock."""

from __future__ import annotations

import os

from tokaudit.contract import Checkpoint, Contract, Lock, Options, Vocabulary, present
from tokaudit.errors import FactMissing, TokauditError
from tokaudit.load import load

Path = str | os.PathLike[str]


def lock(path: Path, *, tokenizer: Path | None = None, deep: bool = False, read_weights: bool = True) -> Lock:
    """The lock of a model directory, or of one side of it; with ``deep`` also digests of its tables' bytes.

    Raises Unreadable and TokauditError for a model of which a part cannot be read: half a lock would pass
    for a whole one.
    """
    return lockable(path, tokenizer=tokenizer, deep=deep, read_weights=read_weights).snapshot


def lockable(
    path: Path, *, tokenizer: Path | None = None, deep: bool = False, read_weights: bool = True
) -> Contract:
    """The contract, with a snapshot that may be written. Raises as ``lock`` does."""
    options = Options(read_weights=read_weights, deep=deep, snapshot=True)
    contract = load(path, tokenizer=tokenizer, options=options)
    for error in contract.unreadable:
        raise error
    problem = contract.tokenizer_error
    if problem is not None:
        raise _cannot(f"{problem.at.file}: {problem.value}")
    try:
        if isinstance(contract.checkpoint_or, Checkpoint):
            contract.whole_checkpoint  # noqa: B018  (raises where a file is missing)
        if isinstance(contract.vocabulary_or, Vocabulary) and contract.snapshot.parts is not None:
            present(contract.vocabulary.loaded.probes)
    except FactMissing as missing:
        raise _cannot(missing.reason) from None
    return contract


def _cannot(reason: str) -> TokauditError:
    return TokauditError(f"the model cannot be locked: {reason}", hint="`tokaudit check` says more")
