"""The audit as a callback of Lightning (extra `lightning`)."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback
from torch import nn

from tokaudit.training.callbacks.watcher import Watched, Watcher, Watching


class TokauditLightningCallback(Watched, Callback):  # type: ignore[misc]
    """Watches a run of Lightning's Trainer.

        trainer = Trainer(callbacks=[TokauditLightningCallback("model", stop_on="error")])

    ``model`` is the name of the LightningModule's attribute that holds the model with the two tables; without
    it that is the one child that has ``get_input_embeddings``, or else the LightningModule itself. Batches
    are seen as ``training_step`` gets them; ``as_mapping`` reads those that are no mapping.

    Findings go to the logger "tokaudit.training", numbers to the loggers of the Trainer. With ``stop_on``,
    findings about module and batches raise RunStopped before the step that would meet them; findings of the
    ledger end the fit after the step, as ``trainer.should_stop`` does.

    The other keywords are those of `Watching`.
    """

    def __init__(self, model: str = "", **watching: Any) -> None:
        super().__init__()
        self._name = model
        self._watching = Watching(**watching)
        self._watcher = Watcher(self._watching)

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        self._watcher = Watcher(self._watching)
        self._watcher.begin(self._model(pl_module), list(trainer.optimizers))

    def on_train_batch_start(self, trainer: Any, pl_module: nn.Module, batch: Any, batch_idx: int) -> None:
        self._watcher.batch(batch)

    def on_train_batch_end(
        self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._watcher.between() is not None:
            trainer.should_stop = True
        news = self._watcher.news()
        if news:
            self.log_dict(news, on_step=True, on_epoch=False, batch_size=1)

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        self._watcher.end()
        self._watcher.abandon()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        self._watcher.abandon()

    def _model(self, pl_module: nn.Module) -> nn.Module:
        if self._name:
            return pl_module.get_submodule(self._name)
        found = [child for child in pl_module.children() if hasattr(child, "get_input_embeddings")]
        return found[0] if len(found) == 1 else pl_module
