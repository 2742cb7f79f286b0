"""The audit as a callback of the Trainer of transformers."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from tokaudit.training.callbacks.watcher import Watched, Watcher, Watching, compiling


class TokauditCallback(Watched, TrainerCallback):  # type: ignore[misc]
    """Watches a run of the Trainer.

        trainer = Trainer(model, args, train_dataset=data, callbacks=[TokauditCallback(stop_on="error")])

    A callback of the Trainer is not given the batches. They are seen where they arrive: a hook before the
    model's forward takes its arguments, in training mode only, and goes once enough batches were audited.
    Where the Trainer keeps the labels to itself (label smoothing, a loss function of one's own), the rules
    about labels are skipped.

    Findings go to the logger "tokaudit.training"; numbers are added to the next line that the Trainer logs.
    With ``stop_on``, findings about module and batches raise RunStopped before the step that would meet them;
    findings of the ledger end the training after the step, as ``control.should_training_stop`` does.

    The keywords are those of `Watching`. The tokenizer is the Trainer's where none is given.
    """

    def __init__(self, **watching: Any) -> None:
        self._watching = Watching(**watching)
        self._watcher = Watcher(self._watching)
        self._hook: torch.utils.hooks.RemovableHandle | None = None

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        *,
        model: nn.Module,
        optimizer: Any = None,
        processing_class: Any = None,
        **_: Any,
    ) -> None:
        self._leave()  # a run before this one, that failed
        self._watcher = Watcher(self._watching)
        tokenizer = getattr(processing_class, "tokenizer", processing_class)  # of a processor
        self._watcher.begin(model, optimizer, tokenizer)
        if self._watcher.wants_batches:
            arrives = self._arrives
            if compiling():
                arrives = torch.compiler.disable(arrives)  # type: ignore[no-untyped-call]
            self._hook = model.register_forward_pre_hook(arrives, with_kwargs=True)

    def _arrives(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not model.training:
            return
        named = inspect.signature(model.forward).bind_partial(*args).arguments if args else {}
        try:
            self._watcher.batch({**named, **kwargs})
        except BaseException:
            self._unhook()
            raise

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._watcher.wants_batches:
            self._unhook()
        if self._watcher.between() is not None:
            control.should_training_stop = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        news = self._watcher.news()
        if logs is not None:
            logs.update(news)
        if state.log_history:
            state.log_history[-1].update(news)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._watcher.end()
        self._leave()

    def _leave(self) -> None:
        self._unhook()
        self._watcher.abandon()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
