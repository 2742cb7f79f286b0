"""tokaudit-resize.json: what was done to each new row, and digests of what was read and written."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tokaudit.errors import Unreadable
from tokaudit.formats import limits, strict_json
from tokaudit.resize.plan import NewRow, Plan, Recipe
from tokaudit.resize.request import Request
from tokaudit.sources import Source

FILE = "tokaudit-resize.json"
VERSION = "1.0"
HASHED_WHOLE = 64 << 20  # a larger shard's header is hashed, and the rows of its tables

Digest = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A token whose input row is close to a new one's, by cosine."""

    id: int
    content: str | None
    cosine: float


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A new row as it came out: norm of the input row, its percentile among the used rows, its neighbours.

    Neighbours are looked for up to a number of rows; beyond it they are empty.
    """

    row: NewRow
    norm: float
    percentile: float
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True)
class Digests:
    """Of the files of both sides by name, and of the rows that stayed by table."""

    source: Mapping[str, Digest]
    result: Mapping[str, Digest]
    tables: Mapping[str, str]


def manifest(
    plan: Plan, request: Request, rows: Sequence[WrittenRow], digests: Digests, previous: object
) -> dict[str, object]:
    """The manifest as JSON data. ``previous`` is the manifest of an earlier resize of the source, if any."""
    from tokaudit import __version__

    return {
        "manifest_version": VERSION,
        "generator": f"tokaudit {__version__}",
        "rows_before": plan.rows_before,
        "rows_after": plan.rows_after,
        "tied": plan.tied,
        "seed": request.seed,
        "tokens": [_token(row, plan) for row in rows],
        "padding_rows": plan.padding_rows,
        "tensors": [
            {
                "name": edit.table.name,
                "file": edit.table.tensor.file,
                "side": "output" if edit.output_side else "input",
                "shape_before": list(edit.table.tensor.shape),
                "shape_after": list(edit.shape_after),
                "old_rows_sha256": digests.tables[edit.table.name],
            }
            for edit in plan.tensors
        ],
        "digests": {"source": digests.source, "result": digests.result},
        "previous": previous,
    }


def _token(written: WrittenRow, plan: Plan) -> dict[str, object]:
    row = written.row
    return {
        "id": row.id,
        "content": row.content,
        "norm": round(written.norm, 6),
        "norm_percentile": round(written.percentile, 2),
        "input": _recipe(row.input, output_side=False),
        "output": _recipe(row.output, output_side=True) if plan.has_output_side else None,
    }


def _recipe(recipe: Recipe, *, output_side: bool) -> dict[str, object]:
    shares = recipe.weights(output_side=output_side)
    return {
        "method": recipe.method,
        "constituents": [
            {"id": piece.id, "content": piece.content, "weight": round(share, 6)}
            for piece, share in zip(recipe.pieces, shares, strict=True)
        ],
        "note": recipe.note or None,
    }


def digests_of(source: Source, names: Iterable[str]) -> Mapping[str, Digest]:
    """Size and SHA-256 of each file; of a large safetensors file that of its header."""
    return {name: _digest(source, name) for name in sorted(names)}


def _digest(source: Source, name: str) -> Digest:
    with source.open(name) as file:
        if name.endswith(".safetensors") and file.size > HASHED_WHOLE:
            (length,) = struct.unpack("<Q", file.read(0, 8))
            header = hashlib.sha256(file.read(0, 8 + length)).hexdigest()
            return {"bytes": file.size, "header_sha256": header}
        digest = hashlib.sha256()
        for start in range(0, file.size, 1 << 20):
            digest.update(file.read(start, min(1 << 20, file.size - start)))
        return {"bytes": file.size, "sha256": digest.hexdigest()}


def read_manifest(source: Source) -> object:
    """The manifest that an earlier resize left in the source; None where there is none to be read."""
    with suppress(Unreadable):
        return strict_json.read_object(source, FILE, limits.SIDE_FILE_BYTES).value
    return None


def as_text(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2) + "\n"
