"""Source -> Contract: read every file once, start the isolated process first and read on while it works.

A damaged part becomes a fact that a rule reports, or an unreadable part, and the rest is read all the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tokaudit.contract import (
    ChatTemplate,
    Checkpoint,
    Contract,
    Damage,
    DamagedFile,
    Document,
    DuplicateKey,
    Embeddings,
    Fact,
    IdField,
    Loaded,
    MergesFile,
    Missing,
    Options,
    SpecialToken,
    Table,
    TableComparison,
    TokenTable,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.families import id_defaults, resolve
from tokaudit.families.tokenizer_classes import tokenizer_class
from tokaudit.findings import Location
from tokaudit.formats import (
    chat_template,
    chat_templates,
    config,
    limits,
    special_tokens,
    strict_json,
    tokenizer_json,
    vocabulary_files,
)
from tokaudit.formats.added_tokens import added_file_table, decoder_table
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.formats.compare import compare_tables
from tokaudit.sources import Source, open_source
from tokaudit.tokenizing import TokenizerFailure, TokenizerProcess, start
from tokaudit.tokenizing.probes import compare_rebuilt

T = TypeVar("T")
Path = str | os.PathLike[str]

TOKENIZER_JSON = "tokenizer.json"
SIGNS_OF_A_MODEL = (
    "config.json, a tokenizer (tokenizer.json, vocab.json, vocab.txt, tokenizer.model) or *.safetensors"
)
MOST_TOKENS_TRIED = 40_000  # beyond it, encoding every token costs more than the rest of the audit


def load(path: Path, *, tokenizer: Path | None = None, options: Options | None = None) -> Contract:
    """Read a model directory; the tokenizer may lie in another one.

    Raises Unreadable where there is nothing to audit (no such directory, no model in it). Parts that cannot
    be read are listed in ``Contract.unreadable``.
    """
    source = open_source(path)
    model = _Reader(source)
    tokens = model if tokenizer is None else _Reader(open_source(tokenizer))
    with ExitStack() as stack:
        process = _start(tokens, stack)
        return _contract(model, tokens, process, options or Options())


class _Reader:
    """Reads the files of one source and keeps what could not be read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = source.names()
        self.unreadable: list[Unreadable] = []
        self.duplicates: list[DuplicateKey] = []
        self.outside: list[DamagedFile] = []

    def attempt(self, name: str, read: Callable[[], T]) -> T | Missing:
        """What ``read`` gives; a failure is kept and becomes the reason why the fact is missing."""
        try:
            return read()
        except FactMissing as missing:
            return Missing(missing.reason)
        except Unreadable as error:
            if error.code == "path-escape":
                self.outside.append(DamagedFile(name, Damage.OUTSIDE, error.message, error.hint))
            else:
                self.unreadable.append(error)
            return Missing(f"{name} could not be read")

    def document(self, name: str, limit: int = limits.SIDE_FILE_BYTES) -> Document | Missing:
        """A JSON file whose top level is an object."""
        if name not in self.names:
            return Missing(f"there is no {name}")
        return self.attempt(name, lambda: self._document(name, limit))

    def _document(self, name: str, limit: int) -> Document:
        parsed = strict_json.read_object(self.source, name, limit)
        self.duplicates += parsed.duplicates
        return Document(Location(name), parsed.value)

    def data(self, name: str, limit: int = limits.SIDE_FILE_BYTES) -> bytes | Missing:
        def read() -> bytes:
            with self.source.open(name) as file:
                return file.read_all(limit)

        return self.attempt(name, read)


def _start(tokens: _Reader, stack: ExitStack) -> TokenizerProcess | Missing:
    """Start the isolated process on tokenizer.json; it loads while everything else is read."""
    if TOKENIZER_JSON not in tokens.names:
        return Missing("there is no tokenizer.json")

    def begin() -> TokenizerProcess:
        with tokens.source.open(TOKENIZER_JSON) as file:
            return stack.enter_context(start(file))

    return tokens.attempt(TOKENIZER_JSON, begin)


