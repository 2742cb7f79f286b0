"""The contract of a model in memory: its configuration and its tables as they are, its tokenizer as saved."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tokaudit.contract import (
    Checkpoint,
    Contract,
    Document,
    Embeddings,
    Missing,
    Options,
    Shard,
    Table,
    TableKind,
    Tensor,
    Tie,
    TieReading,
)
from tokaudit.errors import UsageError
from tokaudit.families import resolve
from tokaudit.load import load
from tokaudit.training.tables import LiveTables
from tokaudit.values.stored import DTYPES

FILE = "module"
NO_TOKENIZER = Missing("no tokenizer was given")
NO_CONFIG = Missing("the module has no configuration")
NOT_KNOWN = Missing("the configuration does not tell how many rows the table should have")
NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.int8: "I8", torch.uint8: "U8"}
# What wrappers put into the names of parameters.
_WRAPPINGS = re.compile(
    r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_orig_mod|base_layer|original_module|modules_to_save\.[^.]+"
    r"|parametrizations)\."
)


def live_contract(model: nn.Module, tables: LiveTables, tokenizer: Any) -> Contract:
    """The contract of an unwrapped model, with its tables in the place of a checkpoint's.

    ``tokenizer`` is one of transformers or of `tokenizers`, or the path of a directory. Raises UsageError for
    anything else.
    """
    contract = _of_files(model, tokenizer)
    checkpoint = _checkpoint(model, tables)
    embeddings = _embeddings(contract.config_or, checkpoint, tables)
    return replace(
        contract, name=type(model).__name__, checkpoint_or=checkpoint, embeddings_or=embeddings, pools=None
    )


def saved_name(name: str) -> str:
    """The name of a parameter as it is saved without wrappers and parametrizations."""
    return _WRAPPINGS.sub("", name).removesuffix(".original").removesuffix(".original0")


# --- configuration and tokenizer ------------------------------------------------------------------------


def _of_files(model: nn.Module, tokenizer: Any) -> Contract:
    """What a directory would tell in which model and tokenizer were saved, without weights."""
    options = Options(read_weights=False)
    with tempfile.TemporaryDirectory(prefix="tokaudit-") as scratch:
        folder = Path(scratch)
        for name, text in _configurations(model):
            (folder / name).write_text(text, encoding="utf-8")
        if isinstance(tokenizer, str | os.PathLike):
            contract = load(folder, tokenizer=tokenizer, options=options)
        else:
            _save(tokenizer, folder)
            contract = load(folder, options=options)
    if isinstance(contract.config_or, Missing):
        contract = replace(contract, config_or=NO_CONFIG)
    return contract if tokenizer is not None else replace(contract, vocabulary_or=NO_TOKENIZER)


def _configurations(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The name and the text of each configuration, as saving the model writes them."""
    config = getattr(model, "config", None)
    if not hasattr(config, "to_json_string"):
        return
    yield "config.json", json.dumps({**_plain(config), "architectures": [type(model).__name__]})
    generation = getattr(model, "generation_config", None)
    if hasattr(generation, "to_json_string") and _generates(model):
        yield "generation_config.json", json.dumps(_plain(generation))


