"""Which modules of a live model are the input and the output embeddings, and whether they are one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tokaudit.contract.module import TiedBy
from tokaudit.errors import UsageError
from tokaudit.text import closest, listed
from tokaudit.training.unwrapping import core, leaves, unwrapped

Named = str | nn.Module | None


@dataclass(frozen=True)
class LiveTables:
    """The two tables of a live model.

    ``input_module`` and ``output_module`` are what the model calls: with their wrappers, LoRA among them;
    `tokaudit.training.unwrapping.core` is the module within that holds the table. The names are those of the
    modules in the unwrapped model. The weights ([rows, hidden]; of a packed table whatever it is packed into)
    are the tables as the modules read them: parameters, views of some, or what a parametrization makes.
    ``tied_by`` compares identity and memory, never values.
    """

    input_module: nn.Module
    input_name: str
    input_weight: torch.Tensor
    output_module: nn.Module | None
    output_name: str
    output_weight: torch.Tensor | None
    output_bias: torch.Tensor | None
    tied_by: TiedBy | None
    rows: int
    hidden: int

    @property
    def tied(self) -> bool:
        return self.tied_by is not None


def find_tables(model: nn.Module, *, input: Named = None, output: Named = None) -> LiveTables:
    """Find the input and the output embeddings of a model.

    ``input`` and ``output`` are modules of it, or their names. What is not given comes from
    ``get_input_embeddings`` and ``get_output_embeddings`` where the model has them (transformers); otherwise
    the input is the ``nn.Embedding`` with as many rows as one ``nn.Linear`` has outputs, which is the output.

    Raises UsageError for what is no module, and where nothing or more than one thing fits.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"expected a torch.nn.Module, found {type(model).__name__}",
            hint="`tokaudit.check` audits a directory",
        )
    with torch.enable_grad():  # what a parametrization makes is known by where its gradient would go
        return _found(model, input, output)


def _found(model: nn.Module, input: Named, output: Named) -> LiveTables:
    bare = unwrapped(model)
    names = {id(module): name for name, module in bare.named_modules()}
    source = _given(model, bare, input, "get_input_embeddings")
    target = _given(model, bare, output, "get_output_embeddings")
    if source is None:
        source, target = _discovered(bare, target)
    weight = _weight(source)
    if weight is None:
        raise UsageError(
            f"{_name(names, source)} ({type(source).__name__}) has no table of rows: no `weight`",
            hint="name the module that holds the table: input=...",
        )
    if target is None and not callable(getattr(bare, "get_output_embeddings", None)):
        target = _output_for(bare, source)
    rows, hidden = _shape(source)
    out = None if target is None else _weight(target)
    return LiveTables(
        input_module=source,
        input_name=_name(names, source),
        input_weight=weight,
        output_module=target,
        output_name="" if target is None else _name(names, target),
        output_weight=out,
        output_bias=None if target is None else _tensor(core(target), "bias"),
        tied_by=None if out is None else tied_by(weight, out),
        rows=rows,
        hidden=hidden,
    )


def tied_by(left: torch.Tensor, right: torch.Tensor) -> TiedBy | None:
    """What makes the two one table; None for two tables, be their values equal or not.

    A table of fewer rows that lies at the beginning of the other one is one with it.
    """
    if left is right:
        return TiedBy.PARAMETER
    if _storage(left) == _storage(right):
        # Elsewhere in one storage are other parts of it, as in the flat parameter of FSDP.
        return TiedBy.STORAGE if _same_place(left, right) else None
    if left.shape[1:] == right.shape[1:] and {id(leaf) for leaf in leaves(left)} & {
        id(leaf) for leaf in leaves(right)
    }:
        return TiedBy.PARAMETRIZATION
    return None


def _same_place(left: torch.Tensor, right: torch.Tensor) -> bool:
    left, right = _local(left), _local(right)
    return (
        left.dtype == right.dtype
        and left.shape[1:] == right.shape[1:]
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
        and left.numel() > 0
    )


def _storage(tensor: torch.Tensor) -> object:
    """What two tensors of one storage have in common; a storage without memory (meta) is known by itself."""
    storage = _local(tensor).untyped_storage()
    return storage.data_ptr() or storage._cdata


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a distributed tensor; any other tensor as it is."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


# --- by name and by accessor ----------------------------------------------------------------------------


