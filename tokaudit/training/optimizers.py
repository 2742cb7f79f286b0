"""What optimizers hold of a model's tables: which parameters, where, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tokaudit.contract import Missing
from tokaudit.contract.module import NO_OPTIMIZER, Held, OptimizerFacts, Stale
from tokaudit.findings import Location
from tokaudit.training.tables import LiveTables
from tokaudit.training.unwrapping import bare_optimizer, leaves

Optimizers = Any  # one torch.optim.Optimizer, a wrapper around one, a sequence of them, or None

# Measured on torch 2.13 with two steps each; a class that is not listed takes both, or is not known.
_REFUSES_SPARSE = frozenset(
    {"Adadelta", "Adafactor", "Adam", "Adamax", "ASGD", "Muon", "NAdam", "RAdam", "RMSprop", "Rprop"}
)
_REFUSES_SPARSE_DECAYING = frozenset({"Adagrad", "SGD"})  # with a weight decay
_REFUSES_DENSE = frozenset({"SparseAdam"})


def optimizer_facts(
    optimizers: Optimizers, model: nn.Module, tables: LiveTables, names: Mapping[int, str]
) -> OptimizerFacts | Missing:
    """``names`` are those of the model's parameters, by ``id``."""
    each = list(optimizers) if isinstance(optimizers, Sequence) else [optimizers]
    each = [optimizer for optimizer in each if optimizer is not None]
    if not each:
        return NO_OPTIMIZER
    watched = list(_parameters(tables))
    if not watched:
        return Missing("the tables are no parameters of their own: FSDP keeps them in a flat one")
    places: dict[int, list[Location]] = {}
    stale: list[Stale] = []
    known = {id(parameter) for parameter in model.parameters()}
    for at, parameter in _held(each):
        places.setdefault(id(parameter), []).append(at)
        if id(parameter) not in known and _is_like(parameter, tables):
            stale.append(Stale(tuple(parameter.shape), at))
    if not stale and not known & places.keys():
        return Missing("the optimizer holds copies of its own and no parameter: master weights, or flat ones")
    bare = [bare_optimizer(one) for one in each]
    holding = [(one, group) for one in bare if (group := _group_of_input(one, tables)) is not None]
    return OptimizerFacts(
        names=tuple(map(_name, bare)),
        held=tuple(
            Held(
                name=names.get(id(one), "?"),
                trained=one.requires_grad,
                places=tuple(places.get(id(one), ())),
                shape=tuple(one.shape),
                moments=_moments(each, one),
            )
            for one in watched
        ),
        stale=tuple(stale),
        refuses_sparse=tuple(_name(one) for one, group in holding if _refuses_sparse(one, group)),
        refuses_dense=tuple(_name(one) for one, _ in holding if _is_one_of(one, _REFUSES_DENSE)),
    )


def _is_like(parameter: torch.Tensor, tables: LiveTables) -> bool:
    """Whether a parameter may have been a table; one of another dtype is a master copy."""
    same = parameter.dtype == tables.input_weight.dtype
    return same and parameter.dim() == 2 and parameter.shape[1] == tables.hidden


def _parameters(tables: LiveTables) -> Iterator[torch.Tensor]:
    """The matrices of the two modules and their tables, which FSDP may have made flat, each once."""
    tables_of = (tables.input_weight, tables.output_weight)
    seen: set[int] = set()
    for module in (tables.input_module, tables.output_module):
        for parameter in () if module is None else module.parameters():
            is_table = any(parameter is weight for weight in tables_of)
            if id(parameter) not in seen and (is_table or parameter.dim() == 2):
                seen.add(id(parameter))
                yield parameter


def _held(optimizers: Sequence[Any]) -> Iterator[tuple[Location, torch.Tensor]]:
    for number, optimizer in enumerate(optimizers):
        root = Location("optimizer" if len(optimizers) == 1 else f"optimizer {number + 1}")
        for group, options in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(options["params"]):
                yield root.child("param_groups", group, "params", index), parameter


def _moments(optimizers: Sequence[Any], parameter: torch.Tensor) -> tuple[int, ...] | None:
    """The shape of what is kept for each value of a table; None before the first step."""
    for optimizer in optimizers:
        for value in dict(optimizer.state.get(parameter, {})).values():
            if isinstance(value, torch.Tensor) and value.dim() == 2 and value.shape[1] == parameter.shape[1]:
                return tuple(value.shape)
    return None


def _group_of_input(optimizer: Any, tables: LiveTables) -> Mapping[str, Any] | None:
    """The group that holds the input table, with its options."""
    wanted = {id(leaf) for leaf in leaves(tables.input_weight)}
    for group in optimizer.param_groups:
        if any(id(parameter) in wanted for parameter in group["params"]):
            return dict(group)
    return None


def _refuses_sparse(optimizer: Any, group: Mapping[str, Any]) -> bool:
    decays = bool(group.get("weight_decay")) and _is_one_of(optimizer, _REFUSES_SPARSE_DECAYING)
    return decays or _is_one_of(optimizer, _REFUSES_SPARSE)


def _name(optimizer: Any) -> str:
    return type(optimizer).__name__


def _is_one_of(optimizer: Any, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(optimizer).__mro__)
