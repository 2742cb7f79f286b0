"""What a resize will do, as data: pure, without torch, printable and testable before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tokaudit.contract import (
    FLOAT_DTYPES,
    AddedToken,
    Contract,
    IdField,
    Missing,
    Role,
    Table,
    TableKind,
    Vocabulary,
    Witness,
    present,
)
from tokaudit.errors import FactMissing, TokauditError
from tokaudit.findings import Location, Severity
from tokaudit.report import Report
from tokaudit.text import counted, listed, named, shown
from tokaudit.tokenizing.renumber import effective_ids

LARGEST_ROWS = 2**31 - 1  # ids are 32-bit signed integers in the kernels that look them up

# The initialisers by name; initialisers.py has their formulas.
METHODS = (
    "mean-of-subwords",
    "mean",
    "subword-mean-rescaled",
    "weighted-subwords",
    "normal",
    "zeros",
    "copy",
    "description",
)

# Errors of the source that a resize mends: rows that are too few, and vocab_size fields that disagree with
# tables which agree among themselves.
CURED = frozenset({"TA101", "TA103", "TA104", "TA301", "TA313", "TA412"})


class Refused(TokauditError):
    """The resize cannot be done right; nothing was written."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to add, as it is asked for. ``init`` overrides the initialiser ("zeros", "copy=TOKEN")."""

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None  # default: not special, as the library has it
    single_word: bool = False
    init: str = ""


@dataclass(frozen=True)
class Request:
    """What the caller wants. ``rows`` and ``multiple`` size the tables, ``roles`` maps a role to its text."""

    tokens: tuple[NewToken, ...] = ()
    roles: Mapping[Role, str] = field(default_factory=dict)
    rows: int | None = None
    multiple: int | None = None
    init: str = "mean-of-subwords"
    output_init: str = ""
    seed: int = 0
    force: bool = False
    link: bool = False
    optimizer: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the old tokenizer that a new token's text falls into."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to write. ``content`` is None for a padding row; ``pieces`` are what its values come from.

    ``method`` initialises the input side, ``output_method`` the output side and the biases. ``note`` says
    why the method is not the one that was asked for.
    """

    id: int
    content: str | None
    method: str
    output_method: str
    pieces: tuple[Piece, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class TensorEdit:
    """A table that grows (or whose padding rows are written). ``output_side`` picks the initialiser."""

    table: Table
    rows_after: int
    output_side: bool

    @property
    def shape_after(self) -> tuple[int, ...]:
        shape = list(self.table.tensor.shape)
        shape[self.table.axis] = self.rows_after
        return tuple(shape)

    @property
    def bytes_added(self) -> int:
        tensor = self.table.tensor
        return (self.rows_after - self.table.rows) * (tensor.nbytes // max(1, self.table.rows))


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change to a JSON file: "replace" the value at ``path``, "set" members of it, or "append" items."""

    at: Location
    operation: str
    path: tuple[str | int, ...]
    before: object
    after: object


@dataclass(frozen=True)
class Plan:
    """Everything a resize will do. ``rows_before`` and ``rows_after`` count rows of the input table."""

    source: str
    rows_before: int
    rows_after: int
    added: tuple[AddedToken, ...]
    rows: tuple[NewRow, ...]
    tensors: tuple[TensorEdit, ...]
    files: tuple[FileEdit, ...]
    replaced_files: tuple[str, ...]  # taken from the other tokenizer's directory
    tied: bool
    notes: tuple[str, ...]

    @property
    def nothing_to_do(self) -> bool:
        return not (self.tensors or self.files or self.replaced_files)

    @property
    def rewritten_shards(self) -> tuple[str, ...]:
        return tuple(sorted({edit.table.tensor.file for edit in self.tensors}))


# --- which tokens, which ids ---------------------------------------------------------------------------


def tokens_to_add(contract: Contract, request: Request) -> tuple[AddedToken, ...]:
    """The asked tokens with their ids: from the largest declared or effective id + 1 on, holes are left.

    Tokens that the tokenizer has already are left out. Raises Refused for an empty or repeated text.
    """
    vocabulary = contract.vocabulary
    largest = max(vocabulary.required_rows.value - 1, *vocabulary.loaded.effective.values(), -1)
    asked = [*request.tokens]
    known = {token.content for token in asked}
    asked += [NewToken(text, special=True) for text in request.roles.values() if text not in known]
    found: list[AddedToken] = []
    for token in asked:
        if not token.content:
            raise Refused("a new token has an empty text", hint="the tokenizers library skips such a token")
        if any(token.content == other.content for other in found):
            raise Refused(f"the token {shown(token.content)} is asked for twice")
        if token.content in vocabulary.by_content:
            continue
        largest += 1
        at = Location("tokenizer.json").child("added_tokens", len(_stated_added(vocabulary)) + len(found))
        found.append(
            AddedToken(
                id=largest,
                content=token.content,
                at=at,
                special=token.special,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=not token.special if token.normalized is None else token.normalized,
                single_word=token.single_word,
            )
        )
    return tuple(found)


