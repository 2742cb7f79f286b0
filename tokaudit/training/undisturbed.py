"""Calls a module and leaves it, and everything around it, as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

MOST_KEPT = 4096  # values of a buffer that is copied: larger ones are tables, which no call changes

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")


@contextmanager
def undisturbed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Within it a call of the module neither changes nor depends on what a training run has set up.

    No gradient is recorded, autocast is off, and dropout does nothing. Hooks are set aside, so that none
    counts a call that was not the run's. The generators of the processor and of the device, the modes of the
    modules and small buffers are put back; ``max_norm`` is off, with which a lookup writes into its table.
    """
    with ExitStack() as stack:
        devices = [device] if device.type not in ("cpu", "meta") else []
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=devices, device_type=device.type))
        stack.enter_context(torch.autocast(device.type, enabled=False))
        for part in module.modules():
            _keep(stack, part)
            part.training = False
            for name in _HOOKS:
                getattr(part, name).clear()
            if isinstance(part, nn.Embedding | nn.EmbeddingBag):
                part.max_norm = None
        yield


def _keep(stack: ExitStack, module: nn.Module) -> None:
    """Put one module back when the block is left."""
    mode, norm = module.training, getattr(module, "max_norm", None)
    hooks = {name: dict(getattr(module, name)) for name in _HOOKS}
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers(recurse=False) if _is_small(buffer)]

    def restore() -> None:
        module.training = mode
        for name, kept in hooks.items():
            getattr(module, name).update(kept)
        if norm is not None:
            module.max_norm = norm
        for buffer, value in buffers:
            if not torch.equal(buffer, value):
                buffer.copy_(value)

    stack.callback(restore)


def _is_small(buffer: torch.Tensor) -> bool:
    return not buffer.is_meta and buffer.numel() <= MOST_KEPT


def hooks_of(module: nn.Module) -> list[Callable[..., object]]:
    """The forward hooks of one module that are not tokaudit's nor those of torch's own wrappers."""
    found = [hook for name in _HOOKS for hook in getattr(module, name).values()]
    ours = ("tokaudit.", "torch.distributed.")
    return [hook for hook in found if not (_module_of(hook) or "").startswith(ours)]


def name_of(hook: Callable[..., object]) -> str:
    plain = _plain(hook)
    return getattr(plain, "__qualname__", type(plain).__name__).replace("<locals>.", "")


def _module_of(hook: Callable[..., object]) -> str:
    plain = _plain(hook)
    return str(getattr(plain, "__module__", "") or "")


def _plain(hook: Callable[..., object]) -> Callable[..., object]:
    while (inner := getattr(hook, "func", None)) is not None:  # functools.partial
        hook = inner
    return hook
