"""Wrappers around a model, around one of its modules or around an optimizer, taken off.

DistributedDataParallel, FSDP and torch.compile wrap modules; PEFT wraps the model and replaces the modules
that it trains by wrappers of its own. accelerate and Lightning wrap optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn

_TRANSPARENT = ("_fsdp_wrapped_module", "_orig_mod")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without the wrappers of distribution, compilation and PEFT."""
    return _innermost(model, _inner_model)


def _innermost(module: nn.Module, within: Callable[[nn.Module], nn.Module | None]) -> nn.Module:
    while (inner := within(module)) is not None:
        module = inner
    return module


def _inner_model(model: nn.Module) -> nn.Module | None:
    inner = _transparent(model)
    if inner is not None:
        return inner
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        return cast(nn.Module, model.module)
    if callable(base := getattr(model, "get_base_model", None)):  # PEFT
        found = base()
        return found if isinstance(found, nn.Module) and found is not model else None
    return None


def _transparent(module: nn.Module) -> nn.Module | None:
    """The module behind a wrapper that only passes the call on."""
    children = dict(module.named_children())
    return next((children[name] for name in _TRANSPARENT if name in children), None)


def callee(module: nn.Module) -> nn.Module:
    """The module without what only passes the call on; the wrappers of PEFT stay."""
    return _innermost(module, _transparent)


def core(module: nn.Module) -> nn.Module:
    """The module that holds the table which ``module`` uses now, below the wrappers of torch and of PEFT.

    Of ``modules_to_save`` that is the active adapter's copy, of LoRA and of trainable tokens the base layer.
    """
    return _innermost(module, _inner_layer)


def layers(module: nn.Module) -> Iterator[nn.Module]:
    """The module and what it wraps, down to `core`."""
    yield module
    while (inner := _inner_layer(module)) is not None:
        module = inner
        yield module


def _inner_layer(module: nn.Module) -> nn.Module | None:
    inner = _transparent(module)
    if inner is not None:
        return inner
    children = dict(module.named_children())
    copies = children.get("modules_to_save")
    if isinstance(copies, nn.ModuleDict) and not getattr(module, "disable_adapters", False):
        for name in _active(module):
            if name in copies:
                return copies[name]
    for name in ("base_layer", "original_module"):
        if name in children:
            return children[name]
    return None


def _active(wrapper: nn.Module) -> list[str]:
    names = getattr(wrapper, "active_adapters", None) or getattr(wrapper, "active_adapter", None) or []
    return [names] if isinstance(names, str) else list(names)


def text_config(model: nn.Module) -> object:
    """The part of a model's configuration (of transformers) that is about text; None without one."""
    config = getattr(model, "config", None)
    part = getattr(config, "get_text_config", None)
    return part() if callable(part) else config


def bare_optimizer(optimizer: Any) -> Any:
    """The optimizer that steps, of torch or of a kind of its own."""
    for name in ("optimizer", "_optimizer"):
        inner = getattr(optimizer, name, None)
        if hasattr(inner, "param_groups"):
            return bare_optimizer(inner)
    return optimizer


def readable(tensor: torch.Tensor) -> bool:
    """Whether this process has every row of a table.

    FSDP leaves one flat dimension, a distributed tensor, or a view of memory that it has freed, which must
    not be read; the meta device has no values at all.
    """
    if tensor.is_meta or tensor.dim() != 2 or tensor.numel() == 0 or hasattr(tensor, "_local_tensor"):
        return False
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def leaves(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The parameters that a tensor is made of: itself, or what its gradient would reach."""
    if tensor.is_leaf:
        return [tensor]
    found: dict[int, torch.Tensor] = {}
    queue, seen = [tensor.grad_fn], set()
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # of AccumulateGrad, where a gradient ends
        if leaf is not None:
            found[id(leaf)] = leaf
        queue += [following for following, _ in node.next_functions]
    return list(found.values())
