"""`make_plan`: the facts of both sides -> Plan. Pure; refuses what would not come out right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokaudit.contract import (
    AddedToken,
    Contract,
    Document,
    Missing,
    Role,
    Table,
    TableKind,
    Vocabulary,
)
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report
from tokaudit.resize import edits
from tokaudit.resize.plan import FileEdit, NewRow, Plan, TensorEdit
from tokaudit.resize.remarks import known_ids, notes, tied, warnings
from tokaudit.resize.request import Refused, Request

LARGEST_ROWS = 2**31 - 1  # ids are 32-bit signed integers in the kernels that look them up

# Errors of the source that a resize mends: rows that are too few, and vocab_size fields that disagree with
# tables which agree among themselves.
CURED = frozenset({"TA101", "TA103", "TA104", "TA301", "TA313", "TA412"})

# What --force may go on with: ties and special tokens. Rows, tokenizer files and weights must be right.
FORCED = ("TA2", "TA3")

NOT_READ = Missing("it was not read")


@dataclass(frozen=True)
class Facts:
    """What a plan is made from.

    ``tables`` are those that follow the vocabulary, the input table first. ``added`` are the tokens new to
    the tokenizer, ``rows`` those to write. ``other`` is the side of
    the other tokenizer, where there is one.
    """

    contract: Contract
    report: Report
    request: Request
    tables: tuple[Table, ...]
    roles: Mapping[Role, str]
    added: tuple[AddedToken, ...] = ()
    rows: tuple[NewRow, ...] = ()
    special_map: Document | Missing = NOT_READ
    index: Document | Missing = NOT_READ
    other: Contract | None = None


def make_plan(facts: Facts) -> Plan:
    """Decide everything. Raises Refused with the reason where the outcome would not be right."""
    contract = facts.contract
    before = contract.embeddings.input.rows
    after = _rows_after(facts, max(table.rows for table in facts.tables))
    _refuse_ids_without_row(facts, after)
    tensors = tuple(_tensor_edits(facts, after))
    taken, dropped = _exchanged_files(facts)
    return Plan(
        source=contract.name,
        rows_before=before,
        rows_after=after,
        added=facts.added,
        rows=facts.rows,
        tensors=tensors,
        files=tuple(_file_edits(facts, tensors, after)),
        taken_files=taken,
        dropped_files=dropped,
        tied=tied(contract),
        warnings=tuple(warnings(facts, tensors)),
        notes=tuple(notes(facts)),
        shards=contract.checkpoint.shards,
    )


def refuse_broken_source(report: Report, request: Request) -> None:
    """Raises Refused for what could not be read, and for an error that is neither mended nor forced."""
    if report.unreadable:
        error = report.unreadable[0]
        raise Refused(f"{error.file or 'the source'} cannot be read: {error.message}", hint=error.hint)
    for finding in report.findings:
        if finding.severity is not Severity.ERROR or finding.rule in CURED or is_forced(finding, request):
            continue
        raise Refused(f"the source fails its audit: {finding.slug}: {finding.message}", hint=_way(finding))


def is_forced(finding: Finding, request: Request) -> bool:
    return request.force and finding.rule.startswith(FORCED)


def _way(finding: Finding) -> str:
    return f"{finding.fix}, or --force" if finding.rule.startswith(FORCED) else finding.fix


def _rows_after(facts: Facts, current: int) -> int:
    """max(current, required, asked), then the multiple; tables never shrink."""
    request = facts.request
    required = max([0, *(row.id + 1 for row in facts.rows)])
    for side in (facts.other, facts.contract):
        if side is not None and isinstance(side.vocabulary_or, Vocabulary):
            required = max(required, side.vocabulary_or.required_rows.value)
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


def _refuse_ids_without_row(facts: Facts, after: int) -> None:
    """Ids of the configurations that growing to the tokens' size does not give a row."""
    if not any(finding.rule in ("TA301", "TA313") for finding in facts.report.findings):
        return
    errors = {claim.at for finding in facts.report.findings for claim in finding.claims}
    for stated in facts.contract.id_fields:
        if stated.at not in errors or stated.role in facts.roles or facts.request.force:
            continue
        if stated.malformed:
            raise Refused(f"{stated.at} is no token id: {stated.malformed}", hint=f"correct {stated.name}")
        beyond = [id for id in stated.ids if id >= after or id < 0]
        if beyond:
            room = f", or make room with --rows {max(beyond) + 1}" if max(beyond) >= after else ""
            raise Refused(
                f"{stated.at} names id {beyond[0]}, and the tables will have {after} rows",
                hint=f"correct {stated.name}{room}",
            )


def _tensor_edits(facts: Facts, after: int) -> Iterator[TensorEdit]:
    least = facts.contract.embeddings.input.rows
    for table in facts.tables:
        if table.rows < after or any(row.id < table.rows for row in facts.rows):
            # A smaller table of its own size (Gemma-3n's per-layer embeddings): ids past it read row 0.
            filler = 0 if table.rows < least else None
            yield TensorEdit(table, after, _is_output_side(facts.contract, table), filler)


def _is_output_side(contract: Contract, table: Table) -> bool:
    """Whether a table's new rows follow the output recipes: output tables, biases, predictors' heads.

    A stored copy of a tied table follows the input table: both must stay equal.
    """
    if table.kind is TableKind.OUTPUT:
        return not _is_tied_copy(contract, table)
    return table.kind is TableKind.BIAS or bool(re.search(r"(^|[._])head\.", table.name))


def _is_tied_copy(contract: Contract, table: Table) -> bool:
    embeddings = contract.embeddings
    tie = embeddings.tie_or
    if not isinstance(tie, Missing) and not any(reading.tied for reading in tie.readings):
        return False
    try:
        return contract.comparison(embeddings.tie_partner, table).equal
    except FactMissing:
        return False


def _file_edits(facts: Facts, tensors: Sequence[TensorEdit], after: int) -> Iterator[FileEdit]:
    contract = facts.contract
    ids = {**known_ids(facts.other or contract), **{token.content: token.id for token in facts.added}}
    if facts.other is None and (facts.added or facts.roles):
        yield from edits.added_token_edits(contract.vocabulary, facts.added)
        yield from edits.role_text_edits(contract, facts.special_map, facts.roles, ids)
    yield from edits.size_edits(contract, tensors, after)
    yield from edits.role_id_edits(contract, facts.roles, ids)
    yield from edits.index_edits(contract, facts.index, tensors)


def _exchanged_files(facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of the other tokenizer, and those of the model's own that give way to them.

    Settings and chat templates, which list no tokens, stay where the other one has none.
    """
    if facts.other is None:
        return (), ()
    taken = edits.tokenizer_files(facts.other.files)
    kept = {"tokenizer_config.json"} - {*taken}
    if not facts.other.templates:
        kept |= {name for name in facts.contract.files if edits.is_template(name)} - {*taken}
    own = edits.tokenizer_files(facts.contract.files)
    return taken, tuple(name for name in own if name not in kept)
