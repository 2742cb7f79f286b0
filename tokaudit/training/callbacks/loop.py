"""`watch`: the audit in a loop that is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from torch import nn

from tokaudit.training.callbacks.watcher import Watched, Watcher, Watching

B = TypeVar("B")


class Watch(Watched, Generic[B]):
    """The batches of a loop, watched as they pass."""

    def __init__(
        self, model: nn.Module, batches: Iterable[B], optimizer: Any, tokenizer: Any, watching: Watching
    ) -> None:
        self._model = model
        self._given = batches
        self._optimizer = optimizer
        self._tokenizer = tokenizer
        self._watcher = Watcher(watching)
        self._begun = False

    def __iter__(self) -> Iterator[B]:
        watcher = self._watcher
        if not self._begun:
            self._begun = True
            watcher.begin(self._model, self._optimizer, self._tokenizer)
        done = False
        try:
            for batch in self._given:
                watcher.batch(batch)
                yield batch
                stopping = watcher.between()
                if stopping is not None:
                    raise watcher.stopped(stopping)
            done = True
        finally:
            stopping = watcher.end()
        if done and stopping is not None:
            raise watcher.stopped(stopping)


def watch(
    model: nn.Module,
    batches: Iterable[B],
    optimizer: Any = None,
    tokenizer: Any = None,
    **watching: Any,
) -> Watch[B]:
    """Watch a training loop: iterate over ``watch(...)`` in the place of the batches.

        for batch in watch(model, loader, optimizer, tokenizer, stop_on="error"):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    Before the first batch the module is audited, then each of the ``first_batches`` before it is handed out,
    and a ledger is kept of a ``window`` of steps of the (first) optimizer; it ends with the loop over the
    batches at the latest. Findings go to the logger "tokaudit.training" and into ``reports``. The keywords
    are those of `Watching`; RunStopped is raised where ``stop_on`` says so, the one for the ledger between
    two batches.
    """
    return Watch(model, batches, optimizer, tokenizer, Watching(**watching))
