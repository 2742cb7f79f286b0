"""JSON Lines: an object on each line, with a list of ids and perhaps one of labels, or the list alone."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tokaudit.contract.data import DataColumn
from tokaudit.data.blocks import BLOCK_ITEMS, Block, Ragged
from tokaudit.data.columns import choose
from tokaudit.errors import Unreadable
from tokaudit.formats import limits
from tokaudit.sources import open_named
from tokaudit.text import json_kind, json_value, pointed

_READ_BYTES = 1 << 20
_FIRST_LINES = 100  # of which one must show the columns


@dataclass(frozen=True, slots=True)
class LinesUnit:
    """The lines that begin from byte ``first`` up to ``past``; ``row`` lines come before them.

    ``keyed`` is False where a line is the list of ids itself.
    """

    path: str
    column: DataColumn
    first: int
    past: int
    row: int
    keyed: bool

    @property
    def nbytes(self) -> int:
        return self.past - self.first

    @property
    def begins(self) -> bool:
        return self.first == 0

    def split(self, nbytes: int) -> Iterator[LinesUnit]:
        """The same in parts of about so many bytes, each of whole lines; the lines are counted for it."""
        first, row = self.first, self.row
        lines = 0
        with open_named(self.path) as file:
            at = first
            while at < self.past:
                data = file.read(at, min(_READ_BYTES, self.past - at))
                lines += data.count(b"\n")
                at += len(data)
                end = at - len(data) + data.rfind(b"\n") + 1
                if end - first >= nbytes and b"\n" in data and at < self.past:
                    yield replace(self, first=first, past=end, row=row)
                    first, row = end, self.row + lines
        yield replace(self, first=first, row=row)

    def blocks(self) -> Iterator[Block]:
        """Raises Unreadable."""
        rows = _Rows(self.row)
        for number, line in _lines(self.path, self.column.file, self.first, self.past, self.row):
            self._take(rows, number, line)
            if len(rows.ids) >= BLOCK_ITEMS:
                yield from rows.blocks(labels=bool(self.column.labels))
                rows = _Rows(number + 1)
        yield from rows.blocks(labels=bool(self.column.labels))

    def _take(self, rows: _Rows, number: int, line: bytes) -> None:
        if line.isspace():
            rows.add(array("q"), None)
            return
        value = _value(line, self.column.file, number)
        if not self.keyed:
            rows.add(self._integers(value, "", number), None)
            return
        found = value if isinstance(value, dict) else {}
        ids = self._integers(found.get(self.column.column), self.column.column, number)
        labels = None
        if self.column.labels and found.get(self.column.labels) is not None:
            labels = self._integers(found[self.column.labels], self.column.labels, number)
        rows.add(ids, labels)

    def _integers(self, value: object, key: str, number: int) -> array[int]:
        where = f"line {number + 1}" + (f", {pointed(key)}" if key else "")
        if not isinstance(value, list):
            reason = f"{where}: expected a list of integers, found {json_kind(value)}"
            raise Unreadable("data-dtype", self.column.file, reason)
        if not set(map(type, value)) <= {int}:
            odd = next(member for member in value if type(member) is not int)
            reason = f"{where}: expected integers in the list, found {json_value(odd)}"
            raise Unreadable("data-dtype", self.column.file, reason)
        try:
            return array("q", value)
        except OverflowError:
            reason = f"{where}: a number of more than 64 bits"
            raise Unreadable("data-dtype", self.column.file, reason) from None


class _Rows:
    """Rows on their way into a block."""

    def __init__(self, first_row: int) -> None:
        self.first_row = first_row
        self.ids, self.labels, self.lengths = array("q"), array("q"), array("q")
        self.labelled = array("b")  # by row: 1 with as many labels as ids, -1 with others, 0 with none

    def add(self, ids: array[int], labels: array[int] | None) -> None:
        aligned = labels is not None and len(labels) == len(ids)
        self.ids += ids
        self.lengths.append(len(ids))
        self.labelled.append(0 if labels is None else 1 if aligned else -1)
        if labels is not None and aligned:
            self.labels += labels

    def blocks(self, *, labels: bool) -> Iterator[Block]:
        """One with all ids; where only some rows have labels, the labels go by the runs of such rows."""
        if not self.lengths:
            return
        if not labels:
            yield Block(_tensor(self.ids), Ragged(self.first_row, _tensor(self.lengths)))
            return
        yield from runs(
            _tensor(self.ids), _tensor(self.lengths), _tensor(self.labels), self.labelled, self.first_row
        )


def runs(
    ids: torch.Tensor, lengths: torch.Tensor, labels: torch.Tensor, labelled: array[int], first_row: int
) -> Iterator[Block]:
    """Blocks of neighbouring rows that all have labels, or have none.

    ``labelled`` says of each row: 1 with as many labels as ids, -1 with more or fewer, 0 with none.
    ``labels`` are those of the rows with a 1, one after the other.
    """
    item = label = row = 0
    while row < len(labelled):
        past = row + 1
        while past < len(labelled) and labelled[past] == labelled[row]:
            past += 1
        part = lengths[row:past]
        items = int(part.sum())
        block = Block(ids[item : item + items], Ragged(first_row + row, part))
        if labelled[row] > 0:
            block = replace(block, labels=labels[label : label + items])
            label += items
        elif labelled[row] < 0:
            block = replace(block, unaligned=past - row)
        yield block
        item += items
        row = past


def _tensor(values: array[int]) -> torch.Tensor:
    return torch.frombuffer(values, dtype=torch.int64) if values else torch.empty(0, dtype=torch.int64)


def plan(path: str, name: str) -> list[LinesUnit]:
    """The whole file; the first line that is not blank shows its columns. Raises Unreadable."""
    with open_named(path) as file:
        size = file.size
    for number, line in _lines(path, name, 0, size, 0):
        if line.isspace():
            if number >= _FIRST_LINES:
                break
            continue
        value = _value(line, name, number)
        if isinstance(value, list):
            return [LinesUnit(path, DataColumn(name, "", ""), 0, size, 0, keyed=False)]
        if not isinstance(value, dict):
            raise Unreadable(
                "data-columns", name, f"line {number + 1}: expected an object, found {json_kind(value)}"
            )
        lists = {key: isinstance(member, list) for key, member in value.items()}
        ids, labels = choose(name, lists, what="a list")
        return [LinesUnit(path, DataColumn(name, ids, "", labels=labels), 0, size, 0, keyed=True)]
    raise Unreadable("data-columns", name, "expected JSON on each line, found blank lines only")


def _value(line: bytes, name: str, number: int) -> object:
    """A line's value. Repeated keys and odd numbers elsewhere on it do no harm: only its ids are used."""
    try:
        return json.loads(line.decode("utf-8"))
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ValueError as error:
        reason = str(error) if len(str(error)) < 100 else "it is no JSON"
    raise Unreadable("data-syntax", name, f"line {number + 1}: {reason}", hint="expected JSON on each line")


def _lines(path: str, name: str, first: int, past: int, row: int) -> Iterator[tuple[int, bytes]]:
    """The lines between two offsets with their numbers from 0. Raises Unreadable ("data-line")."""
    with open_named(path) as file, os.fdopen(os.dup(file.fileno()), "rb", _READ_BYTES) as stream:
        stream.seek(first)
        at = first
        number = row
        while at < past:
            line = stream.readline(limits.JSON_LINE_BYTES + 1)
            if not line:
                file.read(at, past - at)  # says what is wrong
            if len(line) > limits.JSON_LINE_BYTES:
                most = limits.JSON_LINE_BYTES
                raise Unreadable("data-line", name, f"line {number + 1} has more than {most} bytes")
            at += len(line)
            yield number, line
            number += 1