def _contract(
    model: _Reader, tokens: _Reader, process: TokenizerProcess | Missing, options: Options
) -> Contract:
    model_config = model.document("config.json")
    generation_config = model.document("generation_config.json")
    if isinstance(model_config, Document):
        model.unreadable += config.malformed_fields(model_config)
    tokenizer_config = tokens.document("tokenizer_config.json")
    special, stale = special_tokens.special_tokens(
        tokenizer_config, tokens.document("special_tokens_map.json")
    )
    checkpoint = _checkpoint(model, model_config, options)
    embeddings = resolve(model_config, checkpoint)
    config_beside = model_config if tokens is model else tokens.document("config.json")
    vocabulary, templates, problem = _tokenizer(tokens, process, tokenizer_config, config_beside, special)
    nothing = all(isinstance(part, Missing) for part in (vocabulary, model_config, checkpoint))
    if nothing and not model.unreadable and options.read_weights:
        hint = f"looked for {SIGNS_OF_A_MODEL}"
        raise Unreadable("no-model", "", f"no model in {model.source.name}", hint=hint)
    if isinstance(checkpoint, Checkpoint):
        model.duplicates += checkpoint.duplicate_keys
    readers = (model,) if tokens is model else (model, tokens)
    return Contract(
        name=model.source.name,
        files=model.names,
        config_or=model_config,
        generation_config_or=generation_config,
        tokenizer_config_or=tokenizer_config,
        vocabulary_or=vocabulary,
        checkpoint_or=checkpoint,
        embeddings_or=embeddings,
        special_tokens=special,
        stale_special_tokens=stale,
        id_fields=tuple(_id_fields(model_config, generation_config)),
        templates=templates,
        duplicate_keys=tuple(key for reader in readers for key in reader.duplicates),
        unreadable=tuple(error for reader in readers for error in reader.unreadable),
        tokenizer_error=problem,
        comparisons_or=_comparisons(model.source, embeddings, checkpoint),
        pools=_pools(model),
        outside=tuple(file for reader in readers for file in reader.outside),
        options=options,
    )


def _checkpoint(model: _Reader, model_config: Document | Missing, options: Options) -> Checkpoint | Missing:
    if not options.read_weights:
        return Missing("--no-weights was given")
    preferred = model_config.data.get("transformers_weights") if isinstance(model_config, Document) else None
    return model.attempt(
        "the weights",
        lambda: read_checkpoint(model.source, preferred if isinstance(preferred, str) else None),
    )


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


def _tokenizer(
    tokens: _Reader,
    process: TokenizerProcess | Missing,
    tokenizer_config: Document | Missing,
    config_beside: Document | Missing,
    special: tuple[SpecialToken, ...],
) -> tuple[Vocabulary | Missing, tuple[ChatTemplate, ...], Fact[str] | None]:
    """The vocabulary, the chat templates, and why tokenizer.json does not parse or load."""
    file, problem = _tokenizer_file(tokens)
    tables = _counting_tables(tokens, tokenizer_config, file)
    alone = TOKENIZER_JSON not in tokens.names
    companions, unread = _vocabulary_files(tokens, tokenizer_config, alone=alone)
    merges = _merges_file(tokens, alone=alone)
    if isinstance(merges, Missing):
        unread = (*unread, merges.reason)
    if (file is None or file.base is None) and companions:
        tables = (replace(companions[0], witness=Witness.BASE), *tables)
        companions = companions[1:]
    if file is not None and file.problems and problem is None:
        problem = file.problems[0]
    known = {entry.content for table in tables for entry in table.entries}
    known |= {token.content for token in special if token.content}
    templates = _templates(tokens, tokenizer_config, known)
    if not tables:
        reason = unread[0] if unread else "there is no tokenizer that tokaudit can read"
        return Missing(reason), templates, problem
    vocabulary = Vocabulary(
        tables=tables,
        companions=companions,
        pipeline_or=file.pipeline if file else Missing("there is no tokenizer.json"),
        loaded_or=Missing("there is no tokenizer.json"),
        emissions=file.emissions if file else (),
        target=_target_table(tokens),
        merges_file=merges if isinstance(merges, MergesFile) else None,
        unread=unread,
    )
    asked = {token.content for token in vocabulary.added if token.special}
    asked |= {token.content for token in special if token.content}
    asked |= {text for template in templates for text in template.control}
    loaded = _loaded(process, sorted(asked))
    if isinstance(loaded, Fact):
        problem = problem or loaded
        loaded = Missing("the tokenizers library does not load tokenizer.json")
    if file is not None:
        found = tokens.attempt(
            TOKENIZER_JSON,
            lambda: tokenizer_class(tokenizer_config, config_beside, file.pipeline),
        )
        vocabulary = replace(vocabulary, class_or=found)
        if isinstance(loaded, Loaded) and isinstance(process, TokenizerProcess):
            rebuilt = _answer(lambda: compare_rebuilt(process, vocabulary, tokenizer_config, special))
            loaded = replace(loaded, rebuilt=rebuilt)
    return replace(vocabulary, loaded_or=loaded), templates, problem


