"""The tokenizer's side: what its files declare, its chat templates, and what the library made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tokaudit.contract import (
    ChatTemplate,
    Declared,
    Document,
    Fact,
    Loaded,
    MergesFile,
    Missing,
    Options,
    SpecialToken,
    TokenTable,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.families.tokenizer_classes import tokenizer_class
from tokaudit.findings import Location
from tokaudit.formats import chat_template, chat_templates, limits, tokenizer_json, vocabulary_files
from tokaudit.formats.added_tokens import added_file_table, decoder_table
from tokaudit.load import TOKENIZER_JSON
from tokaudit.load.reader import Reader, answer
from tokaudit.tokenizing import NotAsked, TokenizerFailure, TokenizerProcess
from tokaudit.tokenizing.probes import compare_rebuilt, use

T = TypeVar("T")

MOST_TOKENS_TRIED = 10_000  # without --deep: more would cost more than the rest of the audit


def read_tokenizer(
    tokens: Reader,
    process: TokenizerProcess | Missing,
    tokenizer_config: Document | Missing,
    config_beside: Document | Missing,
    special: tuple[SpecialToken, ...],
    options: Options,
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
    declared = Declared(tables)
    vocabulary = Vocabulary(
        declared=declared,
        companions=companions,
        pipeline_or=file.pipeline if file else Missing("there is no tokenizer.json"),
        loaded_or=Missing("there is no tokenizer.json"),
        emissions=file.emissions if file else (),
        target=_target_table(tokens),
        merges_file=merges if isinstance(merges, MergesFile) else None,
        unread=unread,
    )
    if options.lock or options.snapshot:
        from tokaudit.locks.make import list_digests

        vocabulary = replace(vocabulary, digests_or=list_digests(vocabulary))
    asked = {token.content for token in vocabulary.added if token.special}
    asked |= {token.content for token in special if token.content}
    asked |= {text for template in templates for text in template.control}
    _ = declared.by_content, declared.by_id  # worked out while the library loads the file
    loaded = _loaded(process, file, sorted(asked), deep=options.deep)
    if isinstance(loaded, Fact):
        problem = problem or _cause(tokens, file) or loaded
        loaded = Missing("the tokenizers library cannot use tokenizer.json")
    if file is not None:
        found = tokens.attempt(
            TOKENIZER_JSON,
            lambda: tokenizer_class(tokenizer_config, config_beside, file.pipeline),
        )
        vocabulary = replace(vocabulary, class_or=found)
        if isinstance(loaded, Loaded) and isinstance(process, TokenizerProcess):
            rebuilt = answer(lambda: compare_rebuilt(process, vocabulary, tokenizer_config, special))
            loaded = replace(loaded, rebuilt=rebuilt)
    if isinstance(loaded, Loaded) and isinstance(process, TokenizerProcess):
        texts = _probe_texts(vocabulary, special, options)
        if texts:
            loaded = replace(loaded, probes=answer(lambda: _probed(process, texts)))
    return replace(vocabulary, loaded_or=loaded), templates, problem


def _cause(tokens: Reader, file: tokenizer_json.TokenizerFile | None) -> Fact[str] | None:
    """Why the library refuses the file, in more helpful words than its own, if tokaudit knows."""
    if TOKENIZER_JSON in tokens.marked:
        words = "it begins with a byte order mark (EF BB BF), which the tokenizers library refuses"
        return Fact(words, Location(TOKENIZER_JSON))
    if file is None or file.base is None:
        return None
    return tokenizer_json.merge_problem(file.pipeline, file.base)


def _tokenizer_file(tokens: Reader) -> tuple[tokenizer_json.TokenizerFile | None, Fact[str] | None]:
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
    tokens: Reader, tokenizer_config: Document | Missing, file: tokenizer_json.TokenizerFile | None
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
    tokens: Reader, tokenizer_config: Document | Missing, *, alone: bool
) -> tuple[tuple[TokenTable, ...], tuple[str, ...]]:
    """The tables of the vocabulary files, in the order loaders look, and why others say nothing.

    A damaged file leaves no verdict where it is ``alone``, without a tokenizer.json.
    """
    settings = tokenizer_config.data if isinstance(tokenizer_config, Document) else {}
    found: list[TokenTable | Missing] = []
    for file in vocabulary_files.JSON_FILES:
        document = tokens.document(file, limits.TOKENIZER_BYTES)
        if isinstance(document, Document):
            found.append(answer(partial(vocabulary_files.vocab_json, document)))
    for file, read in vocabulary_files.byte_files(tokens.names, settings):
        data = tokens.data(file, limits.TOKENIZER_BYTES)
        if isinstance(data, bytes):
            found.append(_side_file(tokens, partial(read, data), alone=alone))
    tables = tuple(table for table in found if isinstance(table, TokenTable))
    return tables, tuple(table.reason for table in found if isinstance(table, Missing))


def _merges_file(tokens: Reader, *, alone: bool) -> MergesFile | Missing | None:
    """merges.txt; None where there is none."""
    if vocabulary_files.MERGES_FILE not in tokens.names:
        return None
    data = tokens.data(vocabulary_files.MERGES_FILE, limits.TOKENIZER_BYTES)
    if isinstance(data, Missing):
        return data
    return _side_file(
        tokens, partial(vocabulary_files.merges_txt, data, vocabulary_files.MERGES_FILE), alone=alone
    )


def _side_file(tokens: Reader, read: Callable[[], T], *, alone: bool) -> T | Missing:
    try:
        return read()
    except FactMissing as missing:
        return Missing(missing.reason)
    except Unreadable as error:
        if alone:
            tokens.unreadable.append(error)
        return Missing(f"{error.file}: {error.message}")


def _target_table(tokens: Reader) -> TokenTable | None:
    """The decoder's own vocabulary: Marian with separate_vocabs, FSMT."""
    for file in vocabulary_files.TARGET_FILES:
        document = tokens.document(file, limits.TOKENIZER_BYTES)
        if isinstance(document, Document):
            found = tokens.attempt(file, partial(vocabulary_files.vocab_json, document))
            return found if isinstance(found, TokenTable) else None
    return None


