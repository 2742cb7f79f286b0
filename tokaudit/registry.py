"""Which directories hold a model: of a registry, of the Hugging Face cache, of a pattern."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tokaudit.errors import UsageError
from tokaudit.text import counted, listed

DEEPEST = 5  # levels below the directory that was named; the home of the Hugging Face cache has 4
MOST_ENTRIES = 200_000  # looked at below one directory

_ADAPTER = "adapter_config.json"

# What shows that a directory is a model: one of the files that an audit starts from.
_MODEL_FILES = frozenset(
    (
        "config.json",
        _ADAPTER,
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "vocab.json",
        "vocab.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
    )
)
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_PIPELINE = "model_index.json"  # of diffusers; what lies below it are its parts and no language models
_OTHER_CACHES = ("datasets--", "spaces--")


class Targets(NamedTuple):
    """``paths`` are the directories to audit. ``roots`` are those that were named, with all below them.

    ``notes`` say what was found below a root.
    """

    paths: tuple[str, ...]
    roots: tuple[str, ...]
    notes: tuple[str, ...] = ()


class _Search:
    """What was seen below one directory."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.adapters: list[str] = []  # beside the one in the directory itself: PEFT saves each to a folder
        self.pipelines = 0
        self.links = 0
        self.entries = 0


def targets(arguments: Sequence[str]) -> Targets:
    """The model directories that the arguments name.

    A directory that holds no model stands for all models below it, and a pattern (``models/*``) that is no
    path itself for the directories that it matches. What holds no model at all is left as it is: its audit
    says so. A model that was found is named once, however many arguments lead to it.

    Raises UsageError where there is too much to look at.
    """
    roots = [path for argument in arguments for path in _matches(argument)]
    paths: list[str] = []
    notes: list[str] = []
    found: set[str] = set()
    for root in roots:
        search = _below(root)
        paths += search.models or [root]
        found.update(search.models)
        notes += [_words(root, search)] if search.models else []
        notes += [_other_adapters(root, search.adapters)] if search.adapters else []
    return Targets(tuple(_each_once(paths, found)), tuple(roots), tuple(notes))


def _matches(argument: str) -> Sequence[str]:
    if not re.search(r"[*?\[]", argument) or os.path.lexists(argument):
        return (argument,)
    import glob

    folders = [path for path in sorted(glob.glob(argument, recursive=True)) if os.path.isdir(path)]
    return folders or (argument,)


def _below(root: str) -> _Search:
    """The models below a directory that is none itself, in order; links are not followed."""
    search = _Search()
    if os.path.isdir(root):
        _look(root, search, DEEPEST)
    if search.models == [root]:
        search.models.clear()
    else:
        search.adapters.clear()
    return search


def _look(path: str, search: _Search, levels: int) -> None:
    names: set[str] = set()
    folders: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                search.entries += 1
                if search.entries > MOST_ENTRIES:
                    words = f"more than {MOST_ENTRIES} files were looked at for models, up to {path}"
                    raise UsageError(words, hint="name the model directories")
                names.add(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_symlink() and entry.is_dir():
                    search.links += 1
    except OSError:
        search.models.append(path)  # its audit says why it cannot be read
        return
    if _is_model(names):
        search.models.append(path)
        if _ADAPTER in names:
            search.adapters += [
                name for name in sorted(folders) if os.path.isfile(os.path.join(path, name, _ADAPTER))
            ]
    elif _PIPELINE in names:
        search.pipelines += 1
    elif levels:
        for name in sorted(_worth_a_look(path, folders)):
            _look(os.path.join(path, name), search, levels - 1)


def _is_model(names: Collection[str]) -> bool:
    return not _MODEL_FILES.isdisjoint(names) or any(name.endswith(_WEIGHTS) for name in names)


def _worth_a_look(path: str, folders: Sequence[str]) -> Sequence[str]:
    """All but hidden ones. Of a repository in the Hugging Face cache, the snapshots."""
    if os.path.basename(os.path.abspath(path)).startswith("models--"):
        return [name for name in folders if name == "snapshots"]
    return [name for name in folders if not name.startswith((".", *_OTHER_CACHES))]


def _each_once(paths: Sequence[str], found: Collection[str]) -> Iterator[str]:
    """Twice by name is twice; what was found is left out where it is there already."""
    seen: set[str] = set()
    for path in paths:
        real = os.path.abspath(path)
        if path not in found or real not in seen:
            yield path
        seen.add(real)


def _other_adapters(root: str, names: Sequence[str]) -> str:
    return f"{root} has more adapters in folders ({listed(names, 3)}): give their paths to audit them, too"


def _words(root: str, search: _Search) -> str:
    words = f"{root} is no model itself: {counted(len(search.models), 'model')} below it"
    if search.pipelines:
        words += f"; {counted(search.pipelines, 'pipeline')} of diffusers left out"
    if search.links:
        words += f"; {counted(search.links, 'link')} to directories not followed"
    return words
