"""Which files of the source go into the result, and which do not because they hold the old tables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tokaudit.contract import Contract, Missing
from tokaudit.errors import Unreadable
from tokaudit.formats.safetensors import read_header
from tokaudit.resize.manifest import FILE as MANIFEST
from tokaudit.sources import LocalDirectory, OpenFile, open_source

DEEPEST = 8  # folders; model repositories have one or two
OPTIMIZER = "optimizer.pt"  # the state as transformers' Trainer names it; --optimizer carries it over

# Weights in another format, or the state of a training run: they have the old rows, and a loader that
# finds them would use them.
_OLD_TABLES = re.compile(
    r".*\.(bin|pt|pth|ckpt|h5|keras|msgpack|ot|pb|onnx|onnx_data|gguf|ggml|npz|tflite|mlmodel|nemo|engine"
    r"|distcp|metadata)"
    r"|openvino.*\.xml|.*\.index\.json|optimizer.*"
)
_HARMLESS_STATE = re.compile(r"(training_args\.bin|rng_state.*\.pth|scheduler\.pt|scaler\.pt)")
_MODULE = re.compile(r"\d+_(?!Transformer)\w+/[^/]+")  # sentence-transformers: a layer behind the model
_NEVER = frozenset({".git", ".cache", "__pycache__"})
_HOLDS_ROWS = "it holds, or may hold, tables with the old rows"
_PASSED_OVER = "loaders pass it over for other weights"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in the source's directory. ``reason`` says why it cannot be copied, "" where it can.

    ``state`` is its device, inode, size and time of the last change: what a file is known by again.
    """

    name: str
    mode: int = 0
    state: tuple[int, int, int, int] = (0, 0, 0, 0)
    reason: str = ""

    @property
    def size(self) -> int:
        return self.state[2]


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A file that is not copied, and why."""

    name: str
    reason: str


def listing(source: LocalDirectory) -> Mapping[str, Entry]:
    """Every file under the source, by name.

    Links are followed to files inside ``source.root`` (the directory, or its repository in the Hugging Face
    cache) and count as files; nothing outside is looked at.
    """
    return {entry.name: entry for entry in _walk(source, "", DEEPEST)}


def _walk(source: LocalDirectory, prefix: str, depth: int) -> Iterator[Entry]:
    try:
        with os.scandir(os.path.join(source.path, prefix)) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise Unreadable("io-error", prefix, f"the folder cannot be read: {error.strerror}") from error
    for entry in listed:
        name = prefix + entry.name
        if entry.name in _NEVER:
            yield Entry(name, reason="not part of a model")
        elif not entry.is_dir(follow_symlinks=False):
            yield _entry(source, name)
        elif depth == 0:
            yield Entry(name, reason=f"deeper than {DEEPEST} folders")
        else:
            yield from _walk(source, f"{name}/", depth - 1)


def _entry(source: LocalDirectory, name: str) -> Entry:
    target = os.path.realpath(os.path.join(source.path, name))
    if os.path.commonpath((source.root, target)) != source.root:
        return Entry(name, reason="the link leads out of the directory")
    try:
        status = os.stat(target, follow_symlinks=False)
    except OSError:
        return Entry(name, reason="the link leads nowhere")
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, reason="a link to a folder")
    if not stat.S_ISREG(status.st_mode):
        return Entry(name, reason="not a regular file")
    return Entry(name, status.st_mode, _state(status))


@dataclass(frozen=True)
class Files:
    """A directory and what lay in it at one moment."""

    source: LocalDirectory
    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Files:
        """Raises Unreadable and UsageError where there is no such directory."""
        source = open_source(path)
        assert isinstance(source, LocalDirectory)
        return cls(source, listing(source))

    def open(self, name: str) -> OpenFile:
        """A file that is what it was. Raises Unreadable, "changed-while-read" where it is not."""
        file = self.source.open(name)
        if _state(os.fstat(file.fileno())) != self.entries[name].state:
            with suppress(Unreadable), file:
                pass
            raise _changed(name)
        return file

    def refuse_changes(self, names: Iterable[str]) -> None:
        """Whether these files are what they were, and nothing was added.

        Raises Unreadable ("changed-while-read"): what was written would be a mixture.
        """
        now = listing(self.source)
        for name in sorted({*names, *(now.keys() - self.entries.keys())}):
            if now.get(name) != self.entries.get(name):
                raise _changed(name)


def _changed(name: str) -> Unreadable:
    return Unreadable(
        "changed-while-read",
        name,
        "the source changed while it was read",
        hint="wait until nothing writes to it and run again",
    )


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def sort_out(files: Files, contract: Contract) -> Iterator[Entry | LeftBehind]:
    """What to copy, and what to leave. An earlier resize's manifest is neither: a new one takes its place."""
    checkpoint = contract.checkpoint
    weights = {shard.file for shard in checkpoint.shards}
    stale = {shard.file for shard in checkpoint.stale} - weights
    if not isinstance(checkpoint.index_or, Missing):
        weights.add(checkpoint.index_or.file)
    rows = contract.embeddings.input.rows
    for name, entry in files.entries.items():
        if name == MANIFEST:
            continue
        if entry.reason:
            yield LeftBehind(name, entry.reason)
        elif name in stale:
            yield LeftBehind(name, _PASSED_OVER)
        elif name not in weights and _has_old_rows(name, files.source, rows):
            yield LeftBehind(name, _HOLDS_ROWS)
        else:
            yield entry


def _has_old_rows(name: str, source: LocalDirectory, rows: int) -> bool:
    """Whether a file beside the checkpoint holds a table, or may hold one and is not opened to look."""
    last = name.rpartition("/")[2]
    if last.endswith(".safetensors"):
        with suppress(Unreadable), source.open(name) as file:
            return any(rows in tensor.shape for tensor in read_header(file).tensors.values())
        return True
    if _HARMLESS_STATE.fullmatch(last) or _MODULE.fullmatch(name):
        return False
    return bool(_OLD_TABLES.fullmatch(last))
