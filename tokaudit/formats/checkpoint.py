"""Which weights files a loader reads, and what they hold.

transformers (modeling_utils, versions 4 and 5) chooses in this order: the file that config.json's
``transformers_weights`` names, model.safetensors, the shards of model.safetensors.index.json. Of an index it
only takes the set of files: every tensor of every listed file is loaded, in sorted order, and of two tensors
with one name the last wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tokaudit.contract import (
    Checkpoint,
    Damage,
    DamagedFile,
    DuplicateKey,
    Fact,
    Index,
    Missing,
    Part,
    Shard,
    Tensor,
    part,
    pickled_weights,
)
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.formats import limits, strict_json
from tokaudit.formats.safetensors import DamagedWeights, read_header
from tokaudit.sources import Source
from tokaudit.text import json_value, listed, pointed

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_CHOICE = Location("config.json").child("transformers_weights")
_ADAPTER = re.compile(r"adapter(_model)?\b.*")
_ORIGINAL = re.compile(r"consolidated\b.*")  # the vendor's own layout, beside the converted one
_EXLLAMA = re.compile(r"output(-\d+-of-\d+)?\.safetensors")
_NO_INDEX = Missing(f"there is no {INDEX}")
_PASSED_OVER = Missing("loaders read another file and not the index")
_FETCH = "download the file again, or save the model again"
_MOST_PARTS = 10_000  # the largest checkpoints in use have some 200
_LONGEST_NAME = 255  # the limit of every common file system, per folder


def read_checkpoint(source: Source, preferred: str | None = None) -> Checkpoint:
    """The weights of a model directory; ``preferred`` is config.json's ``transformers_weights``.

    A file that a loader would read and cannot becomes a ``DamagedFile``. Raises FactMissing where there are
    no weights, and Unreadable for an index that does not say which files to read ("index-malformed",
    "json-syntax" ...) or a file that cannot be looked into ("permission", "not-a-regular-file" ...).
    """
    return _Loader(source).load(preferred)


@dataclass(frozen=True, slots=True)
class _ReadIndex:
    index: Index
    duplicates: tuple[DuplicateKey, ...]
    marked: bool

    def files(self) -> dict[str, Location]:
        """Every file the index names, in the order of loading, and where it is first named."""
        named: dict[str, Location] = {}
        for tensor, file in self.index.weight_map.items():
            if file not in named:
                named[file] = self.index.at(tensor)
        return dict(sorted(named.items()))


class _Loader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = source.names()
        self.weights = sorted(name for name in self.names if re.fullmatch(r"[^/]*\.safetensors", name))

    def load(self, preferred: str | None) -> Checkpoint:
        if preferred is not None:
            return self._chosen(preferred)
        if SINGLE in self.names:
            return self._single({SINGLE: None})
        if INDEX in self.names and not self._is_of_another_engine():
            return self._sharded(INDEX)
        return self._loose()

    def _is_of_another_engine(self) -> bool:
        """Whether the index is a left-over: ExLlamaV2 writes output*.safetensors, and copies what lies beside
        the weights that it read: their index, too.
        """
        written = any(map(_EXLLAMA.fullmatch, self.weights))
        return written and self.names.isdisjoint(self._index(INDEX).files())

    def _chosen(self, file: str) -> Checkpoint:
        if file in self.names and file.endswith(".safetensors.index.json"):
            return self._sharded(file, chosen_by=_CHOICE)
        return self._single({file: _CHOICE}, chosen_by=_CHOICE)

    def _single(self, file: Mapping[str, Location | None], chosen_by: Location | None = None) -> Checkpoint:
        beside = self._index(INDEX) if INDEX in self.names else None
        if beside is None:
            return self._checkpoint("single", file, chosen_by=chosen_by)
        if set(beside.files()) <= set(file):
            return self._checkpoint("single", file, used=beside, chosen_by=chosen_by)
        return self._checkpoint("single", file, unused=beside, chosen_by=chosen_by)

    def _sharded(self, file: str, chosen_by: Location | None = None) -> Checkpoint:
        used = self._index(file)
        unused = self._index(INDEX) if file != INDEX and INDEX in self.names else None
        return self._checkpoint("sharded", used.files(), used=used, unused=unused, chosen_by=chosen_by)

    def _loose(self) -> Checkpoint:
        adapters = [name for name in self.weights if _ADAPTER.fullmatch(name)]
        originals = [name for name in self.weights if _ORIGINAL.fullmatch(name)]
        others = sorted({*self.weights}.difference(adapters, originals))
        files = others or originals or adapters
        if not files:
            raise FactMissing(self._no_weights())
        return self._checkpoint("loose", dict.fromkeys(files))

    def _no_weights(self) -> str:
        pickles = pickled_weights(self.names)
        if pickles:
            return f"there is no *.safetensors, and pickled weights are never opened ({listed(pickles, 2)})"
        return "there is no weights file (*.safetensors)"

    def _checkpoint(
        self,
        layout: str,
        files: Mapping[str, Location | None],
        *,
        used: _ReadIndex | None = None,
        unused: _ReadIndex | None = None,
        chosen_by: Location | None = None,
    ) -> Checkpoint:
        """``files`` are those that a loader reads, in its order."""
        read = [self._read(file, named_by) for file, named_by in files.items()]
        if layout == "loose":
            read += _lost_parts(files)
        shards = tuple(shard for shard in read if isinstance(shard, Shard))
        passed_over = dict.fromkeys(
            [
                *(unused.files() if unused else ()),
                *([SINGLE] if SINGLE in self.names else ()),
                *(self._parts() if layout == "single" else ()),
            ]
        )
        stale = [file for file in passed_over if file not in files]
        tensors: dict[str, Tensor] = {}
        for shard in shards:
            tensors.update(shard.tensors)
        return Checkpoint(
            layout=layout,
            shards=shards,
            tensors=tensors,
            index_or=used.index if used else _PASSED_OVER if INDEX in self.names else _NO_INDEX,
            damaged=tuple(file for file in read if isinstance(file, DamagedFile)),
            stale=tuple(self._readable(stale)),
            unreferenced=tuple(self._unreferenced({*files, *stale})),
            unused_index=unused.index if unused else None,
            chosen_by=chosen_by,
            duplicate_keys=tuple(key for index in (used, unused) if index for key in index.duplicates),
            marked=(used.index.file,) if used and used.marked and layout == "sharded" else (),
        )

    def _parts(self) -> Iterator[str]:
        """Files that are named as parts of the checkpoint whose whole is ``SINGLE``."""
        for name in self.weights:
            found = part(name)
            if found is not None and f"{found.prefix}.safetensors" == SINGLE:
                yield name

    def _unreferenced(self, known: set[str]) -> Iterable[str]:
        for name in self.weights:
            if name not in known and not _ADAPTER.fullmatch(name) and not _ORIGINAL.fullmatch(name):
                yield name

    def _readable(self, files: Iterable[str]) -> Iterable[Shard]:
        for file in files:
            with suppress(Unreadable):  # loaders do not open it either
                shard = self._read(file, None)
                if isinstance(shard, Shard):
                    yield shard

    def _read(self, file: str, named_by: Location | None) -> Shard | DamagedFile:
        def damaged(damage: Damage, code: str, reason: str, hint: str) -> DamagedFile:
            return DamagedFile(file, damage, reason, hint, named_by, code)

        problem = _outside(file)
        if problem:
            return damaged(Damage.OUTSIDE, "index-path", problem, "name a file inside the model directory")
        if not file.endswith(".safetensors"):
            return damaged(
                Damage.NOT_WEIGHTS,
                "index-extension",
                "expected the name of a *.safetensors file",
                "convert the weights to safetensors",
            )
        if "/" not in file and file not in self.names:  # exact case, also where the file system ignores it
            return damaged(Damage.ABSENT, "no-such-file", "there is no such file", _FETCH)
        try:
            with self.source.open(file) as opened:
                return read_header(opened)
        except DamagedWeights as error:
            return damaged(error.damage, error.code, error.message, error.hint)
        except Unreadable as error:
            if error.code in ("no-such-file", "dangling-link"):
                return damaged(Damage.ABSENT, error.code, error.message, _FETCH)
            if error.code == "path-escape":
                return damaged(Damage.OUTSIDE, error.code, error.message, error.hint)
            raise

    def _index(self, file: str) -> _ReadIndex:
        parsed = strict_json.read_json(self.source, file, limits.INDEX_BYTES)
        document = parsed.value
        if not isinstance(document, dict):
            raise _malformed(file, f"expected an object, found {json_value(document)}")
        weight_map = document.get("weight_map")
        if not isinstance(weight_map, dict):
            raise _malformed(file, f"expected an object at /weight_map, found {json_value(weight_map)}")
        for tensor, shard in weight_map.items():
            if not isinstance(shard, str):
                at = pointed(Location(file).child("weight_map", tensor).pointer)
                raise _malformed(file, f"expected a file name at {at}, found {json_value(shard)}")
        index = Index(file, weight_map, _total_size(file, document))
        return _ReadIndex(index, parsed.duplicates, parsed.marked)


def _lost_parts(files: Iterable[str]) -> Iterator[DamagedFile]:
    """The parts that are not there, of files whose names count how many they are."""
    sets: dict[tuple[str, str], list[Part]] = {}
    for found in map(part, files):
        if found is not None and found.of <= _MOST_PARTS:
            sets.setdefault((found.prefix, found.total), []).append(found)
    for (prefix, total), parts in sets.items():
        numbers = {found.number for found in parts}
        first = 0 if 0 in numbers else 1  # some converters count from 0
        whole = set(range(first, first + int(total)))
        width = min(len(found.digits) for found in parts)
        for number in sorted(whole - numbers) if numbers <= whole else ():
            name = f"{prefix}-{number:0{width}}-of-{total}.safetensors"
            words = f"there is no such file, and the names of the others count {int(total)}"
            yield DamagedFile(name, Damage.ABSENT, words, _FETCH, code="part-missing")


def _total_size(file: str, document: Mapping[str, object]) -> Fact[object] | Missing:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or "total_size" not in metadata:
        return Missing(f"{file} states no metadata.total_size")
    return Fact(metadata["total_size"], Location(file).child("metadata", "total_size"))


def _outside(name: str) -> str:
    """Why this is no plain relative name, by the rules of every operating system; "" for one that is."""
    parts = name.split("/")
    if "\\" in name:
        return "a file name with a backslash, which leads elsewhere on Windows"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name):
        return "an address instead of a file name"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "an absolute path"
    if ".." in parts:
        return "a path that leads upwards (..)"
    if "" in parts or "." in parts:
        return "an empty file name" if not name else "a path with an empty step"
    if re.search(r"[\0-\x1f\x7f]", name):
        return "a file name with a control character"
    if any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for part in parts):
        return f"a file name of more than {_LONGEST_NAME} bytes"
    return ""


def _malformed(file: str, message: str) -> Unreadable:
    return Unreadable("index-malformed", file, message, hint="write the index again by saving the model")
