"""The changes to the JSON files: new tokens, roles, ids and sizes, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokaudit.contract import (
    AddedToken,
    Contract,
    Document,
    IdField,
    Missing,
    Role,
    RowCount,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.formats.vocabulary_files import is_tokenizer_file
from tokaudit.resize.plan import FileEdit, TensorEdit
from tokaudit.resize.request import Refused
from tokaudit.resize.tokens import stated_added
from tokaudit.text import shown
from tokaudit.tokenizing import effective_ids

_TEMPLATES = re.compile(r"chat_template\.(json|jinja)|additional_chat_templates/.+")

Steps = tuple[str | int, ...]


def tokenizer_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files of a directory that make up its tokenizer."""
    return tuple(sorted(name for name in names if is_tokenizer_file(name) or is_template(name)))


def is_template(name: str) -> bool:
    """Whether a file is a chat template of its own."""
    return bool(_TEMPLATES.fullmatch(name))


def _replace(at: Location, before: object, after: object) -> FileEdit:
    return FileEdit(at, "replace", _steps(at), before, after)


def _set(at: Location, after: object) -> FileEdit:
    return FileEdit(at, "set", _steps(at), None, after)


def _extend(at: Location, members: Mapping[str, object]) -> FileEdit:
    return FileEdit(at, "extend", _steps(at), None, members)


def _append(at: Location, items: Sequence[object]) -> FileEdit:
    return FileEdit(at, "append", _steps(at), None, items)


def _steps(at: Location) -> Steps:
    """A JSON pointer as the steps of a path."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in at.pointer.split("/")[1:])


# --- tokens ----------------------------------------------------------------------------------------------


def added_token_edits(vocabulary: Vocabulary, added: Sequence[AddedToken]) -> Iterator[FileEdit]:
    """The new tokens in every file that lists added tokens. Raises Refused where their ids cannot be had."""
    if not added:
        return
    tokenizer = Location("tokenizer.json")
    if _needs_vocabulary_entries(vocabulary, added):
        members = {token.content: token.id for token in added}
        yield _extend(tokenizer.child("model", "vocab"), members)
        for table in vocabulary.companions:
            if table.at.file == "vocab.json":
                yield _extend(table.at, members)
    yield _append(
        tokenizer.child("added_tokens"),
        [{"id": token.id, "content": token.content, **_flags(token)} for token in added],
    )
    for table in vocabulary.tables:
        if table.witness is Witness.DECODER:
            decoder = {
                str(token.id): {"content": token.content, **dict(sorted(_flags(token).items()))}
                for token in added
            }
            yield _extend(table.at, decoder)
        elif table.witness is Witness.ADDED_FILE:
            yield _extend(table.at, {token.content: token.id for token in added})


def _flags(token: AddedToken) -> dict[str, bool]:
    return {
        "single_word": token.single_word,
        "lstrip": token.lstrip,
        "rstrip": token.rstrip,
        "normalized": token.normalized,
        "special": token.special,
    }


def _needs_vocabulary_entries(vocabulary: Vocabulary, added: Sequence[AddedToken]) -> bool:
    """Whether the library would number the new tokens otherwise than wanted.

    It numbers added tokens from the count of the base vocabulary; where that has holes, only a token that
    stands in ``model.vocab`` too keeps its id. Raises Refused where that cannot be had either.
    """
    old = [token.content for token in stated_added(vocabulary)]
    new = [token.content for token in added]
    base = vocabulary.base
    wanted = {token.content: token.id for token in added}
    given = effective_ids(base.ids, [*old, *new])
    if wanted.items() <= given.items():
        return False
    if base.style == "index":
        raise Refused("the tokenizers library would give the new tokens other ids than the next free ones")
    shifted = effective_ids({**base.ids, **wanted}, [*old, *new])
    if any(shifted[content] != given[content] for content in old):
        raise Refused("the holes of the base vocabulary leave no way to add a token without moving others")
    return True


# --- roles -----------------------------------------------------------------------------------------------


def role_text_edits(
    contract: Contract, special_map: Document | Missing, roles: Mapping[Role, str], ids: Mapping[str, int]
) -> Iterator[FileEdit]:
    """The role's text in every file that states it, and in tokenizer_config.json where none does.

    Raises Refused for an unknown token other than the one that the tokenizer's model has.
    """
    documents = [part for part in (contract.tokenizer_config_or, special_map) if isinstance(part, Document)]
    for role, text in roles.items():
        name = f"{role.value}_token"
        stating = [document for document in documents if name in document.data]
        for document in stating:
            before = document.data[name]
            at = document.at.child(name)
            if isinstance(before, dict) and "content" in before:
                at, before = at.child("content"), before["content"]
            if before != text:
                yield _replace(at, before, text)
        if not stating and documents:
            yield _set(documents[0].at.child(name), text)
    yield from _pipeline_edits(contract.vocabulary, roles, ids)


def _pipeline_edits(
    vocabulary: Vocabulary, roles: Mapping[Role, str], ids: Mapping[str, int]
) -> Iterator[FileEdit]:
    """What tokenizer.json itself says of roles: saved padding, and the model's unknown token."""
    if isinstance(vocabulary.pipeline_or, Missing):
        return
    document = vocabulary.pipeline.document
    pad = roles.get(Role.PAD)
    padding = document.data.get("padding")
    if pad is not None and isinstance(padding, dict):
        wanted = {"pad_id": ids[pad], "pad_token": pad}
        for key, value in wanted.items():
            if padding.get(key) != value:
                yield _replace(document.at.child("padding", key), padding.get(key), value)
    unknown = roles.get(Role.UNK)
    stated = _models_unknown_token(vocabulary)
    if unknown is not None and stated not in (None, unknown):
        raise Refused(
            f"the tokenizer's model turns unknown text into {shown(str(stated))}: with another unknown token"
            " old text would be encoded differently"
        )


