"""`resize`: plan, write beside the destination, prove, and only then publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tokaudit.ahead import import_ahead
from tokaudit.atomic import CannotWrite, abandoned, check_destination, new_directory
from tokaudit.contract import Contract, TableKind
from tokaudit.errors import UsageError
from tokaudit.progress import Progress, Quiet
from tokaudit.report import Report
from tokaudit.resize.carry import OPTIMIZER, Entry, Files, LeftBehind, sort_out
from tokaudit.resize.manifest import FILE as MANIFEST
from tokaudit.resize.manifest import (
    Digests,
    Neighbour,
    WrittenRow,
    as_text,
    digests_of,
    manifest,
    read_manifest,
)
from tokaudit.resize.plan import Plan
from tokaudit.resize.prepare import Directory, Prepared, prepare
from tokaudit.resize.proof import audit_result
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.workers import Workers, wait
from tokaudit.resize.write import Writer
from tokaudit.sources import open_source
from tokaudit.text import size


@dataclass(frozen=True)
class Result:
    """What a resize did. ``report`` is the audit of the result; ``left_behind`` was not copied.

    ``abandoned`` are what killed runs left beside the destination. ``manifest`` is what tokaudit-resize.json
    holds.
    """

    plan: Plan
    destination: str
    report: Report
    rows: tuple[WrittenRow, ...]
    left_behind: tuple[LeftBehind, ...]
    abandoned: tuple[Path, ...]
    manifest: Mapping[str, object]


def resize(
    source: Directory,
    destination: Directory,
    request: Request,
    *,
    to_tokenizer: Directory | None = None,
    progress: Progress | None = None,
) -> Result:
    """Write a checkpoint with the asked tokens and rows to ``destination``, which must not exist.

    The source is never touched; the destination is complete and proven, or absent. Where there is nothing
    to do it is a copy. ``progress`` follows the bytes. Raises Refused, CannotWrite, UsageError, Unreadable.
    """
    target = Path(os.path.abspath(destination))
    _refuse_nesting(Path(source), target)
    check_destination(target)
    left_over = abandoned(target)
    files = Files.of(source)
    other = None if to_tokenizer is None else Files.of(to_tokenizer)
    if request.optimizer and OPTIMIZER not in files.entries:
        raise Refused(f"there is no {OPTIMIZER} to carry over", hint="leave --optimizer out")
    # What needs it is known only when the plan is made, which waits for the tokenizer as long as this takes.
    import_ahead("torch")
    prepared = prepare(source, request, to_tokenizer)
    _refuse_full_disk(target.parent, prepared.plan)
    carried, left = _sorted_out(files, prepared, request)
    names = [entry.name for entry in carried]
    with new_directory(target) as building, Workers(progress or Quiet()) as workers:
        writer = Writer(prepared, request, files, other, building, workers)
        underway = writer.write(carried)
        contract, report = audit_result(building, prepared, request)
        rows = _written_rows(writer, contract)
        wait(underway.comparisons)
        tables = dict(zip(underway.digests, wait(underway.digests.values()), strict=True))
        written = open_source(building)
        digests = Digests(
            digests_of(files.source, names), digests_of(written, Files.of(building).entries), tables
        )
        document = manifest(prepared.plan, request, rows, digests, read_manifest(files.source))
        writer.text(MANIFEST, as_text(document), 0o666)
        files.refuse_changes(names)
        if other is not None:
            other.refuse_changes(prepared.plan.taken_files)
    report = replace(report, target=str(destination))
    return Result(prepared.plan, str(destination), report, rows, left, left_over, document)


def _sorted_out(
    files: Files, prepared: Prepared, request: Request
) -> tuple[tuple[Entry, ...], tuple[LeftBehind, ...]]:
    """What is copied, and what is left behind."""
    carried: list[Entry] = []
    left: list[LeftBehind] = []
    plan = prepared.plan
    for entry in sort_out(files, prepared.contract):
        if entry.name in plan.dropped_files:
            if entry.name not in plan.taken_files:
                left.append(LeftBehind(entry.name, "it belongs to the tokenizer that was replaced"))
        elif isinstance(entry, Entry):
            carried.append(entry)
        elif not (request.optimizer and entry.name == OPTIMIZER):
            left.append(entry)
    return tuple(carried), tuple(left)


def _written_rows(writer: Writer, contract: Contract) -> tuple[WrittenRow, ...]:
    """The new rows as they stand in the result's input table."""
    plan = writer.plan
    edit = next((edit for edit in plan.tensors if edit.table.kind is TableKind.INPUT), None)
    if edit is None or not plan.rows:
        return ()
    from tokaudit.resize.neighbours import places
    from tokaudit.resize.rows import used_rows
    from tokaudit.values.stored import stored

    table = replace(edit.table, tensor=contract.checkpoint.tensors[edit.table.name])
    used = used_rows(edit.rows_after, writer.old_ids)
    found = places(stored(open_source(writer.building), table), [row.id for row in plan.rows], used)
    texts = contract.vocabulary.by_id
    return tuple(
        WrittenRow(
            row,
            found[row.id].norm,
            found[row.id].percentile,
            tuple(Neighbour(near.id, texts.get(near.id), near.cosine) for near in found[row.id].nearest),
        )
        for row in plan.rows
    )


def _refuse_nesting(source: Path, target: Path) -> None:
    """SRC = DST and DST inside SRC, whatever links lead there."""
    real = Path(os.path.realpath(source))
    landing = Path(os.path.realpath(target.parent)) / target.name
    if landing.is_relative_to(real) or Path(os.path.realpath(target)) == real:
        raise UsageError(f"the result cannot go into its source: {target}", hint="give a path outside it")


def _refuse_full_disk(folder: Path, plan: Plan) -> None:
    """Before anything is written: what is rewritten certainly takes its place, copies may share theirs."""
    status = os.statvfs(folder)
    free = status.f_bfree * status.f_frsize
    if plan.bytes_rewritten > free:
        raise CannotWrite(f"{size(plan.bytes_rewritten)} are needed in {folder}, and {size(free)} are free")