def tokens_of_target(contract: Contract, target: Contract) -> tuple[AddedToken, ...]:
    """The tokens that the target tokenizer has and the model has no row, or no token, for.

    Raises Refused where an id that both have stands for other texts.
    """
    theirs = target.vocabulary
    ours = _known_ids(contract)
    if contract.name != target.name:
        _refuse_moved(ours, theirs)
    rows = contract.embeddings.input.rows
    flags = {token.content: token for token in theirs.added}
    fresh = [
        (id, content)
        for content, id in theirs.by_content.items()
        if id >= rows or (ours and content not in ours)
    ]
    return tuple(
        flags.get(content) or AddedToken(id, content, theirs.locate(id)) for id, content in sorted(fresh)
    )


def _known_ids(contract: Contract) -> Mapping[str, int]:
    vocabulary = contract.vocabulary_or
    return vocabulary.by_content if isinstance(vocabulary, Vocabulary) else {}


def _refuse_moved(ours: Mapping[str, int], theirs: Vocabulary) -> None:
    moved = [
        f"{shown(content)} from {id} to {theirs.by_content.get(content, 'nothing')}"
        for content, id in ours.items()
        if theirs.by_content.get(content) != id
    ]
    if moved:
        raise Refused(
            f"{counted(len(moved), 'token')} would move: {listed(moved)}",
            hint="--to-tokenizer needs a tokenizer that keeps every old id",
        )


def _stated_added(vocabulary: Vocabulary) -> tuple[AddedToken, ...]:
    try:
        return vocabulary.table(Witness.ADDED).entries
    except FactMissing:
        return ()


# --- the plan ------------------------------------------------------------------------------------------


def make_plan(
    contract: Contract,
    report: Report,
    request: Request,
    added: Sequence[AddedToken],
    pieces: Mapping[str, tuple[int, ...]],
    target: Contract | None = None,
) -> Plan:
    """Decide everything. ``pieces`` are the old tokenizer's ids for the text of each new token.

    Raises Refused with the reason where the outcome would not be right.
    """
    _refuse_broken_source(report, request)
    tables = _growing_tables(contract)
    before = contract.embeddings.input.rows
    output_rows = present(contract.embeddings.output_or).rows if _has_output(contract) else 0
    required = max([*(token.id + 1 for token in added), _required(contract, target)])
    after = _target_rows(request, max(before, output_rows), required)
    rows = tuple(_new_rows(contract, request, added, pieces, before, after))
    tensors = tuple(
        TensorEdit(table, after, _is_output_side(table))
        for table in tables
        if table.rows < after or any(row.id < table.rows for row in rows)
    )
    files = tuple(_tokenizer_edits(contract, request, added)) if target is None else ()
    files += tuple(_config_edits(contract, request, added, after))
    files += tuple(_index_edit(contract, tensors))
    return Plan(
        source=contract.name,
        rows_before=before,
        rows_after=after,
        added=tuple(added),
        rows=rows,
        tensors=tensors,
        files=files,
        replaced_files=()
        if target is None or target.name == contract.name
        else tokenizer_files(target.files),
        tied=contract.embeddings.tie.tied,
        notes=tuple(_notes(contract, added)),
    )


def _replaced_files(contract: Contract, target: Contract | None) -> tuple[str, ...]:
    if target is None or target.name == contract.name:
        return ()
    return tokenizer_files(target.files)


def _refuse_broken_source(report: Report, request: Request) -> None:
    if report.unreadable:
        error = report.unreadable[0]
        raise Refused(f"{error.file or 'the source'} cannot be read: {error.message}", hint=error.hint)
    for finding in report.findings:
        if finding.severity is not Severity.ERROR or finding.rule in CURED:
            continue
        if request.force and not finding.rule.startswith(("TA1", "TA7", "TA4")):
            continue
        raise Refused(
            f"the source fails its audit: {finding.slug}: {finding.message}",
            hint=finding.fix,
        )


def _growing_tables(contract: Contract) -> tuple[Table, ...]:
    """Every table that has one row per token id. Raises Refused for one that cannot be extended rightly."""
    embeddings = contract.embeddings
    if isinstance(embeddings.input_or, Missing):
        raise Refused(f"no input table: {embeddings.input_or.reason}")
    for table in embeddings.tables:
        if table.packed:
            raise Refused(
                f"{table.name} is packed ({table.packed}): its rows cannot be written",
                hint="dequantise it first, or resize the model it was quantised from",
            )
        if table.malformed:
            raise Refused(f"{table.name} is malformed: {table.malformed}")
    if embeddings.extra_inputs:
        names = listed([table.name for table in embeddings.extra_inputs])
        raise Refused(f"the ids continue in a second input table ({names}), which has its own range")
    rows = embeddings.input.rows
    _refuse_fixed_rows(embeddings.input)
    found: list[Table] = []
    for table in embeddings.tables:
        if table.group != embeddings.input.group:
            raise Refused(
                f"{table.name} belongs to another vocabulary than {embeddings.input.name}",
                hint="tokaudit resizes models with one vocabulary",
            )
        if _own_size(table, embeddings.input):
            continue
        if table.tensor.dtype not in FLOAT_DTYPES:
            raise Refused(f"{table.name} holds {table.tensor.dtype} values per token id: nothing to average")
        if table.rows != rows and table.kind is not TableKind.INPUT:
            raise Refused(f"{table.name} has {table.rows} rows and {embeddings.input.name} has {rows}")
        found.append(table)
    return tuple(found)


