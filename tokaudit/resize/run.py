"""`resize`: plan, write beside the destination, prove, and only then publish."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tokaudit import audit
from tokaudit.atomic import file_mode, new_directory
from tokaudit.contract import Contract, Missing, TableKind
from tokaudit.errors import UsageError
from tokaudit.findings import Severity
from tokaudit.formats import limits
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.load import load
from tokaudit.report import Report
from tokaudit.resize.carry import Carried, LeftBehind, survey
from tokaudit.resize.edits import tokenizer_files
from tokaudit.resize.manifest import FILE as MANIFEST
from tokaudit.resize.manifest import Neighbour, WrittenRow, digest, manifest, nearest
from tokaudit.resize.optimizer import FILE as OPTIMIZER
from tokaudit.resize.optimizer import grow_optimizer
from tokaudit.resize.plan import FileEdit, Plan, TensorEdit
from tokaudit.resize.prepare import Prepared, prepare
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.write import (
    Progress,
    Quiet,
    RowValues,
    ShardEdit,
    apply_edits,
    compare_old_rows,
    copy_file,
    grown,
    hard_link,
    stored_rows,
    used_rows,
    write_all,
    write_shard,
)
from tokaudit.sources import LocalDirectory, open_source
from tokaudit.text import shown

NEIGHBOURS = 3


@dataclass(frozen=True)
class Result:
    """What a resize did. ``report`` is the audit of the result; ``left_behind`` was not copied."""

    plan: Plan
    destination: str
    report: Report
    rows: tuple[WrittenRow, ...]
    left_behind: tuple[LeftBehind, ...]


def resize(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    request: Request,
    *,
    to_tokenizer: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Write a checkpoint with the asked tokens and rows to ``destination``, which must not exist.

    The source is never touched; the destination is complete and proven, or absent. ``progress`` follows the
    bytes. Raises Refused, CannotWrite, UsageError and Unreadable.
    """
    target = Path(os.path.abspath(destination))
    _refuse_nesting(Path(source), target)
    prepared = prepare(source, request, to_tokenizer)
    here = open_source(source)
    assert isinstance(here, LocalDirectory)
    with new_directory(target) as building:
        writing = _Writing(here, prepared, request, building, progress or Quiet())
        left = writing.run()
        report = writing.prove()
        rows = writing.manifest(report)
    return Result(prepared.plan, str(destination), report, rows, left)


def _refuse_nesting(source: Path, target: Path) -> None:
    """SRC = DST and DST inside SRC, whatever links lead there."""
    real = Path(os.path.realpath(source))
    landing = Path(os.path.realpath(target.parent)) / target.name
    if landing == real or landing.is_relative_to(real) or Path(os.path.realpath(target)) == real:
        raise UsageError(f"the result cannot go into its source: {target}", hint="give a path outside it")