def _tokenizer_file(tokens: _Reader) -> tuple[tokenizer_json.TokenizerFile | None, Fact[str] | None]:
    if TOKENIZER_JSON not in tokens.names:
        return None, None
    before = len(tokens.unreadable)
    document = tokens.document(TOKENIZER_JSON, limits.TOKENIZER_BYTES)
    if isinstance(document, Document):
        return tokenizer_json.read(document), None
    # A file that can be read but is no JSON is a finding (TA405); one that cannot be read is no verdict.
    for error in tokens.unreadable[before:]:
        if error.code.startswith("json-") or error.code == "lfs-pointer":
            tokens.unreadable.remove(error)
            return None, Fact(error.message, Location(TOKENIZER_JSON))
    return None, None


def _counting_tables(
    tokens: _Reader, tokenizer_config: Document | Missing, file: tokenizer_json.TokenizerFile | None
) -> tuple[TokenTable, ...]:
    found: list[TokenTable] = []
    if file is not None:
        found += [table for table in (file.base, file.added) if table is not None]
    if isinstance(tokenizer_config, Document):
        decoder = decoder_table(tokenizer_config)
        found += [decoder] if decoder is not None else []
    added = tokens.document("added_tokens.json")
    if isinstance(added, Document):
        found.append(added_file_table(added))
    return tuple(found)


def _vocabulary_files(
    tokens: _Reader, tokenizer_config: Document | Missing, *, alone: bool
) -> tuple[tuple[TokenTable, ...], tuple[str, ...]]:
    """The tables of the vocabulary files, in the order loaders look, and why others say nothing.

    A damaged file leaves no verdict where it is ``alone``, without a tokenizer.json.
    """
    settings = tokenizer_config.data if isinstance(tokenizer_config, Document) else {}
    found: list[TokenTable | Missing] = []
    for file in vocabulary_files.JSON_FILES:
        document = tokens.document(file, limits.TOKENIZER_BYTES)
        if isinstance(document, Document):
            found.append(_answer(partial(vocabulary_files.vocab_json, document)))
    for file, read in vocabulary_files.byte_files(tokens.names, settings):
        data = tokens.data(file, limits.TOKENIZER_BYTES)
        if isinstance(data, bytes):
            found.append(_side_file(tokens, partial(read, data), alone=alone))
    tables = tuple(table for table in found if isinstance(table, TokenTable))
    return tables, tuple(table.reason for table in found if isinstance(table, Missing))


def _merges_file(tokens: _Reader, *, alone: bool) -> MergesFile | Missing | None:
    """merges.txt; None where there is none."""
    if vocabulary_files.MERGES_FILE not in tokens.names:
        return None
    data = tokens.data(vocabulary_files.MERGES_FILE, limits.TOKENIZER_BYTES)
    if isinstance(data, Missing):
        return data
    return _side_file(
        tokens, partial(vocabulary_files.merges_txt, data, vocabulary_files.MERGES_FILE), alone=alone
    )


def _side_file(tokens: _Reader, read: Callable[[], T], *, alone: bool) -> T | Missing:
    try:
        return read()
    except FactMissing as missing:
        return Missing(missing.reason)
    except Unreadable as error:
        if alone:
            tokens.unreadable.append(error)
        return Missing(f"{error.file}: {error.message}")