def _templates(
    tokens: Reader, tokenizer_config: Document | Missing, known: set[str]
) -> tuple[ChatTemplate, ...]:
    """The chat templates: those in files of their own, or (where there is none) those inside JSON files.

    One that is beyond a limit leaves no verdict: rules on it would be switched off.
    """
    found: list[chat_template.Stated] = []
    for name, file in chat_templates.template_files(tokens.names):
        data = tokens.data(file)
        if isinstance(data, bytes):
            found.append((name, chat_template.decoded(data), Location(file)))
    if not found:
        for document in (tokens.document(chat_templates.PROCESSOR_FILE), tokenizer_config):
            taken = {name for name, _, _ in found}
            stated = chat_templates.stated_templates(document)
            found += [template for template in stated if template[0] not in taken]
    templates = chat_template.read_all(found, known)
    tokens.unreadable += [
        Unreadable("template-limit", template.at.file, template.problem, hint="is it a chat template at all?")
        for template in templates
        if template.problem and not template.broken
    ]
    return templates


def _probe_texts(
    vocabulary: Vocabulary, special: tuple[SpecialToken, ...], options: Options
) -> tuple[str, ...]:
    """The texts of the lock that the files are compared with, or those of one that is to be made."""
    if options.lock is not None:
        return tuple(probe.text for probe in options.lock.probes or ())
    if not options.snapshot:
        return ()
    from tokaudit.locks.probes import probe_texts

    return probe_texts(vocabulary, special)


def _probed(process: TokenizerProcess, texts: tuple[str, ...]) -> dict[str, tuple[int, ...] | None]:
    found = process.encode_with_special(texts)
    return {text: found.get(text) for text in texts}


def _unreachable(process: TokenizerProcess) -> tuple[int, ...] | Missing:
    try:
        return process.unreachable(most_tokens=MOST_TOKENS_TRIED)
    except NotAsked as missing:
        return Missing(f"{missing.reason}; --deep tries them all")
    except TokenizerFailure as failure:
        return Missing(f"the tokenizers library failed: {failure.message}")


def try_tokens(
    vocabulary: Vocabulary | Missing, process: TokenizerProcess | Missing
) -> Callable[[], Vocabulary | Missing]:
    """Have every token tried while the caller reads rows; what is returned gives the vocabulary that knows.

    Until it was called, nothing else can be asked of the process.
    """
    if isinstance(vocabulary, Missing) or isinstance(process, Missing):
        return lambda: vocabulary
    loaded = vocabulary.loaded_or
    if isinstance(loaded, Missing):
        return lambda: vocabulary
    finish = process.try_tokens()
    return lambda: replace(vocabulary, loaded_or=replace(loaded, unreachable=answer(finish)))


def _effective(found: Mapping[str, int], file: tokenizer_json.TokenizerFile | None) -> Mapping[str, int]:
    """The ids of all added tokens.

    Of those that share an id in the base vocabulary the library tells one; the others have it as well.
    """
    if file is None or file.base is None:
        return found
    base = file.base.ids
    untold = [content for content in file.added.ids if content and content not in found and content in base]
    return {**found, **{content: base[content] for content in untold}} if untold else found


def _loaded(
    process: TokenizerProcess | Missing,
    file: tokenizer_json.TokenizerFile | None,
    asked: list[str],
    *,
    deep: bool,
) -> Loaded | Missing | Fact[str]:
    """What the library made of the file; a Fact with the cause where it refuses or dies, then or in use."""
    if isinstance(process, Missing):
        return process
    try:
        result = process.loaded()
    except TokenizerFailure as failure:
        return Fact(failure.message, Location(TOKENIZER_JSON))
    try:
        use(process)
    except TokenizerFailure as failure:
        return Fact(
            f"it loads, but encoding and decoding a text fails: {failure.message}", Location(TOKENIZER_JSON)
        )
    return Loaded(
        version=result.version,
        effective=_effective(result.effective, file),
        encodings=answer(lambda: process.encode(asked)),
        unreachable=Missing("the tokens are still tried") if deep else _unreachable(process),
        rebuilt=Missing("the tokenizer class was not asked"),
    )