def _own_size(table: Table, reference: Table) -> bool:
    """Whether the table's size is a config field of its own (Gemma-3n's per-layer embeddings, d2t maps)."""
    if isinstance(table.expected, Missing) or isinstance(reference.expected, Missing):
        return False
    fields = {term.at for term in table.expected.terms}
    return table.kind is TableKind.SECONDARY and bool(fields) and not (
        fields & {term.at for term in reference.expected.terms}
    )  # fmt: skip


def _refuse_fixed_rows(table: Table) -> None:
    """Families whose input table has rows behind the vocabulary (mllama: 8) that must stay at its end."""
    if isinstance(table.expected, Missing):
        return
    if [term.value for term in table.expected.terms] != [table.expected.value]:
        raise Refused(
            f"{table.name} has {table.expected.formula} rows by design",
            hint="new tokens would take the ids of the family's own rows at the end",
        )


def _is_output_side(table: Table) -> bool:
    return table.kind in (TableKind.OUTPUT, TableKind.BIAS) or "head" in table.name


def _has_output(contract: Contract) -> bool:
    return not isinstance(contract.embeddings.output_or, Missing)


def _required(contract: Contract, target: Contract | None) -> int:
    for side in (target, contract):
        if side is not None and isinstance(side.vocabulary_or, Vocabulary):
            return side.vocabulary_or.required_rows.value
    return 0


def _target_rows(request: Request, current: int, required: int) -> int:
    """max(current, required, asked), then the multiple; tables never shrink."""
    if request.rows is not None and request.rows < max(current, required):
        need = f"the tokens need {required}" if required > current else f"the tables have {current}"
        raise Refused(f"--rows {request.rows} is too few: {need}", hint="tables never shrink")
    after = max(current, required, request.rows or 0)
    if request.multiple is not None:
        if request.multiple < 1:
            raise Refused(f"--pad-to-multiple-of {request.multiple} is not a positive number")
        after = -(-after // request.multiple) * request.multiple
    if after > LARGEST_ROWS:
        raise Refused(f"{after} rows are more than ids can address ({LARGEST_ROWS})")
    return after


def _new_rows(
    contract: Contract,
    request: Request,
    added: Sequence[AddedToken],
    pieces: Mapping[str, tuple[int, ...]],
    before: int,
    after: int,
) -> Iterator[NewRow]:
    asked = {token.content: token.init for token in request.tokens}
    tokens = {token.id: token for token in added}
    for id in sorted({*tokens, *range(before, after)}):
        token = tokens.get(id)
        if token is None:
            yield NewRow(id, None, "padding", "padding")
            continue
        method = asked.get(token.content) or request.init
        output_method = asked.get(token.content) or request.output_init or request.init
        usable = _usable_pieces(contract, pieces.get(token.content, ()), before)
        note = ""
        if not usable and method not in ("mean", "zeros", "normal"):
            note = "its text has no pieces with a row: the mean of the used rows"
        yield NewRow(id, token.content, _name(method), _name(output_method), usable, note)


def _name(method: str) -> str:
    return method.partition("=")[0]


def _usable_pieces(contract: Contract, ids: Sequence[int], rows: int) -> tuple[Piece, ...]:
    """Pieces that have a row and are not the unknown token."""
    vocabulary = contract.vocabulary
    try:
        unknown = contract.role(Role.UNK).id
    except FactMissing:
        unknown = -1
    return tuple(Piece(id, vocabulary.text(id) or "") for id in ids if id < rows and id != unknown)


# --- the edits of files --------------------------------------------------------------------------------


def _tokenizer_edits(contract: Contract, request: Request, added: Sequence[AddedToken]) -> Iterator[FileEdit]:
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
    old = [token.content for token in _stated_added(vocabulary)]
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


def _config_edits(
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


def _index_edit(contract: Contract, tensors: Sequence[TensorEdit]) -> Iterator[FileEdit]:
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


_TOKENIZER_FILES = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.json"
    r"|merges\.txt|vocab\.txt|[^/]*\.model|[^/]*\.tiktoken|chat_template\.jinja|additional_chat_templates/.+"
)


def tokenizer_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files of a directory that make up its tokenizer."""
    return tuple(sorted(name for name in names if _TOKENIZER_FILES.fullmatch(name)))


def _notes(contract: Contract, added: Sequence[AddedToken]) -> Iterator[str]:
    """Families that count from the end of the vocabulary, where new tokens now stand."""
    if not added or isinstance(contract.vocabulary_or, Missing):
        return
    texts = contract.vocabulary.by_content
    first = named(added[0].id, added[0].content)
    if "<extra_id_0>" in texts:
        yield f"T5 sentinels: code that counts from the last id to <extra_id_0> will find {first} instead"
    if "<|0.00|>" in texts:
        yield f"Whisper timestamps: generation takes every id past <|notimestamps|> for a time, {first} too"
