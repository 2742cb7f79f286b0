"""A path -> its lock."""

from __future__ import annotations

import os

from tokaudit.contract import Contract, Lock, Options, Vocabulary, present
from tokaudit.errors import FactMissing, TokauditError
from tokaudit.load import load
from tokaudit.locks.write import digests_of

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
    if contract.damage:
        raise contract.damage[0]
    if not digests_of(contract.snapshot):
        raise _cannot("it has neither a tokenizer nor tables of token rows")
    try:
        if isinstance(contract.vocabulary_or, Vocabulary) and contract.snapshot.parts is not None:
            present(contract.vocabulary.loaded.probes)
    except FactMissing as missing:
        raise _cannot(missing.reason) from None
    return contract


def _cannot(reason: str) -> TokauditError:
    return TokauditError(f"the model cannot be locked: {reason}", hint="`tokaudit check` says more")
