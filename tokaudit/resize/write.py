"""Write the files of a result: copies, edited JSON files, shards with grown tables.

Threads do it: the kernel and the hash functions leave the interpreter's lock alone. Only the new rows need
torch, whose import has begun before (`run`); the calling thread waits for it meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokaudit.contract import Missing
from tokaudit.formats import limits
from tokaudit.formats.safetensors import read_header
from tokaudit.resize.carry import OPTIMIZER, Entry, Files
from tokaudit.resize.compare import compare_files, compare_shards, digest_rows
from tokaudit.resize.copying import copy_file, create, hard_link, write_at
from tokaudit.resize.json_files import apply_edits
from tokaudit.resize.plan import FileEdit, Plan, TensorEdit
from tokaudit.resize.prepare import Prepared
from tokaudit.resize.request import Request
from tokaudit.resize.shards import Layout, layout, write_old_bytes
from tokaudit.resize.workers import Workers, wait
from tokaudit.sources import LocalDirectory, OpenFile, open_source

_SYNCED_AT_ONCE = 1 << 20  # bytes of a file that is not left to the end


@dataclass(frozen=True)
class Underway:
    """What still runs when everything is written: comparisons, and by table the digest of the old rows."""

    comparisons: Sequence[Future[None]]
    digests: Mapping[str, Future[str]]


@dataclass(frozen=True)
class Writer:
    """``files`` is the source, ``other`` the directory of the tokenizer that is taken, if one is."""

    prepared: Prepared
    request: Request
    files: Files
    other: Files | None
    building: Path
    workers: Workers

    @property
    def plan(self) -> Plan:
        return self.prepared.plan

    def write(self, carried: Sequence[Entry]) -> Underway:
        """Write everything but the manifest."""
        edits: dict[str, list[FileEdit]] = {}
        for edit in self.plan.files:
            edits.setdefault(edit.at.file, []).append(edit)
        entries = sorted(carried, key=lambda entry: -entry.size)
        taken = [] if self.other is None else [self.other.entries[name] for name in self.plan.taken_files]
        self._make_folders([*entries, *taken])
        grown = sum(edit.bytes_added for edit in self.plan.tensors)
        self.workers.start(grown + 2 * sum(entry.size for entry in entries))
        shards: list[tuple[Entry, Future[Layout]]] = []
        copies: list[Future[None]] = []
        for entry in entries:
            if entry.name in self.plan.rewritten_shards:
                shards.append((entry, self.workers.submit(self._shard, entry)))
            elif entry.name in edits:
                copies.append(self.workers.submit(self._edited, entry, edits[entry.name]))
            else:
                copies.append(self.workers.submit(self._copied, self.files, entry))
        if self.other is not None:
            copies += [self.workers.submit(self._copied, self.other, entry) for entry in taken]
        digests = {edit.table.name: self.workers.submit(self._digest, edit) for edit in self.plan.tensors}
        if shards:
            import torch  # noqa: F401  (waits for the end of it while the copies go on)
        comparisons: list[Future[None]] = []
        for entry, written in shards:
            self._fill(entry.name, *wait([written]))
            comparisons.append(self.workers.submit(self._compared, entry))
        if self.request.optimizer:
            self._optimizer(self.files.entries[OPTIMIZER])
        wait(copies)
        return Underway(comparisons, digests)

    def _make_folders(self, entries: Sequence[Entry]) -> None:
        """Not left to the threads: one that a signal ends with the run would make a removed folder again."""
        for entry in entries:
            (self.building / entry.name).parent.mkdir(parents=True, exist_ok=True)

    def text(self, name: str, text: str, mode: int) -> None:
        with _new_file(self.building / name, mode) as out:
            write_at(out, 0, text.encode("utf-8"))

    @property
    def old_ids(self) -> Sequence[int]:
        """The ids of the tokens whose rows are not written; none where no tokenizer is known."""
        vocabulary = self.prepared.contract.vocabulary_or
        new = {row.id for row in self.plan.rows}
        return () if isinstance(vocabulary, Missing) else [id for id in vocabulary.by_id if id not in new]

    def _copied(self, files: Files, entry: Entry) -> None:
        target = self.building / entry.name
        with files.open(entry.name) as file:
            path = Path(files.source.path, entry.name)
            if self._may_link(files.source) and hard_link(path, file, target):
                self.workers.advance(2 * entry.size)
                return
            with _new_file(target, entry.mode) as out:
                copy_file(file, out, self.workers)
                if file.size >= _SYNCED_AT_ONCE:
                    os.fsync(out)
            with self._written(entry.name) as copy:
                compare_files(file, copy, self.workers)

    def _may_link(self, source: LocalDirectory) -> bool:
        """Files of a snapshot in the cache belong to everyone who uses the cache."""
        return self.request.link and source.root == source.path

    def _edited(self, entry: Entry, edits: Sequence[FileEdit]) -> None:
        with self.files.open(entry.name) as file:
            text = file.read_all(limits.TOKENIZER_BYTES).decode("utf-8")
        self.text(entry.name, apply_edits(text, edits), entry.mode)
        self.workers.advance(2 * entry.size)

    def _shard(self, entry: Entry) -> Layout:
        """Everything of a shard but the new rows."""
        edits = {edit.table.name: edit for edit in self.plan.edits_of(entry.name)}
        with (
            self.files.open(entry.name) as file,
            _new_file(self.building / entry.name, entry.mode) as out,
        ):
            plan = layout(file, edits)
            os.ftruncate(out, plan.size)
            write_old_bytes(file, plan, out, self.workers)
            os.fsync(out)
        return plan

    def _fill(self, name: str, plan: Layout) -> None:
        """The new rows of a shard."""
        from tokaudit.resize.rows import StoredRows, used_rows
        from tokaudit.resize.values import RowValues
        from tokaudit.values.stored import one_thread

        values = RowValues(self.plan.rows, self.request.seed)
        out = os.open(self.building / name, os.O_RDWR | os.O_CLOEXEC)
        try:
            with self.files.open(name) as file, one_thread():
                for edit in self.plan.edits_of(name):
                    used = used_rows(edit.table.rows, self.old_ids)
                    stored = StoredRows(file, edit.table, used, edit.output_side)
                    for first, data in values.blocks(edit, stored):
                        write_at(out, plan.tables[edit.table.name] + first * edit.row_bytes, data)
                        self.workers.advance(len(data))
            os.fsync(out)
        finally:
            os.close(out)

    def _digest(self, edit: TensorEdit) -> str:
        with self.files.open(edit.table.tensor.file) as file:
            return digest_rows(file, edit, [row.id for row in self.plan.rows], self.workers)

    def _compared(self, entry: Entry) -> None:
        edits = {edit.table.name: edit for edit in self.plan.edits_of(entry.name)}
        old = next(shard for shard in self.plan.shards if shard.file == entry.name)
        rewritten = [row.id for row in self.plan.rows]
        with self.files.open(entry.name) as before, self._written(entry.name) as after:
            shards = old, read_header(after)
            compare_shards(before, after, shards, edits, rewritten, self.workers)

    def _written(self, name: str) -> OpenFile:
        return open_source(self.building).open(name)

    def _optimizer(self, entry: Entry) -> None:
        from tokaudit.resize.optimizer import grow_optimizer

        with self.files.open(entry.name) as file:
            grow_optimizer(file, entry.mode, self.building / entry.name, self.plan, self.workers)


@contextmanager
def _new_file(target: Path, mode: int) -> Iterator[int]:
    out = create(target, mode)
    try:
        yield out
    finally:
        os.close(out)