class _Writing:
    """One run: the files of the result, one after the other, then the proof."""

    def __init__(
        self,
        source: LocalDirectory,
        prepared: Prepared,
        request: Request,
        building: Path,
        progress: Progress,
    ) -> None:
        self.source = source
        self.contract = prepared.contract
        self.target = prepared.target
        self.plan = prepared.plan
        self.request = request
        self.building = building
        self.progress = progress
        self.values = RowValues(self.plan.rows, request.seed)
        new = frozenset(row.id for row in self.plan.rows)
        self.used = self._used(new)
        self.table_digests: Mapping[str, str] = {}

    def _used(self, new: frozenset[int]) -> Sequence[int]:
        """Ids of the tokens that the model had before."""
        vocabulary = self.contract.vocabulary_or
        return () if isinstance(vocabulary, Missing) else sorted(vocabulary.by_id.keys() - new)

    def run(self) -> tuple[LeftBehind, ...]:
        """Write every file of the result; what was left behind."""
        edits: dict[str, list[FileEdit]] = {}
        for edit in self.plan.files:
            edits.setdefault(edit.at.file, []).append(edit)
        replaced = self._replaced()
        left: list[LeftBehind] = []
        weights = frozenset(shard.file for shard in self.contract.checkpoint.shards)
        entries = list(survey(Path(self.source.path), Path(self.source.root), weights))
        carried = sum(entry.size for entry in entries if isinstance(entry, Carried))
        self.progress.start(carried + sum(edit.bytes_added for edit in self.plan.tensors))
        for entry in entries:
            if entry.name == OPTIMIZER and self.request.optimizer:
                with self.source.open(OPTIMIZER) as file:
                    grow_optimizer(file, self.building / OPTIMIZER, self.plan)
            elif isinstance(entry, LeftBehind):
                left.append(entry)
            elif entry.name in replaced:
                continue
            elif entry.name in self.plan.rewritten_shards:
                self._shard(entry)
            elif entry.name in edits:
                self._edited(entry, edits[entry.name])
            else:
                self._copied(self.source, entry)
        self._tokenizer_of_target()
        if self.request.optimizer and OPTIMIZER not in {entry.name for entry in entries}:
            raise Refused(f"there is no {OPTIMIZER} to carry over", hint="leave --optimizer out")
        return tuple(left)

    def _replaced(self) -> frozenset[str]:
        """Tokenizer files of the source that give way to those of the other directory."""
        if not self.plan.replaced_files:
            return frozenset()
        return frozenset(tokenizer_files(self.contract.files))

    def _tokenizer_of_target(self) -> None:
        if not self.plan.replaced_files or self.target is None:
            return
        other = open_source(self.target.name)
        for name in self.plan.replaced_files:
            with other.open(name) as file:
                mode = os.fstat(file.fileno()).st_mode
                copy_file(file, self.building / name, mode, self.progress)

    def _copied(self, source: LocalDirectory, entry: Carried) -> None:
        target = self.building / entry.name
        if self.request.link and hard_link(Path(source.path) / entry.name, target):
            self.progress.advance(entry.size)
            return
        with source.open(entry.name) as file:
            copy_file(file, target, entry.mode, self.progress)

    def _edited(self, entry: Carried, edits: Sequence[FileEdit]) -> None:
        with self.source.open(entry.name) as file:
            text = file.read_all(limits.TOKENIZER_BYTES).decode("utf-8")
        self._text(entry.name, apply_edits(text, edits), entry.mode)

    def _text(self, name: str, text: str, mode: int) -> None:
        target = self.building / name
        target.parent.mkdir(parents=True, exist_ok=True)
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(out, file_mode(mode))
            write_all(out, text.encode("utf-8"))
        finally:
            os.close(out)

    def _shard(self, entry: Carried) -> None:
        edits = {e.table.name: e for e in self.plan.tensors if e.table.tensor.file == entry.name}
        new = frozenset(row.id for row in self.plan.rows)
        with ExitStack() as stack:
            rows = {
                name: stored_rows(stack, self.source, edit, used_rows(edit.table.rows, self.used, new))
                for name, edit in edits.items()
            }
            file = stack.enter_context(self.source.open(entry.name))
            shard = ShardEdit(file, edits, rows)
            write_shard(shard, self.building / entry.name, entry.mode, self.values, self.progress)

    def prove(self) -> Report:
        """Audit the result, compare it with the plan and with the source. Raises Refused."""
        contract = replace(load(self.building), name=self.plan.source)
        report = audit.run(contract)
        if report.unreadable:
            raise Refused(f"the result cannot be read back: {report.unreadable[0].message}")
        known = {(finding.rule, finding.subject) for finding in audit.run(self.contract).findings}
        for finding in report.findings:
            if finding.severity is Severity.ERROR and (finding.rule, finding.subject) not in known:
                raise Refused(f"the result fails its audit: {finding.slug}: {finding.message}")
        self._prove_ids(contract)
        # Two tables at a time: comparing and hashing leave the interpreter's lock alone.
        with ThreadPoolExecutor(max_workers=2) as pool:
            digests = pool.map(lambda edit: self._prove_rows(contract, edit), self.plan.tensors)
            self.table_digests = {
                edit.table.name: found for edit, found in zip(self.plan.tensors, digests, strict=True)
            }
        return report

    def _prove_rows(self, contract: Contract, edit: TensorEdit) -> str:
        tensor = contract.checkpoint.tensors[edit.table.name]
        if tensor.shape != edit.shape_after:
            raise Refused(f"{edit.table.name} came out as {tensor.shape}, planned {edit.shape_after}")
        rewritten = frozenset(row.id for row in self.plan.rows)
        with ExitStack() as stack:
            mask = used_rows(edit.table.rows, (), rewritten)
            before = stored_rows(stack, self.source, edit, mask)
            after = stored_rows(stack, open_source(self.building), grown(edit, tensor), mask)
            return compare_old_rows(before, after, rewritten)

    def _prove_ids(self, contract: Contract) -> None:
        """The library must give every new token exactly the id whose row was written."""
        for token in self.plan.added:
            given = contract.vocabulary.effective_id(token.content)
            if given != token.id:
                raise Refused(
                    f"the tokenizers library gives {shown(token.content)} id {given}, not {token.id}"
                )

    def manifest(self, report: Report) -> tuple[WrittenRow, ...]:
        """Write tokaudit-resize.json and give the new rows as they came out."""
        rows = self._written_rows()
        document = manifest(self.plan, self.request, rows, self._digests(), self.table_digests)
        self._text(MANIFEST, json.dumps(document, indent=2) + "\n", 0o666)
        return rows

    def _written_rows(self) -> tuple[WrittenRow, ...]:
        wanted = [row for row in self.plan.rows if row.content is not None]
        edit = next((edit for edit in self.plan.tensors if edit.table.kind is TableKind.INPUT), None)
        if edit is None or not wanted:
            return ()
        result = open_source(self.building)
        with ExitStack() as stack:
            tensor = read_checkpoint(result).tensors[edit.table.name]
            new = frozenset(row.id for row in self.plan.rows)
            after = grown(edit, tensor)
            rows = stored_rows(stack, result, after, used_rows(edit.rows_after, self.used, new))
            values = rows.gather([row.id for row in wanted])
            near = nearest(rows, values, NEIGHBOURS)
            norms = [float(norm) for norm in values.norm(dim=1)]
            return tuple(
                WrittenRow(row, norm, rows.summary.percentile(norm), self._neighbours(ids))
                for row, norm, ids in zip(wanted, norms, near, strict=True)
            )

    def _neighbours(self, ids: Sequence[tuple[int, float]]) -> tuple[Neighbour, ...]:
        vocabulary = self.contract.vocabulary_or
        return tuple(
            Neighbour(id, None if isinstance(vocabulary, Missing) else vocabulary.text(id), cosine)
            for id, cosine in ids
        )

    def _digests(self) -> Mapping[str, Mapping[str, str]]:
        """SHA-256 of each edited file's counterpart: JSON files whole, shards by their header."""
        names = sorted({*self.plan.rewritten_shards, *(edit.at.file for edit in self.plan.files)})
        return {
            "source": {name: digest(self.source, name) for name in names},
            "result": {name: digest(open_source(self.building), name) for name in names},
        }
