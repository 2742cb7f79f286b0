"""PATHs -> files of token data, in the order of their names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

from tokaudit.errors import Unreadable
from tokaudit.formats import limits, strict_json
from tokaudit.sources import open_named

SUFFIXES = (".npy", ".npz", ".bin", ".ds", ".parquet", ".arrow", ".jsonl", ".ndjson", ".safetensors")
_INDEX = ".idx"
_STATE, _SPLITS = "state.json", "dataset_dict.json"
_PATTERN = set("*?[")


def find(paths: Sequence[str]) -> tuple[list[str], list[Unreadable]]:
    """The files, each once, and what was named and is no data.

    A directory stands for the data set that Hugging Face `datasets` saved there, or for all files below it
    with the suffix of a format; a pattern for what it matches; the prefix of Megatron's two files for them.
    """
    files: dict[str, None] = {}
    problems: list[Unreadable] = []
    for path in paths:
        try:
            found = list(_files(path))
            if not found:
                raise Unreadable("no-data", path, "no file of token data", hint=f"looked for {_known()}")
            files.update(dict.fromkeys(found))
            if len(files) > limits.DATA_FILES:
                raise Unreadable("too-many-files", path, f"more than {limits.DATA_FILES} files")
        except Unreadable as error:
            problems.append(error)
    return sorted(files), problems


def _known() -> str:
    return ", ".join(SUFFIXES)


def _files(path: str) -> Iterator[str]:
    """Raises Unreadable."""
    if os.path.isdir(path):
        yield from _directory(path)
    elif os.path.lexists(path):
        yield _data_of(path)
    elif os.path.isfile(f"{path}{_INDEX}") and os.path.isfile(f"{path}.bin"):
        yield f"{path}.bin"
    elif not _PATTERN.isdisjoint(path):
        matched = sorted(glob.glob(path, recursive=True))
        if not matched:
            raise Unreadable("no-such-path", path, "the pattern matches nothing")
        for name in matched:
            if os.path.isdir(name):
                yield from _directory(name)
            elif name == _data_of(name) or _data_of(name) not in matched:
                yield _data_of(name)
    else:
        raise Unreadable("no-such-path", path, "there is no such file or directory")


def _data_of(path: str) -> str:
    """The file with the ids: beside an index of Megatron's the .bin file."""
    return path.removesuffix(_INDEX) + ".bin" if path.endswith(_INDEX) else path


def _directory(folder: str) -> Iterator[str]:
    if os.path.isfile(os.path.join(folder, _STATE)):
        yield from _saved(folder)
    elif os.path.isfile(os.path.join(folder, _SPLITS)):
        splits = _object(folder, _SPLITS).get("splits")
        for name in splits if isinstance(splits, list) else []:
            yield from _saved(os.path.join(folder, _inside(folder, _SPLITS, name)))
    else:
        yield from _walk(folder)


def _walk(folder: str) -> Iterator[str]:
    """Every file with the suffix of a format; what `datasets` caches beside its own files is left out."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        if root != folder and _STATE in names:
            yield from _saved(root)
            folders.clear()
            continue
        for name in sorted(names):
            if name.endswith(SUFFIXES) and not name.startswith(("cache-", ".")):
                yield os.path.join(root, name)


def _saved(folder: str) -> Iterator[str]:
    """The files that `datasets` lists in state.json."""
    listed = _object(folder, _STATE).get("_data_files")
    for entry in listed if isinstance(listed, list) else []:
        name = entry.get("filename") if isinstance(entry, dict) else None
        yield os.path.join(folder, _inside(folder, _STATE, name))


def _inside(folder: str, file: str, name: object) -> str:
    """A name that a file of the data set states. Raises Unreadable where it leads elsewhere."""
    if not isinstance(name, str) or name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        raise Unreadable(
            "path-escape",
            os.path.join(folder, file),
            f"expected names of files beside it, found {name!r}",
        )
    return name


def _object(folder: str, name: str) -> dict[str, object]:
    path = os.path.join(folder, name)
    with open_named(path) as file:
        return strict_json.parse_object(file.read_all(limits.DATA_STATE_BYTES), path).value
