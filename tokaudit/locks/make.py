"""Contract -> Lock: the fingerprints of a model as its files stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from tokaudit.contract import (
    Contract,
    Document,
    IdField,
    ListDigest,
    ListDigests,
    Lock,
    LockedRole,
    LockedTable,
    LockedToken,
    Missing,
    Pipeline,
    Probe,
    Rebuilt,
    Role,
    Table,
    Treatment,
    Vocabulary,
    present,
)
from tokaudit.errors import FactMissing
from tokaudit.locks.digests import (
    LARGEST_ID,
    mapping_digest,
    merges_digest,
    scores_digest,
    sha256,
    tensor_digest,
)
from tokaudit.locks.normal import normal_parts
from tokaudit.sources import Source

T = TypeVar("T")

# What a model class may put before the names of its base model's tensors.
_WRAPPERS = frozenset({"model", "transformer", "language_model", "base_model"})
# The fields that transformers copies from config.json where there is no generation_config.json.
_GENERATION_FIELDS = frozenset(
    {
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "decoder_start_token_id",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "suppress_tokens",
        "begin_suppress_tokens",
        "bad_words_ids",
    }
)
_SECTIONS = ("", "decoder", "generator", "text_config")  # in which they are looked for, in this order


def snapshot(contract: Contract, source: Source) -> Lock:
    """Fingerprint every layer whose facts are there.

    ``source`` is where the weights are; with ``deep`` their tables are read. Raises Unreadable.
    """
    vocabulary = contract.vocabulary_or
    pipeline = vocabulary.pipeline_or if isinstance(vocabulary, Vocabulary) else vocabulary
    return Lock(
        name=contract.name,
        mapping=_known(lambda: _mapping(contract.vocabulary)),
        added_tokens=_known(lambda: tuple(_added_tokens(contract.vocabulary))),
        merges=_known(lambda: contract.vocabulary.digests.merges),
        scores=_known(lambda: contract.vocabulary.digests.scores),
        parts=normal_parts(pipeline) if isinstance(pipeline, Pipeline) else None,
        rebuilt_by=_known(lambda: _rebuilt_by(contract.vocabulary)),
        templates=_known(lambda: _templates(contract)),
        roles=_known(lambda: _roles(contract)),
        ids=_known(lambda: _ids(contract)),
        generation_ids=_known(lambda: _generation_ids(contract)),
        expected_rows=_known(lambda: _expected_rows(contract)),
        tables=_known(lambda: tuple(map(locked_table, counting_tables(contract)))),
        tied=_known(lambda: contract.embeddings.tie.tied),
        contents=_known(lambda: _contents(contract, source)) if _reads_contents(contract) else None,
        probes=_known(lambda: tuple(_probes(contract))),
    )


def list_digests(vocabulary: Vocabulary) -> ListDigests:
    """The digests that do not depend on what the library makes of the file."""
    return ListDigests(
        mapping=mapping_digest(vocabulary.by_content),
        merges=_known(lambda: merges_digest(vocabulary.pipeline)),
        scores=_known(lambda: scores_digest(_scores(vocabulary.pipeline))),
    )


def counting_tables(contract: Contract) -> tuple[Table, ...]:
    """The tables that a loader ends up with: an equal copy of one that it is made one with is none.

    Raises FactMissing where not all weights can be read.
    """
    contract.whole_checkpoint  # noqa: B018  (raises where a table might be missing)
    embeddings = contract.embeddings
    return tuple(table for table in embeddings.tables if not _is_equal_copy(contract, table))


def short_name(table: Table) -> str:
    """The tensor's name without what a model class puts before it: "model.", "transformer." ..."""
    words = table.name.split(".")
    while len(words) > 2 and words[0] in _WRAPPERS:
        del words[0]
    return ".".join(words)


