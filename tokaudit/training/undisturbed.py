"""Calls a module and leaves it, and everything around it, as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


def hooks_of(module: nn.Module) -> list[str]:
    """The names of the forward hooks of one module, but for tokaudit's and those of torch's own wrappers."""
    return _named(hook for name in _HOOKS for hook in getattr(module, name).values())


def gradient_hooks_of(weight: torch.Tensor) -> list[str]:
    """The names of the hooks on a tensor's gradient, but for the same."""
    return _named((weight._backward_hooks or {}).values())


def _named(hooks: Iterable[Callable[..., object]]) -> list[str]:
    ours = ("tokaudit.", "torch.distributed.")
    plain = map(_plain, hooks)
    return [_name(hook) for hook in plain if not str(getattr(hook, "__module__", "")).startswith(ours)]


def _name(hook: Callable[..., object]) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__)).replace("<locals>.", "")


def _plain(hook: Callable[..., object]) -> Callable[..., object]:
    while (inner := getattr(hook, "func", None)) is not None:  # functools.partial
        hook = inner
    return hook
