"""The changes to the JSON files: new tokens, roles, ids and sizes, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tokaudit.contract import AddedToken, Contract, IdField, Missing, Role, Vocabulary, Witness, present
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.resize.plan import FileEdit, TensorEdit
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.tokens import stated_added
from tokaudit.tokenizing.renumber import effective_ids

_TOKENIZER_FILES = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.json"
    r"|merges\.txt|vocab\.txt|[^/]*\.model|[^/]*\.tiktoken|chat_template\.jinja|additional_chat_templates/.+"
)


def tokenizer_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files of a directory that make up its tokenizer."""
    return tuple(sorted(name for name in names if _TOKENIZER_FILES.fullmatch(name)))


def tokenizer_edits(contract: Contract, request: Request, added: Sequence[AddedToken]) -> Iterator[FileEdit]:
    vocabulary = contract.vocabulary_or
    if isinstance(vocabulary, Missing):
        if added or request.roles:
            raise Refused(f"no tokenizer to add a token to: {vocabulary.reason}")
        return
    if added:
        if isinstance(vocabulary.pipeline_or, Missing):
            raise Refused(
                "tokens can only be added to a tokenizer.json, and there is none",
                hint="save the tokenizer with transformers as a fast tokenizer first",
            )
        yield from _added_token_edits(contract, vocabulary, added)
    yield from _role_text_edits(contract, request)


def _added_token_edits(
    contract: Contract, vocabulary: Vocabulary, added: Sequence[AddedToken]
) -> Iterator[FileEdit]:
    entries = [
        {
            "id": token.id,
            "content": token.content,
            "single_word": token.single_word,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "special": token.special,
        }
        for token in added
    ]
    tokenizer = Location("tokenizer.json")
    if _needs_vocabulary_entries(vocabulary, added):
        at = tokenizer.child("model", "vocab")
        members = [(token.content, token.id) for token in added]
        yield FileEdit(at, "set", ("model", "vocab"), None, members)
        for table in vocabulary.companions:
            if table.at.file == "vocab.json":
                yield FileEdit(table.at, "set", (), None, members)
    yield FileEdit(tokenizer.child("added_tokens"), "append", ("added_tokens",), None, entries)
    for table in vocabulary.tables:
        if table.witness is Witness.DECODER:
            decoder = [
                (str(entry["id"]), {key: value for key, value in entry.items() if key != "id"})
                for entry in entries
            ]
            yield FileEdit(table.at, "set", ("added_tokens_decoder",), None, decoder)
        elif table.witness is Witness.ADDED_FILE:
            yield FileEdit(table.at, "set", (), None, [(token.content, token.id) for token in added])


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
    if all(given[content] == id for content, id in wanted.items()):
        return False
    if base.style == "index":
        raise Refused("the tokenizers library would give the new tokens other ids than the next free ones")
    shifted = effective_ids({**base.ids, **wanted}, [*old, *new])
    if any(shifted[content] != given[content] for content in old):
        raise Refused("the holes of the base vocabulary leave no way to add a token without moving others")
    return True


def _role_text_edits(contract: Contract, request: Request) -> Iterator[FileEdit]:
    """The role's text in every file that states it, and in tokenizer_config.json where none does."""
    for role, text in request.roles.items():
        name = f"{role.value}_token"
        stated = [
            special
            for special in (*contract.special_tokens, *contract.stale_special_tokens)
            if special.role is role and not special.by_default
        ]
        for special in stated:
            yield FileEdit(special.at, "replace", _steps(special.at), special.content, text)
        if not stated and not isinstance(contract.tokenizer_config_or, Missing):
            at = contract.tokenizer_config.at
            yield FileEdit(at.child(name), "set", (), None, [(name, text)])


def config_edits(
    contract: Contract, request: Request, added: Sequence[AddedToken], after: int
) -> Iterator[FileEdit]:
    for fact in contract.embeddings.vocab_sizes:
        if fact.value != after:
            yield FileEdit(fact.at, "replace", _steps(fact.at), fact.value, after)
    ids = {token.content: token.id for token in added}
    for role, text in request.roles.items():
        id = ids[text] if text in ids else contract.vocabulary.token(text).id
        yield from _role_id_edits(contract, role, id)


def _role_id_edits(contract: Contract, role: Role, id: int) -> Iterator[FileEdit]:
    """The role's id in every configuration: replaced; added to a list of stop ids; set where it is absent."""
    name = f"{role.value}_token_id"
    fields = [field for field in contract.fields(role) if not field.by_default]
    for stated in fields:
        if stated.is_list and id not in stated.ids:
            yield FileEdit(stated.at, "append", _steps(stated.at), list(stated.ids), [id])
        elif not stated.is_list and stated.ids != (id,):
            yield FileEdit(stated.at, "replace", _steps(stated.at), _single(stated), id)
    for document in (contract.config_or, contract.generation_config_or):
        if isinstance(document, Missing) or any(_in_file(field, document.at.file) for field in fields):
            continue
        yield FileEdit(document.at.child(name), "set", (), None, [(name, id)])


def _in_file(field: IdField, file: str) -> bool:
    return field.at.file == file


def _single(field: IdField) -> int | None:
    return field.ids[0] if field.ids else None


def index_edit(contract: Contract, tensors: Sequence[TensorEdit]) -> Iterator[FileEdit]:
    try:
        total = present(contract.checkpoint.index.total_size)
    except FactMissing:
        return
    grown = sum(edit.bytes_added for edit in tensors)
    if grown and type(total.value) is int:
        yield FileEdit(total.at, "replace", _steps(total.at), total.value, total.value + grown)


def _steps(at: Location) -> tuple[str | int, ...]:
    """A JSON pointer as the steps of a path."""
    keys = [step.replace("~1", "/").replace("~0", "~") for step in at.pointer.split("/")[1:]]
    return tuple(keys)