def _plain(config: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(config.to_json_string())
    return document


def _generates(model: nn.Module) -> bool:
    can = getattr(model, "can_generate", None)
    return callable(can) and bool(can())


def _save(tokenizer: Any, folder: Path) -> None:
    if tokenizer is None:
        return
    if callable(getattr(tokenizer, "save_pretrained", None)):
        tokenizer.save_pretrained(folder)
    elif callable(getattr(tokenizer, "save", None)):
        tokenizer.save(str(folder / "tokenizer.json"))
    else:
        raise UsageError(
            f"expected a tokenizer of transformers or tokenizers, found {type(tokenizer).__name__}",
            hint="give the tokenizer, or the path of a directory that holds it",
        )


# --- tables ---------------------------------------------------------------------------------------------


def _checkpoint(model: nn.Module, tables: LiveTables) -> Checkpoint:
    """The parameters under the names that they are saved as; the two tables have all of their rows."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in (*model.named_buffers(), *model.named_parameters()):
        found[saved_name(name)] = tensor
    entries: dict[str, tuple[str, tuple[int, ...], int]] = {
        name: (dtype_name(tensor), tuple(tensor.shape), tensor.numel() * tensor.element_size())
        for name, tensor in found.items()
    }
    entries[input_tensor(tables)] = _entry(tables.input_weight, tables.rows, tables.hidden)
    if tables.output_weight is not None and not _is_one(tables):
        rows, width = _output_shape(tables, tables.output_weight)
        entries[output_tensor(tables)] = _entry(tables.output_weight, rows, width)
    else:
        entries.pop(output_tensor(tables), None)
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, (dtype, shape, nbytes) in entries.items():
        tensors[name] = Tensor(name, dtype, shape, FILE, end, end + nbytes)
        end += nbytes
    shard = Shard(FILE, end, tensors, {})
    return Checkpoint("live", (shard,), tensors, Missing("a live module has no index"))


def _entry(weight: torch.Tensor, rows: int, width: int) -> tuple[str, tuple[int, ...], int]:
    return dtype_name(weight), (rows, width), rows * width * weight.element_size()


def input_tensor(tables: LiveTables) -> str:
    """The name that the input table is saved as."""
    return saved_name(f"{tables.input_name}.weight")


def output_tensor(tables: LiveTables) -> str:
    """The name that the output table would be saved as."""
    return saved_name(f"{tables.output_name}.weight")


def dtype_name(tensor: torch.Tensor) -> str:
    """As in safetensors, where it has a name for it."""
    return NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


def _is_one(tables: LiveTables) -> bool:
    """Whether the output is the whole input table: one that begins with it has rows of its own."""
    weight = tables.output_weight
    return tables.tied and weight is not None and weight.shape == tables.input_weight.shape


def _output_shape(tables: LiveTables, weight: torch.Tensor) -> tuple[int, int]:
    plain = weight.dim() == 2 and weight.is_floating_point()
    return (weight.shape[0], weight.shape[1]) if plain else (tables.rows, tables.hidden)


def _embeddings(config: Document | Missing, checkpoint: Checkpoint, tables: LiveTables) -> Embeddings:
    """The family's view of the parameters, with the tables that the model itself names."""
    found = resolve(config, checkpoint)
    name = input_tensor(tables)
    table = _table(found.input_or, TableKind.INPUT, checkpoint.tensors[name])
    output: Table | Missing = Missing("the module has no output embeddings")
    if tables.output_module is not None:
        output = Missing("it is tied to the input embeddings")
        if output_tensor(tables) in checkpoint.tensors:
            output = _table(found.output_or, TableKind.OUTPUT, checkpoint.tensors[output_tensor(tables)])
    same = isinstance(found.input_or, Table) and found.input_or.name == name
    return replace(
        found,
        input_or=table,
        output_or=output,
        biases=found.biases if same else tuple(_bias(tables)),
        secondary=found.secondary if same else (),
        extra_inputs=found.extra_inputs if same else (),
        tie_or=_tie(tables, found.tie_or),
        tie_partner_or=found.tie_partner_or if same else table,
        candidates=(),
        language_model=True,
        inverted=False,
    )


def _table(known: Table | Missing, kind: TableKind, tensor: Tensor) -> Table:
    rows, hidden = tensor.shape
    if isinstance(known, Table) and known.name == tensor.name:
        return replace(known, kind=kind, tensor=tensor, rows_or=rows, hidden=hidden)
    return Table(kind, tensor, axis=0, rows_or=rows, hidden=hidden, expected=NOT_KNOWN)


def _bias(tables: LiveTables) -> Iterator[Table]:
    if tables.output_bias is not None:
        name = saved_name(f"{tables.output_name}.bias")
        shape = tuple(tables.output_bias.shape)
        tensor = Tensor(name, dtype_name(tables.output_bias), shape, FILE, 0, tables.output_bias.nbytes)
        yield Table(TableKind.BIAS, tensor, axis=0, rows_or=shape[0], hidden=None, expected=NOT_KNOWN)


def _tie(tables: LiveTables, stated: Tie | Missing) -> Tie | Missing:
    """What memory says, which no loader has to work out any more."""
    if tables.output_module is None:
        return Missing("the module has no output embeddings")
    flags: Mapping[str, Any] = stated.flags if isinstance(stated, Tie) else {}
    why = tables.tied_by.value if tables.tied_by else "two tables"
    return Tie(flags, (TieReading("memory", tables.tied, why),))