def _given(model: nn.Module, bare: nn.Module, named: Named, accessor: str) -> nn.Module | None:
    if named is None:
        return _by_accessor(bare, accessor)
    if isinstance(named, nn.Module):
        return named
    for root in (bare, model):
        try:
            return root.get_submodule(named)
        except AttributeError:
            continue
    names = [name for name, _ in bare.named_modules()]
    guess = closest(named, names) or closest(named.removesuffix(".weight"), names)
    hint = f"did you mean {guess}?" if guess else "give the name of a module, as in named_modules()"
    raise UsageError(f"the model has no module {named!r}", hint=hint)


def _by_accessor(model: nn.Module, name: str) -> nn.Module | None:
    accessor = getattr(model, name, None)
    if not callable(accessor):
        return None
    try:
        found = accessor()
    except (NotImplementedError, AttributeError):
        return None
    return found if isinstance(found, nn.Module) else None


def _name(names: Mapping[int, str], module: nn.Module) -> str:
    return names.get(id(module), type(module).__name__)


# --- by discovery ---------------------------------------------------------------------------------------


def _discovered(model: nn.Module, target: nn.Module | None) -> tuple[nn.Module, nn.Module | None]:
    """The embedding that fits the output, and the output. Raises UsageError where that is not clear."""
    found = {
        name: module
        for name, module in _outermost(model).items()
        if isinstance(core(module), nn.Embedding) and _weight(module) is not None
    }
    if not found:
        raise UsageError(
            f"{type(model).__name__} has no nn.Embedding",
            hint="name the modules of the tables: input=..., output=...",
        )
    if len(found) == 1:
        return next(iter(found.values())), target
    outputs = {name: _outputs_for(model, module, target) for name, module in found.items()}
    fitting = [name for name in found if len(outputs[name]) == 1]
    tied = [name for name in fitting if _tied_modules(found[name], outputs[name][0])]
    chosen = tied if len(tied) == 1 else fitting
    if len(chosen) != 1:
        described = [f"{name} {tuple(_shape(found[name]))}" for name in chosen or found]
        raise UsageError(
            f"{len(described)} modules may be the input embeddings: {listed(described)}",
            hint="name the one that token ids are looked up in: input=...",
        )
    return found[chosen[0]], outputs[chosen[0]][0]


def _output_for(model: nn.Module, source: nn.Module) -> nn.Module | None:
    """The one output that fits; None without one. Raises UsageError for several."""
    found = _outputs_for(model, source)
    if len(found) > 1:
        names = {id(module): name for name, module in model.named_modules()}
        described = [_name(names, module) for module in found]
        raise UsageError(
            f"{len(found)} modules may be the output embeddings: {listed(described)}",
            hint="name the one that makes the logits: output=...",
        )
    return found[0] if found else None


def _outputs_for(model: nn.Module, source: nn.Module, target: nn.Module | None = None) -> list[nn.Module]:
    """Linear modules that are tied to the table; where none is, those with an output for each of its rows."""
    linear = [module for module in _outermost(model).values() if isinstance(core(module), nn.Linear)]
    possible = linear if target is None else [target]
    tied = [module for module in possible if _tied_modules(source, module)]
    return tied or [module for module in possible if _shape(source)[0] == _shape(module)[0]]


def _outermost(model: nn.Module) -> dict[str, nn.Module]:
    """Every module but those that lie within a wrapper of one table."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        wrapped = any(name.startswith(outer + ".") for outer in found)
        if name and not wrapped and isinstance(core(module), nn.Embedding | nn.Linear):
            found[name] = module
    return found


def _tied_modules(source: nn.Module, target: nn.Module) -> bool:
    left, right = _weight(source), _weight(target)
    return left is not None and right is not None and tied_by(left, right) is not None


# --- tables of modules ----------------------------------------------------------------------------------


def _weight(module: nn.Module) -> torch.Tensor | None:
    return _tensor(core(module), "weight")


def _tensor(module: nn.Module, name: str) -> torch.Tensor | None:
    found = getattr(module, name, None)
    return found if isinstance(found, torch.Tensor) else None


def _shape(module: nn.Module) -> tuple[int, int]:
    """(rows, hidden) of the table; of one that is packed or cut in shards what its module states."""
    inner, table = core(module), _weight(module)
    if table is not None and table.is_floating_point() and table.dim() == 2:
        return table.shape[0], table.shape[1]
    for names in (("num_embeddings", "embedding_dim"), ("out_features", "in_features")):
        rows, hidden = (getattr(inner, name, None) for name in names)
        if isinstance(rows, int) and isinstance(hidden, int):
            return rows, hidden
    raise UsageError(f"{type(inner).__name__} does not tell how many rows its table has")
