"""What a resize will do, as data: printable and testable before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract import AddedToken, Shard, Table
from tokaudit.findings import Location


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the old tokenizer that a new token's text falls into."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to write. ``content`` is None for a padding row; ``pieces`` are what its values come from.

    ``method`` initialises the input side, ``output_method`` the output side and the biases. ``note`` says
    why the method is not the one that was asked for.
    """

    id: int
    content: str | None
    method: str
    output_method: str
    pieces: tuple[Piece, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class TensorEdit:
    """A table that grows (or whose padding rows are written). ``output_side`` picks the initialiser."""

    table: Table
    rows_after: int
    output_side: bool

    @property
    def shape_after(self) -> tuple[int, ...]:
        shape = list(self.table.tensor.shape)
        shape[self.table.axis] = self.rows_after
        return tuple(shape)

    @property
    def bytes_added(self) -> int:
        tensor = self.table.tensor
        return (self.rows_after - self.table.rows) * (tensor.nbytes // max(1, self.table.rows))


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A change to a JSON file: "replace" the value at ``path``, "set" members of it, or "append" items."""

    at: Location
    operation: str
    path: tuple[str | int, ...]
    before: object
    after: object


@dataclass(frozen=True)
class Plan:
    """Everything a resize will do. ``rows_before`` and ``rows_after`` count rows of the input table."""

    source: str
    rows_before: int
    rows_after: int
    added: tuple[AddedToken, ...]
    rows: tuple[NewRow, ...]
    tensors: tuple[TensorEdit, ...]
    files: tuple[FileEdit, ...]
    replaced_files: tuple[str, ...]  # taken from the other tokenizer's directory
    tied: bool
    notes: tuple[str, ...]
    shards: tuple[Shard, ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        return not (self.tensors or self.files or self.replaced_files)

    @property
    def bytes_rewritten(self) -> int:
        """Size of the shards that hold an edited table, with their new rows."""
        grown = sum(edit.bytes_added for edit in self.tensors)
        return grown + sum(shard.size for shard in self.shards if shard.file in self.rewritten_shards)

    @property
    def bytes_copied(self) -> int:
        """Size of the shards that the kernel copies as they are."""
        return sum(shard.size for shard in self.shards if shard.file not in self.rewritten_shards)

    @property
    def rewritten_shards(self) -> tuple[str, ...]:
        return tuple(sorted({edit.table.tensor.file for edit in self.tensors}))
