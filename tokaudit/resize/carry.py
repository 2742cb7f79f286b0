"""Which files of the source go into the result, and which do not because they hold the old tables."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEEPEST = 8  # folders; model repositories have one or two

# Weights in another format, or the state of a training run: they have the old rows, and a loader that
# finds them would use them.
_OLD_TABLES = re.compile(
    r".*\.(bin|pt|pth|ckpt|h5|msgpack|ot|onnx|onnx_data|gguf|ggml|npz|tflite|mlmodel|distcp|metadata)"
    r"|pytorch_model\.bin\.index\.json|.*\.safetensors|optimizer.*|global_step\d+"
)
_HARMLESS_STATE = re.compile(r"(training_args\.bin|rng_state.*\.pth|scheduler\.pt|scaler\.pt)")
_NEVER = frozenset({".git", ".cache", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Carried:
    """A file to copy: its name, size and permissions."""

    name: str
    size: int
    mode: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A file that is not copied, and why."""

    name: str
    reason: str


def survey(root: Path, allowed: Path, weights: frozenset[str]) -> Iterator[Carried | LeftBehind]:
    """Every entry under the source. ``weights`` are the safetensors that belong to the checkpoint.

    Links are followed to files inside ``allowed`` (the directory, or its repository in the Hugging Face
    cache) and become ordinary files; nothing outside is read.
    """
    yield from _walk(root, "", allowed, weights, DEEPEST)


def _walk(
    root: Path, prefix: str, allowed: Path, weights: frozenset[str], depth: int
) -> Iterator[Carried | LeftBehind]:
    with os.scandir(root / prefix) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        name = prefix + entry.name
        if entry.name in _NEVER:
            yield LeftBehind(name, "not part of a model")
        elif entry.is_dir(follow_symlinks=False):
            if depth == 0:
                yield LeftBehind(name, f"deeper than {DEEPEST} folders")
            else:
                yield from _walk(root, name + "/", allowed, weights, depth - 1)
        else:
            yield _judge(root / name, name, allowed, weights)


def _judge(path: Path, name: str, allowed: Path, weights: frozenset[str]) -> Carried | LeftBehind:
    last = name.rpartition("/")[2]
    if name not in weights and _OLD_TABLES.fullmatch(last) and not _HARMLESS_STATE.fullmatch(last):
        return LeftBehind(name, "it holds, or may hold, tables with the old rows")
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(allowed):
        return LeftBehind(name, "the link leads out of the directory")
    try:
        status = os.stat(target, follow_symlinks=False)
    except OSError:
        return LeftBehind(name, "the link leads nowhere")
    if not stat.S_ISREG(status.st_mode):
        return LeftBehind(name, "it is no regular file")
    return Carried(name, status.st_size, status.st_mode)
