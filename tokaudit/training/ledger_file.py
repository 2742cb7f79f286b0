"""A ledger as a file: safetensors, so that any of its readers has the numbers.

One tensor for each list of numbers, [rows]: ``visits`` (I64) and, for table N, ``N.input_gradients``,
``N.output_gradients``, ``N.updates`` and ``N.untouched`` (F64). ``__metadata__`` holds ``format``
("tokaudit-ledger"), ``version`` and ``ledger``: everything else as a JSON object, of which version 1 has

    steps, passes, pad_id (or null), new_ids,
    tables: [{name, looked_up, gives_logits, trained, masked, optimizer, weight_decay,
              residual: {id, relative, tolerance, rows} or {missing: REASON}}]

The texts of tokens are not in it. Reading needs no torch, and takes the file for a stranger's.
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tokaudit import atomic
from tokaudit.contract import Missing, Shard
from tokaudit.contract.ledger import Ledger, Residual, TableLedger
from tokaudit.errors import Unreadable
from tokaudit.formats import strict_json
from tokaudit.formats.safetensors import read_header
from tokaudit.sources import OpenFile
from tokaudit.sources.local import open_named
from tokaudit.text import json_kind, json_value

FORMAT, VERSION = "tokaudit-ledger", "1"
MOST_ROWS = 2**24  # 16 million tokens; their numbers take 640 MB
MOST_TABLES = 2
LISTS = ("input_gradients", "output_gradients", "updates", "untouched")
REMEDY = "save it again with GradientLedger.save"

T = TypeVar("T", int, float)


def save(ledger: Ledger, path: str | os.PathLike[str]) -> None:
    """Write the file; it is complete under its name or not there at all. Raises CannotWrite."""
    lists: dict[str, array[Any]] = {"visits": ledger.visits}
    for number, table in enumerate(ledger.tables):
        lists |= {f"{number}.{name}": getattr(table, name) for name in LISTS}
    header: dict[str, object] = {
        "__metadata__": {"format": FORMAT, "version": VERSION, "ledger": json.dumps(_document(ledger))}
    }
    end = 0
    for name, numbers in lists.items():
        begin, end = end, end + 8 * len(numbers)
        dtype = "I64" if numbers.typecode == "q" else "F64"
        header[name] = {"dtype": dtype, "shape": [len(numbers)], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic.new_file(Path(path)) as building, building.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for numbers in lists.values():
            file.write(_little(numbers).tobytes())


def _document(ledger: Ledger) -> dict[str, object]:
    return {
        "steps": ledger.steps,
        "passes": ledger.passes,
        "pad_id": ledger.pad_id,
        "new_ids": ledger.new_ids,
        "tables": [_table(table) for table in ledger.tables],
    }


def _table(table: TableLedger) -> dict[str, object]:
    residual = table.residual_or
    return {
        "name": table.name,
        "looked_up": table.looked_up,
        "gives_logits": table.gives_logits,
        "trained": table.trained,
        "masked": table.masked,
        "optimizer": table.optimizer,
        "weight_decay": table.weight_decay,
        "residual": {"missing": residual.reason}
        if isinstance(residual, Missing)
        else {
            "id": residual.id,
            "relative": residual.relative,
            "tolerance": residual.tolerance,
            "rows": residual.rows,
        },
    }


def _little(numbers: array[Any]) -> array[Any]:
    """Between this machine's order of bytes and that of the file."""
    if sys.byteorder == "little":
        return numbers
    swapped = numbers[:]
    swapped.byteswap()
    return swapped


def read(path: str | os.PathLike[str]) -> Ledger:
    """Read a ledger's file.

    Raises Unreadable: "ledger-malformed", "ledger-version", and what a safetensors file can be damaged by.
    """
    with open_named(os.fspath(path)) as file:
        return _Reader(file, read_header(file)).ledger()


