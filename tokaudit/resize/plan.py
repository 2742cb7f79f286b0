"""What a resize will do, as data: printable and testable before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tokaudit.contract import AddedToken, Shard, Table, TableKind
from tokaudit.findings import Location

Operation = Literal["replace", "set", "extend", "append"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the old tokenizer that a new row takes its values from."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a new row gets its values on one side: the method, and the tokens whose rows it reads.

    ``note`` says why the outcome is not what the method's name promises.
    """

    method: str
    pieces: tuple[Piece, ...] = ()
    note: str = ""

    def weights(self, *, output_side: bool) -> tuple[float, ...]:
        """The share of each piece in the row; they add up to 1.

        "weighted-subwords": they rise along the pieces for input rows, which must carry the state after the
        last piece, and fall for output rows, which must predict the first.
        """
        count = len(self.pieces)
        if self.method != "weighted-subwords":
            return (1 / count,) * count if count else ()
        total = count * (count + 1) / 2
        rising = tuple(place / total for place in range(1, count + 1))
        return rising[::-1] if output_side else rising


@dataclass(frozen=True, slots=True)
class NewRow:
    """A token whose row is to be written.

    ``input`` is for the input side and the tables that copy it, ``output`` for the output table and biases.
    """

    id: int
    content: str
    input: Recipe
    output: Recipe


@dataclass(frozen=True, slots=True)
class TensorEdit:
    """A table that grows, or in which padding rows become rows of tokens.

    ``output_side`` picks the recipe. Rows that no new token has are copies of row ``filler``, or padding
    where there is none.
    """

    table: Table
    rows_after: int
    output_side: bool
    filler: int | None

    @property
    def shape_after(self) -> tuple[int, ...]:
        shape = list(self.table.tensor.shape)
        shape[self.table.axis] = self.rows_after
        return tuple(shape)

    @property
    def repeats(self) -> bool:
        """Whether the table holds again what another one holds: a tied copy, an encoder's, a predictor's."""
        kind = self.table.kind
        return kind is TableKind.SECONDARY or (kind is TableKind.OUTPUT and not self.output_side)

    @property
    def row_bytes(self) -> int:
        return self.table.tensor.nbytes // self.table.rows

    @property
    def bytes_added(self) -> int:
        return (self.rows_after - self.table.rows) * self.row_bytes

    @property
    def values_added(self) -> int:
        """How many numbers the tensor gains."""
        width = 1
        for axis, length in enumerate(self.table.tensor.shape):
            width *= 1 if axis == self.table.axis else length
        return (self.rows_after - self.table.rows) * width


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change to the value at ``path`` of a JSON file, which is that of ``at`` in steps.

    "replace" puts ``after`` in the place of ``before``, "set" adds it as a member that is not there, "extend"
    adds members to an object, "append" items to a list.
    """

    at: Location
    operation: Operation
    path: tuple[str | int, ...]
    before: object
    after: object


@dataclass(frozen=True)
class Plan:
    """Everything a resize will do. ``rows_before`` and ``rows_after`` count rows of the input table.

    ``rows`` are the tokens whose rows are written, by id. ``added`` are those of them that are new to the
    tokenizer. ``taken_files`` come from the other tokenizer's directory; ``dropped_files`` are those of the
    source's own tokenizer, which give way to them.
    """

    source: str
    rows_before: int
    rows_after: int
    added: tuple[AddedToken, ...]
    rows: tuple[NewRow, ...]
    tensors: tuple[TensorEdit, ...]
    files: tuple[FileEdit, ...]
    taken_files: tuple[str, ...]
    dropped_files: tuple[str, ...]
    tied: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    shards: tuple[Shard, ...]

    @property
    def nothing_to_do(self) -> bool:
        return not (self.tensors or self.files or self.taken_files)

    @property
    def padding_rows(self) -> int:
        """How many new rows belong to no token."""
        return self.rows_after - self.rows_before - sum(row.id >= self.rows_before for row in self.rows)

    @property
    def padding_bias(self) -> bool:
        """Whether padding rows get a bias that keeps them from being chosen."""
        return self.padding_rows > 0 and any(edit.table.kind is TableKind.BIAS for edit in self.tensors)

    @property
    def has_output_side(self) -> bool:
        """Whether any table is filled by the output recipes."""
        return any(edit.output_side for edit in self.tensors)

    @property
    def rewritten_shards(self) -> tuple[str, ...]:
        return tuple(sorted({edit.table.tensor.file for edit in self.tensors}))

    @property
    def bytes_rewritten(self) -> int:
        """Size of the shards that hold an edited table, with their new rows."""
        grown = sum(edit.bytes_added for edit in self.tensors)
        return grown + sum(shard.size for shard in self.shards if shard.file in self.rewritten_shards)

    @property
    def bytes_copied(self) -> int:
        """Size of the shards that are copied as they are."""
        return sum(shard.size for shard in self.shards if shard.file not in self.rewritten_shards)

    def edits_of(self, shard: str) -> Iterator[TensorEdit]:
        return (edit for edit in self.tensors if edit.table.tensor.file == shard)
