"""The audit of a model in memory, before it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import nn

from tokaudit.audit import run, select_rules
from tokaudit.contract import Contract, Fact, Missing, Tie
from tokaudit.contract.module import (
    NO_OUTPUT_MODULE,
    Deviation,
    DeviationKind,
    LiveModule,
    LiveTable,
    LiveTie,
    LookupOptions,
    Probed,
)
from tokaudit.families import resolve
from tokaudit.findings import Location
from tokaudit.report import Report
from tokaudit.training.live import FILE, input_tensor, live_contract, output_tensor, saved_name
from tokaudit.training.optimizers import optimizer_facts
from tokaudit.training.probes import (
    adapter_of,
    gradient_hooks,
    probe_lookup,
    probe_projection,
    sampled_ids,
)
from tokaudit.training.tables import LiveTables, Named, find_tables
from tokaudit.training.unwrapping import core, readable, text_config, unwrapped

RULES = ("TA1", "TA3", "TA91")

# Fields of transformers' configurations for what its models do outside of the two modules.
_BEFORE = {"embedding_multiplier": (DeviationKind.SCALED, "is multiplied by {} (embedding_multiplier)")}
_AFTER = {
    "final_logit_softcapping": (DeviationKind.CAPPED, "is capped softly at {} (final_logit_softcapping)"),
    "logit_scale": (DeviationKind.SCALED, "is multiplied by {} (logit_scale)"),
    "lm_head_multiplier": (DeviationKind.SCALED, "is multiplied by {} (lm_head_multiplier)"),
    "logits_scaling": (DeviationKind.SCALED, "is divided by {} (logits_scaling)"),
    "scale_decoder_outputs": (
        DeviationKind.SCALED,
        "is made of hidden states divided by the square root of their width (scale_decoder_outputs)",
    ),
}


def audit_module(
    model: nn.Module,
    tokenizer: Any = None,
    optimizer: Any = None,
    *,
    input: Named = None,
    output: Named = None,
) -> Report:
    """Audit a model in memory: its tables, how they are tied, and what else holds them.

    ``model`` may be wrapped (DistributedDataParallel, FSDP, torch.compile, PEFT). ``tokenizer`` is one of
    transformers or of `tokenizers`, or the path of its directory; ``optimizer`` is an optimizer or a list
    with every one of the run. ``input`` and ``output`` are the modules of the two tables, or their names,
    where the model cannot be asked for them.

    The rules about ids and rows (TA1xx, TA3xx) run as in `tokaudit.check`, on the tables as they are; those
    about modules are TA91x. A few rows are looked up and a few hidden states projected: the model is left as
    it was, and so are the random generators.

    Raises UsageError where the tables are not found, and for what is no tokenizer.
    """
    tables = find_tables(model, input=input, output=output)
    bare = unwrapped(model)
    contract = live_contract(bare, tables, tokenizer)
    contract = replace(contract, module_or=_facts(bare, tables, optimizer, contract))
    return run(contract, select_rules(RULES))


def _facts(model: nn.Module, tables: LiveTables, optimizer: Any, contract: Contract) -> LiveModule:
    names = {id(parameter): saved_name(name) for name, parameter in model.named_parameters()}
    given = _table(tables.input_module, tables.input_weight, input_tensor(tables), tables.rows)
    counted = sum(parameter.numel() for parameter in model.parameters())
    shared = tables.output_weight.numel() if tables.output_weight is not None and tables.tied else 0
    return LiveModule(
        input=given,
        output_or=_output(tables),
        options=_options(core(tables.input_module)),
        tie_or=_tie(model, tables, contract),
        parameter_count=counted - (shared if _memory_twice(tables) else 0),
        untied_count=counted + (0 if _memory_twice(tables) else shared),
        lookup=_lookup(model, tables, contract, given.at),
        projection_or=_projection(model, tables),
        optimizer_or=optimizer_facts(optimizer, model, tables, names),
    )


# --- tables and tie -------------------------------------------------------------------------------------


def _table(module: nn.Module, weight: torch.Tensor, name: str, rows: int) -> LiveTable:
    return LiveTable(name, rows, trained=weight.requires_grad, adapter=adapter_of(module))


def _output(tables: LiveTables) -> LiveTable | Missing:
    module, weight = tables.output_module, tables.output_weight
    if module is None:
        return NO_OUTPUT_MODULE
    if weight is None:
        return Missing(f"{tables.output_name} ({type(core(module)).__name__}) has no plain table")
    rows = weight.shape[0] if weight.dim() == 2 else tables.rows
    return _table(module, weight, output_tensor(tables), rows)


def _options(module: nn.Module) -> LookupOptions:
    return LookupOptions(
        padding_index=getattr(module, "padding_idx", None),
        max_norm=getattr(module, "max_norm", None),
        scale_by_frequency=bool(getattr(module, "scale_grad_by_freq", False)),
        sparse=bool(getattr(module, "sparse", False)),
    )


def _tie(model: nn.Module, tables: LiveTables, contract: Contract) -> LiveTie | Missing:
    if tables.output_module is None:
        return NO_OUTPUT_MODULE
    if tables.output_weight is None:
        return Missing("the output embeddings have no plain table")
    return LiveTie(
        by=tables.tied_by,
        asked_or=_asked(model, tables, contract),
        equal_or=_equal(tables.input_weight, tables.output_weight),
        parameters=2 if tables.tied_by is None or _memory_twice(tables) else 1,
    )


def _memory_twice(tables: LiveTables) -> bool:
    """Whether two parameters lie over one storage."""
    left, right = tables.input_weight, tables.output_weight
    both = isinstance(left, nn.Parameter) and isinstance(right, nn.Parameter)
    return both and tables.tied and left is not right


def _asked(model: nn.Module, tables: LiveTables, contract: Contract) -> Fact[bool] | Missing:
    """What class and configuration ask for: transformers 5 keeps a map of what it ties, or the flags."""
    stated = resolve(contract.config_or, contract.checkpoint_or).tie_or
    if isinstance(contract.config_or, Missing):
        return contract.config_or
    at = contract.config_or.at.child("tie_word_embeddings")
    if isinstance(stated, Tie):
        at = next((fact.at for fact in stated.flags.values()), at)
    expand = getattr(model, "get_expanded_tied_weights_keys", None)
    if callable(expand):
        return Fact(_map_ties(model, tables, expand(all_submodels=True)), at)
    return Fact(stated.readings[-1].tied, at) if isinstance(stated, Tie) else stated


def _map_ties(model: nn.Module, tables: LiveTables, sources: Mapping[str, str]) -> bool:
    """Whether a map from parameters to those that they are tied to makes one of the two tables."""
    names: dict[int, set[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        source = f"{name}.weight"
        names.setdefault(id(module), set()).update({source, sources.get(source, source)})
    return bool(names.get(id(tables.input_module), set()) & names.get(id(tables.output_module), set()))


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool | Missing:
    if left is right:
        return True
    if not readable(left) or not readable(right):
        return Missing("a table has no values, or not all of them, in this process")
    if left.shape != right.shape or left.dtype != right.dtype or left.device != right.device:
        return False
    with torch.no_grad():
        return bool(torch.equal(left, right))


# --- probes ---------------------------------------------------------------------------------------------


def _lookup(model: nn.Module, tables: LiveTables, contract: Contract, at: Location) -> Probed:
    weight = tables.input_weight
    roles = [token.id for token in contract.roles.values()]
    found = probe_lookup(tables.input_module, weight, sampled_ids(tables.rows, roles), at)
    return _with(found, gradient_hooks(weight, at), _outside(model, _BEFORE))


def _projection(model: nn.Module, tables: LiveTables) -> Probed | Missing:
    module, weight = tables.output_module, tables.output_weight
    if module is None:
        return NO_OUTPUT_MODULE
    at = Location(FILE, tensor=output_tensor(tables))
    found = probe_projection(module, weight, tables.output_bias, at)
    hooks = iter(()) if weight is None or tables.tied else gradient_hooks(weight, at)
    return _with(found, hooks, _outside(model, _AFTER))


def _with(found: Probed, *more: Iterator[Deviation]) -> Probed:
    return replace(found, deviations=(*found.deviations, *chain(*more)))


def _outside(model: nn.Module, fields: Mapping[str, tuple[DeviationKind, str]]) -> Iterator[Deviation]:
    """What the model does outside of the two modules, by the fields of its configuration."""
    config = text_config(model)
    for name, (kind, words) in fields.items():
        value = getattr(config, name, None)
        if isinstance(value, int | float) and value not in (0, False) and (value is True or value != 1):
            yield Deviation(kind, words.format(value), Location("config.json").child(name))
