"""`make_plan`: contract + request -> Plan. Pure; refuses what would not come out right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tokaudit.contract import (
    FLOAT_DTYPES,
    AddedToken,
    Contract,
    Missing,
    Role,
    Table,
    TableKind,
    Vocabulary,
    present,
)
from tokaudit.errors import FactMissing
from tokaudit.findings import Severity
from tokaudit.report import Report
from tokaudit.resize.edits import config_edits, index_edit, tokenizer_edits, tokenizer_files
from tokaudit.resize.plan import NewRow, Piece, Plan, TensorEdit
from tokaudit.resize.request import Refused, Request
from tokaudit.text import listed, named

LARGEST_ROWS = 2**31 - 1  # ids are 32-bit signed integers in the kernels that look them up

# Errors of the source that a resize mends: rows that are too few, and vocab_size fields that disagree with
# tables which agree among themselves.
CURED = frozenset({"TA101", "TA103", "TA104", "TA301", "TA313", "TA412"})


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
    files = tuple(tokenizer_edits(contract, request, added)) if target is None else ()
    files += tuple(config_edits(contract, request, added, after))
    files += tuple(index_edit(contract, tensors))
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
        shards=contract.checkpoint.shards,
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