def _known(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except FactMissing:
        return None


def _mapping(vocabulary: Vocabulary) -> ListDigest:
    """Of effective ids, which seldom are not those that the files declare."""
    effective = vocabulary.effective
    same = effective is vocabulary.by_content
    return vocabulary.digests.mapping if same else mapping_digest(effective)


def _added_tokens(vocabulary: Vocabulary) -> Iterator[LockedToken]:
    effective = vocabulary.effective
    for id, token in sorted(
        ((effective[token.content], token) for token in vocabulary.added),
        key=lambda pair: (pair[0], pair[1].content),
    ):
        yield LockedToken(
            id, token.content, token.special, token.lstrip, token.rstrip, token.normalized, token.single_word
        )


def _scores(pipeline: Pipeline) -> list[float]:
    vocab = pipeline.model.data.get("vocab")
    if not isinstance(vocab, list):
        raise FactMissing("the tokenizer's model has no scores")
    scores = [entry[1] for entry in vocab if isinstance(entry, list) and len(entry) == 2]
    if len(scores) != len(vocab) or not all(type(score) in (int, float) for score in scores):
        raise FactMissing("the scores cannot be read")
    return scores


def _rebuilt_by(vocabulary: Vocabulary) -> str:
    """The class whose pipeline encodes otherwise than the one in tokenizer.json, or may do so."""
    rebuilt = vocabulary.loaded.rebuilt
    known = vocabulary.class_or
    if isinstance(known, Missing) or known.treatment is Treatment.AS_IT_STANDS:
        return ""
    return "" if isinstance(rebuilt, Rebuilt) and rebuilt.saved == rebuilt.rebuilt else known.name


def _templates(contract: Contract) -> Mapping[str, str]:
    """Rendering sees neither how lines end nor one line end at the end of the file."""
    contract.vocabulary  # noqa: B018  (a directory without a tokenizer says nothing about templates)
    return {template.name: template_digest(template.text) for template in contract.templates}


def template_digest(text: str) -> str:
    return sha256(normal_template(text).encode("utf-8", "surrogatepass"))


def normal_template(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def _roles(contract: Contract) -> Mapping[str, LockedRole]:
    """The token of each role. Where no file names a pad token, loaders take the one of the saved padding."""
    vocabulary = contract.vocabulary
    texts = {
        special.role.value: special.content
        for special in reversed(contract.special_tokens)
        if special.role is not None and special.content
    }
    with suppress(FactMissing):
        padding = vocabulary.pipeline.document.string("padding", "pad_token").value
        texts.setdefault(Role.PAD.value, padding)
    return {role: LockedRole(content, vocabulary.effective.get(content)) for role, content in texts.items()}


def _ids(contract: Contract) -> Mapping[str, tuple[int, ...]]:
    contract.config  # noqa: B018  (without one, nothing is known about its fields)
    return {
        ".".join(filter(None, (field.section, field.name))): _set(field)
        for field in contract.id_fields
        if field.ids and not field.generation
    }


def _generation_ids(contract: Contract) -> Mapping[str, tuple[int, ...]]:
    """What generation reads: generation_config.json, else what transformers would copy from config.json."""
    if isinstance(contract.generation_config_or, Document):
        return {field.name: _set(field) for field in contract.id_fields if field.ids and field.generation}
    contract.config  # noqa: B018  (as above)
    stated = {
        (field.section, field.name): _set(field)
        for field in contract.id_fields
        if field.ids and field.name in _GENERATION_FIELDS
    }
    return {
        name: next(stated[section, name] for section in _SECTIONS if (section, name) in stated)
        for name in _GENERATION_FIELDS
        if any((section, name) in stated for section in _SECTIONS)
    }


def _set(field: IdField) -> tuple[int, ...]:
    """The ids in order; a number that can be none is cut to what a lock can hold."""
    return tuple(sorted({max(-LARGEST_ID, min(LARGEST_ID, id)) for id in field.ids}))


def _expected_rows(contract: Contract) -> int:
    embeddings = contract.embeddings
    known = embeddings.expected_input_or
    if isinstance(known, Missing) and embeddings.vocab_sizes:
        return min(LARGEST_ID, embeddings.vocab_sizes[0].value)
    return min(LARGEST_ID, embeddings.expected_input.value)


def _is_equal_copy(contract: Contract, table: Table) -> bool:
    """Whether a loader takes it for another table's storage, whose bytes it has."""
    embeddings = contract.embeddings
    try:
        if table is embeddings.output_or:
            return embeddings.tie.tied and contract.comparison(embeddings.tie_partner, table).equal
        return table.copy and contract.comparison(embeddings.input, table).equal
    except FactMissing:
        return False


def locked_table(table: Table) -> LockedTable:
    rows = table.rows_or if isinstance(table.rows_or, int) else None
    return LockedTable(table.kind.value, short_name(table), rows, table.hidden, table.tensor.dtype)


def _reads_contents(contract: Contract) -> bool:
    """Whether they were asked for and, beside a lock, it holds some to compare with."""
    lock = contract.options.lock
    return contract.options.deep and (lock is None or lock.contents is not None)


def _contents(contract: Contract, source: Source) -> Mapping[str, str]:
    return {short_name(table): tensor_digest(source, table.tensor) for table in counting_tables(contract)}


def _probes(contract: Contract) -> Iterator[Probe]:
    for text, ids in present(contract.vocabulary.loaded.probes).items():
        yield Probe(text, ids)