class _Reader:
    def __init__(self, file: OpenFile, shard: Shard) -> None:
        self.file = file
        self.shard = shard

    def ledger(self) -> Ledger:
        metadata = self.shard.metadata
        if metadata.get("format") != FORMAT:
            raise self.malformed("format", FORMAT, json_value(metadata.get("format")))
        if metadata.get("version") != VERSION:
            found = json_value(metadata.get("version"))
            message = f"version: expected {VERSION}, found {found}"
            raise Unreadable("ledger-version", self.file.name, message, hint=f"update tokaudit, or {REMEDY}")
        held = strict_json.parse_object(metadata.get("ledger", "").encode(), self.file.name).value
        tables = self.items(held, "tables")
        if not 0 < len(tables) <= MOST_TABLES:
            raise self.malformed("tables", "one or two", str(len(tables)))
        pad_id = held.get("pad_id")
        return Ledger(
            steps=self.count(held, "steps"),
            passes=self.count(held, "passes"),
            visits=self.numbers("visits", array("q")),
            tables=tuple(self.table(number, table) for number, table in enumerate(tables)),
            new_ids=tuple(self.id(id, "new_ids") for id in self.items(held, "new_ids")),
            pad_id=None if pad_id is None else self.id(pad_id, "pad_id"),
            file=self.file.name,
        )

    def table(self, number: int, value: object) -> TableLedger:
        held = self.members(value, "tables")
        given, output, updates, untouched = lists = [
            self.numbers(f"{number}.{name}", array("d")) for name in LISTS
        ]
        if len({len(numbers) for numbers in lists}) != 1:
            raise self.malformed(f"table {number}", "lists of one length", "several lengths")
        return TableLedger(
            self.text(held, "name"),
            self.flag(held, "looked_up"),
            self.flag(held, "gives_logits"),
            self.flag(held, "trained"),
            given,
            output,
            updates,
            untouched,
            residual_or=self.residual(held.get("residual")),
            masked=self.count(held, "masked"),
            optimizer=self.text(held, "optimizer"),
            weight_decay=self.real(held, "weight_decay"),
        )

    def residual(self, value: object) -> Residual | Missing:
        held = self.members(value, "residual")
        if "missing" in held:
            return Missing(self.text(held, "missing"))
        return Residual(
            self.id(held.get("id"), "id"),
            self.real(held, "relative"),
            self.real(held, "tolerance"),
            self.count(held, "rows"),
        )

    def numbers(self, name: str, numbers: array[T]) -> array[T]:
        """A list of numbers, none of them negative; NaN and infinity are what a broken run leaves."""
        dtype = "I64" if numbers.typecode == "q" else "F64"
        tensor = self.shard.tensors.get(name)
        if tensor is None or tensor.dtype != dtype or len(tensor.shape) != 1:
            found = "nothing" if tensor is None else f"{tensor.dtype} of shape {list(tensor.shape)}"
            raise self.malformed(name, f"{dtype} of shape [rows]", found)
        if tensor.shape[0] > MOST_ROWS:
            raise self.malformed(name, f"at most {MOST_ROWS} rows", str(tensor.shape[0]))
        numbers.frombytes(self.file.read(tensor.start, tensor.stop - tensor.start))
        numbers = _little(numbers)
        if any(number < 0 for number in numbers):
            raise self.malformed(name, "no negative number", "one")
        return numbers

    def malformed(self, where: str, expected: str, found: str) -> Unreadable:
        message = f"{where}: expected {expected}, found {found}"
        return Unreadable("ledger-malformed", self.file.name, message, hint=REMEDY)

    def members(self, value: object, where: str) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.malformed(where, "an object", json_kind(value))
        return value

    def items(self, held: Mapping[str, object], key: str) -> list[object]:
        value = held.get(key)
        if not isinstance(value, list):
            raise self.malformed(key, "a list", json_kind(value))
        return value

    def text(self, held: Mapping[str, object], key: str) -> str:
        value = held.get(key)
        if not isinstance(value, str):
            raise self.malformed(key, "a text", json_kind(value))
        return value

    def flag(self, held: Mapping[str, object], key: str) -> bool:
        value = held.get(key)
        if not isinstance(value, bool):
            raise self.malformed(key, "true or false", json_kind(value))
        return value

    def count(self, held: Mapping[str, object], key: str) -> int:
        return self.id(held.get(key), key)

    def id(self, value: object, where: str) -> int:
        if type(value) is not int or not 0 <= value < 2**63:
            raise self.malformed(where, "a whole number", json_value(value))
        return value

    def real(self, held: Mapping[str, object], key: str) -> float:
        value = held.get(key)
        if type(value) not in (int, float):
            raise self.malformed(key, "a number", json_kind(value))
        return float(value)  # type: ignore[arg-type]
