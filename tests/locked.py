"""What the tests of the lock share: changes to models as they lie on disk."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokaudit
from tokaudit.contract import Lock
from tokaudit.locks.write import digests_of

Change = Callable[[Path], None]


def text_of(directory: Path, *, deep: bool = True) -> str:
    return tokaudit.lock_text(tokaudit.lock(directory, deep=deep))


def layers_that_differ(left: Lock, right: Lock) -> set[str]:
    one, other = digests_of(left), digests_of(right)
    return {layer for layer in {**one, **other} if one.get(layer) != other.get(layer)}


def edit(directory: Path, file: str, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / file
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def set_token(which: str, **flags: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        next(token for token in document["added_tokens"] if token["content"] == which).update(flags)

    return change


def put(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        here = document
        for step in path[:-1]:
            here = here[step]
        here[path[-1]] = value

    return change


def one_shard_for_each_tensor(directory: Path) -> None:
    path = directory / "model.safetensors"
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    weight_map = {}
    for number, name in enumerate(reversed(header), 1):
        entry = header[name]
        start, stop = entry["data_offsets"]
        entry["data_offsets"] = [0, stop - start]
        file = f"model-{number:05}-of-{len(header):05}.safetensors"
        weight_map[name] = file
        inner = json.dumps({name: entry}).encode()
        blob = data[8 + length + start : 8 + length + stop]
        (directory / file).write_bytes(struct.pack("<Q", len(inner)) + inner + blob)
    path.unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
