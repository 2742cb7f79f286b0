"""Puts the contract together: configurations, weights, and what the tokenizer says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tokaudit.ahead import import_ahead
from tokaudit.contract import (
    Adapter,
    Checkpoint,
    Contract,
    Document,
    Embeddings,
    IdField,
    Missing,
    OptimizerState,
    Options,
    Table,
    TableComparison,
)
from tokaudit.contract.adapter import NOT_AN_ADAPTER
from tokaudit.contract.optimizer import NO_OPTIMIZER
from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.families import id_defaults, resolve
from tokaudit.findings import Location
from tokaudit.formats import config
from tokaudit.load.reader import Reader
from tokaudit.load.special_tokens import special_tokens
from tokaudit.load.tokenizer import read_tokenizer, try_tokens
from tokaudit.load.weights import compared, read_weights
from tokaudit.sources import Source
from tokaudit.tokenizing import TokenizerProcess

if TYPE_CHECKING:
    from tokaudit.contract.data import DataOptions

NO_TABLES = Missing("the weights are an adapter's, which has no tables of its own")
SIGNS_OF_A_MODEL = (
    "config.json, a tokenizer (tokenizer.json, vocab.json, vocab.txt, tokenizer.model) or *.safetensors"
)


def read_contract(
    model_source: Source,
    tokenizer_source: Source,
    process: TokenizerProcess | Unreadable | None,
    options: Options | None = None,
) -> Contract:
    """Read both sources. ``process`` is loading tokenizer.json already, or why it is not."""
    options = options or Options()
    reads_rows = options.deep or options.data is not None
    ready = import_ahead("tokaudit.values.read") if reads_rows else _nothing_ahead
    model = Reader(model_source)
    tokens = model if tokenizer_source is model_source else Reader(tokenizer_source)
    model_config = model.document("config.json")
    generation_config = model.document("generation_config.json")
    if isinstance(model_config, Document):
        model.unreadable += config.malformed_fields(model_config)
    tokenizer_config = tokens.document("tokenizer_config.json")
    config_beside = model_config if tokens is model else tokens.document("config.json")
    special, stale = special_tokens(
        tokenizer_config, tokens.document("special_tokens_map.json"), config_beside
    )
    checkpoint = read_weights(model, model_config, options)
    adapter = _adapter(model, checkpoint, options)
    alone = isinstance(adapter, Adapter) and not adapter.beside_model
    embeddings = NO_TABLES if alone else resolve(model_config, checkpoint)
    if isinstance(model_config, Document) and (isinstance(embeddings, Missing) or embeddings.language_model):
        model.unreadable += config.unstated_size(model_config)
    running = _running(tokens, process)
    vocabulary, templates, problem = read_tokenizer(
        tokens, running, tokenizer_config, config_beside, special, options
    )
    nothing = all(isinstance(part, Missing) for part in (vocabulary, model_config, checkpoint, adapter))
    if nothing and not model.unreadable and options.read_weights:
        hint = _pipeline(model) or f"looked for {SIGNS_OF_A_MODEL}"
        raise Unreadable("no-model", "", f"no model in {model.source.name}", hint=hint)
    if isinstance(checkpoint, Checkpoint):
        model.duplicates += checkpoint.duplicate_keys
        model.marked += checkpoint.marked
    optimizer = _optimizer(model, options)
    readers = (model,) if tokens is model else (model, tokens)
    contract = Contract(
        name=model.source.name,
        files=model.names,
        tokenizer_files=tokens.names,
        config_or=model_config,
        generation_config_or=generation_config,
        tokenizer_config_or=tokenizer_config,
        encoder_config_or=model.document("sentence_bert_config.json"),
        vocabulary_or=vocabulary,
        checkpoint_or=checkpoint,
        embeddings_or=embeddings,
        special_tokens=special,
        stale_special_tokens=stale,
        id_fields=tuple(_id_fields(model_config, generation_config)),
        templates=templates,
        duplicate_keys=tuple(key for reader in readers for key in reader.duplicates),
        marked=tuple(dict.fromkeys(name for reader in readers for name in reader.marked)),
        unreadable=tuple(error for reader in readers for error in reader.unreadable),
        tokenizer_error=problem,
        comparisons_or=_comparisons(model.source, embeddings, checkpoint),
        pools=_pools(model),
        outside=tuple(file for reader in readers for file in reader.outside),
        options=options,
        adapter_or=adapter,
        optimizer_or=optimizer,
    )
    if options.data is not None:
        ready()
        contract = _with_data(contract, options.data, running)
    if options.deep:
        tried = try_tokens(vocabulary, running)
        ready()
        contract = _with_values(contract, model_source)
        contract = replace(contract, vocabulary_or=tried())
    return _with_snapshot(contract, model_source) if options.lock or options.snapshot else contract


def _pipeline(model: Reader) -> str:
    """What to give in the place of a pipeline of diffusers; "" where it is none that reads texts."""
    if not {"model_index.json", "text_encoder"} <= model.names:
        return ""
    encoder, tokenizer = (os.path.join(model.source.name, part) for part in ("text_encoder", "tokenizer"))
    return f"a pipeline of diffusers: give {encoder} --tokenizer {tokenizer}"


def _nothing_ahead() -> None:
    """What needs no waiting for."""


def _with_data(contract: Contract, options: DataOptions, process: TokenizerProcess | Missing) -> Contract:
    """The contract with the token data that was given. Raises UsageError for a wrong option."""
    from tokaudit.data.read import read_data  # loads torch

    try:
        data, unreadable = read_data(contract, options, process)
    except FactMissing as missing:
        data, unreadable = Missing(missing.reason), ()
    return replace(contract, data_or=data, unreadable=(*contract.unreadable, *unreadable))


def _with_values(contract: Contract, source: Source) -> Contract:
    """The contract with the rows of its tables."""
    from tokaudit.values.read import read_values  # loads torch

    try:
        return replace(contract, values_or=read_values(contract, source))
    except FactMissing as missing:
        return replace(contract, values_or=Missing(missing.reason))


def _with_snapshot(contract: Contract, source: Source) -> Contract:
    """The contract with its fingerprints, for a lock or to compare with one."""
    from tokaudit.locks.make import snapshot

    return replace(contract, snapshot_or=snapshot(contract, source))


def _running(tokens: Reader, process: TokenizerProcess | Unreadable | None) -> TokenizerProcess | Missing:
    if isinstance(process, TokenizerProcess):
        return process
    if process is None:
        return Missing("there is no tokenizer.json")
    if process.code == "no-process":  # what ails the file itself is said when it is read
        tokens.unreadable.append(process)
    return Missing(f"tokenizer.json could not be loaded: {process.message}")


def _adapter(model: Reader, checkpoint: Checkpoint | Missing, options: Options) -> Adapter | Missing:
    """The adapter that the directory is, or that lies beside a model in it, where its base is named."""
    if "adapter_config.json" not in model.names:
        if options.base is not None:
            raise UsageError(
                f"--base is for an adapter, and {model.source.name} has no adapter_config.json",
                hint="give the directory that PEFT saved",
            )
        return NOT_AN_ADAPTER
    from tokaudit.load.adapter import read_adapter

    return read_adapter(model, checkpoint, options)


def _optimizer(model: Reader, options: Options) -> OptimizerState | Missing:
    path = options.optimizer
    if path is None:
        return NO_OPTIMIZER
    from tokaudit.load.optimizer import read_optimizer

    return model.attempt(path, lambda: read_optimizer(path))


def _id_fields(model_config: Document | Missing, generation_config: Document | Missing) -> Iterator[IdField]:
    stated: list[IdField] = []
    if isinstance(model_config, Document):
        stated = list(config.id_fields(model_config, generation=False))
        yield from stated
    if isinstance(generation_config, Document):
        yield from config.id_fields(generation_config, generation=True)
    if isinstance(model_config, Document):
        for default in id_defaults(model_config):
            *section, name = default.path.split(".")
            at = model_config.at.child(*section, name)
            if not any(field.at == at for field in stated):
                yield config.default_field(
                    name, ".".join(section), default.ids, at, pads=default.padding_index
                )


def _comparisons(
    source: Source, embeddings: Embeddings | Missing, checkpoint: Checkpoint | Missing
) -> Mapping[tuple[str, str], TableComparison | Missing] | Missing:
    """Compare the stored tables that some loader makes one, or that look like copies."""
    if isinstance(checkpoint, Missing):
        return checkpoint
    if isinstance(embeddings, Missing):
        return embeddings
    return {
        (left.name, right.name): compared(source, left.tensor, right.tensor, stop_early=not thorough)
        for left, right, thorough in _pairs(embeddings)
    }


def _pairs(embeddings: Embeddings) -> Iterator[tuple[Table, Table, bool]]:
    """(left, right, whether every difference counts): untied tables only need their first difference."""
    tied = isinstance(embeddings.tie_or, Missing) or any(r.tied for r in embeddings.tie_or.readings)
    if isinstance(embeddings.tie_partner_or, Table) and isinstance(embeddings.output_or, Table):
        yield embeddings.tie_partner_or, embeddings.output_or, tied
    if isinstance(embeddings.input_or, Table):
        for table in embeddings.secondary:
            if table.copy:
                yield embeddings.input_or, table, True


_POOLING_CARD = re.compile(
    rb"^(library_name: *[\"']?sentence-transformers|"
    rb"pipeline_tag: *[\"']?(sentence-similarity|feature-extraction|text-ranking|text-classification))"
    rb"[\"']?\s*$",
    re.MULTILINE,
)


def _pools(model: Reader) -> Location | None:
    """What shows that a checkpoint embeds or pools text and is not asked to generate."""
    if "modules.json" in model.names:
        return Location("modules.json")
    for name in sorted(model.names):
        if re.fullmatch(r"\d+_Pooling/.+", name):
            return Location(name)
    card = model.data("README.md") if "README.md" in model.names else b""
    if isinstance(card, bytes):
        front = re.match(rb"---\s*\n(.*?)\n---", card, re.DOTALL)
        if front and _POOLING_CARD.search(front[1]):
            return Location("README.md")
    return None