def _target_table(tokens: _Reader) -> TokenTable | None:
    """The decoder's own vocabulary: Marian with separate_vocabs, FSMT."""
    for file in vocabulary_files.TARGET_FILES:
        document = tokens.document(file, limits.TOKENIZER_BYTES)
        if isinstance(document, Document):
            found = tokens.attempt(file, partial(vocabulary_files.vocab_json, document))
            return found if isinstance(found, TokenTable) else None
    return None


def _templates(
    tokens: _Reader, tokenizer_config: Document | Missing, known: set[str]
) -> tuple[ChatTemplate, ...]:
    """The chat templates: those in files of their own, or (where there is none) those inside JSON files."""
    sources: list[chat_template.Source] = []
    for name, file in chat_templates.template_files(tokens.names):
        data = tokens.data(file)
        if isinstance(data, bytes):
            sources.append((name, data.decode("utf-8", "replace"), Location(file)))
    if not sources:
        for document in (tokens.document(chat_templates.PROCESSOR_FILE), tokenizer_config):
            taken = {name for name, _, _ in sources}
            stated = chat_templates.stated_templates(document)
            sources += [source for source in stated if source[0] not in taken]
    return chat_template.read_all(sources, known)


def _loaded(process: TokenizerProcess | Missing, asked: list[str]) -> Loaded | Missing | Fact[str]:
    """What the library made of the file; a Fact with the cause where it refuses or dies."""
    if isinstance(process, Missing):
        return process
    try:
        result = process.loaded()
    except TokenizerFailure as failure:
        return Fact(failure.message, Location(TOKENIZER_JSON))
    return Loaded(
        version=result.version,
        effective=result.effective,
        encodings=_answer(lambda: process.encode(asked)),
        unreachable=_answer(lambda: process.unreachable(most_tokens=MOST_TOKENS_TRIED)),
        rebuilt=Missing("the tokenizer class was not asked"),
    )


def _answer(ask: Callable[[], T]) -> T | Missing:
    try:
        return ask()
    except TokenizerFailure as failure:
        return Missing(f"the tokenizers library failed: {failure.message}")
    except FactMissing as missing:
        return Missing(missing.reason)


def _comparisons(
    source: Source, embeddings: Embeddings, checkpoint: Checkpoint | Missing
) -> Mapping[tuple[str, str], TableComparison | Missing] | Missing:
    """Compare the stored tables that some loader makes one, or that look like copies."""
    if isinstance(checkpoint, Missing):
        return checkpoint
    found: dict[tuple[str, str], TableComparison | Missing] = {}
    for left, right, thorough in _pairs(embeddings):
        key = left.name, right.name
        try:
            found[key] = compare_tables(source, left.tensor, right.tensor, stop_early=not thorough)
        except FactMissing as missing:
            found[key] = Missing(missing.reason)
        except Unreadable as error:
            found[key] = Missing(f"{error.file} could not be read: {error.message}")
    return found


def _pairs(embeddings: Embeddings) -> Iterator[tuple[Table, Table, bool]]:
    """(left, right, whether every difference counts): untied tables only need their first difference."""
    tied = isinstance(embeddings.tie_or, Missing) or any(r.tied for r in embeddings.tie_or.readings)
    if isinstance(embeddings.tie_partner_or, Table) and isinstance(embeddings.output_or, Table):
        yield embeddings.tie_partner_or, embeddings.output_or, tied
    if isinstance(embeddings.input_or, Table):
        for table in embeddings.secondary:
            if table.copy:
                yield embeddings.input_or, table, True


def _pools(model: _Reader) -> Location | None:
    """What shows that a checkpoint embeds or pools text and is not asked to generate."""
    if "modules.json" in model.names:
        return Location("modules.json")
    for name in sorted(model.names):
        if re.fullmatch(r"\d+_Pooling/.+", name):
            return Location(name)
    card = model.data("README.md") if "README.md" in model.names else b""
    if isinstance(card, bytes):
        front = re.match(rb"---\s*\n(.*?)\n---", card, re.DOTALL)
        if front and re.search(
            rb"^(library_name: *sentence-transformers|pipeline_tag: *(sentence-similarity|feature-extraction|"
            rb"text-ranking|text-classification))\s*$",
            front[1],
            re.MULTILINE,
        ):
            return Location("README.md")
    return None