def _models_unknown_token(vocabulary: Vocabulary) -> object:
    model = vocabulary.pipeline.model.data
    unk_id = model.get("unk_id")
    return vocabulary.text(unk_id) if type(unk_id) is int else model.get("unk_token")


def role_id_edits(
    contract: Contract, roles: Mapping[Role, str], ids: Mapping[str, int]
) -> Iterator[FileEdit]:
    """The role's id in every configuration: replaced; added to a list of stop ids; set where it is absent."""
    for role, text in roles.items():
        id = ids[text]
        fields = [field for field in contract.fields(role) if not field.by_default]
        fields += _forced(contract, role)
        for field in fields:
            if id in field.ids:
                continue
            if field.is_list:
                yield FileEdit(field.at, "append", _steps(field.at), list(field.ids), [id])
            else:
                yield _replace(field.at, field.ids[0] if field.ids else None, id)
        stating = {field.at.file for field in fields}
        for document in (contract.config_or, contract.generation_config_or):
            if isinstance(document, Document) and document.at.file not in stating:
                yield _set(document.at.child(f"{role.value}_token_id"), id)


def _forced(contract: Contract, role: Role) -> list[IdField]:
    """Fields that force the role's token, as BART's `forced_eos_token_id`."""
    try:
        old = contract.role(role).id
    except FactMissing:
        return []
    name = f"forced_{role.value}_token_id"
    fields = (field for field in contract.id_fields if field.name == name and not field.is_list)
    return [field for field in fields if field.ids == (old,)]


# --- sizes -----------------------------------------------------------------------------------------------


def size_edits(contract: Contract, tensors: Sequence[TensorEdit], after: int) -> Iterator[FileEdit]:
    """Every field that sizes one of the tables, and those that repeat the input table's rows.

    A field that the file leaves out to its class's default is set where the default no longer fits.
    """
    wanted = {fact.at: (fact.value, after) for fact in contract.embeddings.vocab_sizes}
    for edit in tensors:
        if isinstance(edit.table.expected, RowCount):
            for term in edit.table.expected.terms:
                wanted.setdefault(term.at, (term.value, edit.rows_after))
    for at, (value, rows) in wanted.items():
        if value != rows:
            stated = contract.config.has(*_steps(at))
            yield _replace(at, value, rows) if stated else _set(at, rows)


def index_edits(
    contract: Contract, index: Document | Missing, tensors: Sequence[TensorEdit]
) -> Iterator[FileEdit]:
    """The totals of the index (transformers 5 counts numbers too); tensors and files keep their names."""
    if isinstance(index, Missing) or not tensors:
        return
    own = [edit for edit in tensors if not edit.repeats]
    totals = {
        "total_size": contract.checkpoint.nbytes + sum(edit.bytes_added for edit in tensors),
        "total_parameters": sum(edit.values_added for edit in own),
    }
    metadata = index.data.get("metadata")
    for key, value in totals.items():
        before = metadata.get(key) if isinstance(metadata, dict) else None
        if not isinstance(before, (int, float)) or isinstance(before, bool):
            continue
        after = value if key == "total_size" else int(before) + value
        if after != before:
            yield _replace(index.at.child("metadata", key), before, after)
