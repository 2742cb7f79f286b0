"""tokaudit-resize.json: what was done to each new row, and digests of what was read and written."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tokaudit.resize.initialisers import weights
from tokaudit.resize.plan import NewRow, Plan
from tokaudit.resize.request import Request
from tokaudit.resize.rows import StoredRows
from tokaudit.sources import Source

FILE = "tokaudit-resize.json"
VERSION = "1.0"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A token whose input row is close to a new one's, by cosine."""

    id: int
    content: str | None
    cosine: float


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A new row as it came out: norm of the input row, its percentile among the used rows, its neighbours."""

    row: NewRow
    norm: float
    percentile: float
    neighbours: tuple[Neighbour, ...]


def manifest(
    plan: Plan,
    request: Request,
    rows: Sequence[WrittenRow],
    files: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, str],
) -> dict[str, object]:
    """The manifest as JSON data. ``files`` are digests by side and file, ``tables`` of the old rows."""
    from tokaudit import __version__

    padding = [row.id for row in plan.rows if row.content is None]
    return {
        "manifest_version": VERSION,
        "generator": f"tokaudit {__version__}",
        "rows_before": plan.rows_before,
        "rows_after": plan.rows_after,
        "seed": request.seed,
        "tokens": [_token(row, plan.tied) for row in rows],
        "padding_rows": {"first": padding[0], "count": len(padding)} if padding else None,
        "tensors": [
            {
                "name": edit.table.name,
                "file": edit.table.tensor.file,
                "shape_before": list(edit.table.tensor.shape),
                "shape_after": list(edit.shape_after),
                "old_rows_sha256": tables[edit.table.name],
            }
            for edit in plan.tensors
        ],
        "digests": {side: dict(found) for side, found in files.items()},
    }


def _token(written: WrittenRow, tied: bool) -> dict[str, object]:
    row = written.row
    pieces = [
        {
            "id": piece.id,
            "content": piece.content,
            "weight": round(weight, 6),
            "output_weight": round(output_weight, 6),
        }
        for piece, weight, output_weight in zip(
            row.pieces,
            weights(row.method, len(row.pieces), output_side=False),
            weights(row.method if tied else row.output_method, len(row.pieces), output_side=not tied),
            strict=True,
        )
    ]
    return {
        "id": row.id,
        "content": row.content,
        "method": row.method,
        "output_method": row.method if tied else row.output_method,
        "note": row.note or None,
        "constituents": pieces,
        "norm": round(written.norm, 6),
        "norm_percentile": round(written.percentile, 2),
    }


def digest(source: Source, name: str) -> str:
    """SHA-256 of a file; of a safetensors file its header only (the tables have digests of their own)."""
    with source.open(name) as file:
        if not name.endswith(".safetensors"):
            return "sha256:" + hashlib.sha256(file.read(0, file.size)).hexdigest()
        (length,) = struct.unpack("<Q", file.read(0, 8))
        return "sha256-of-header:" + hashlib.sha256(file.read(0, 8 + length)).hexdigest()


def nearest(rows: StoredRows, values: torch.Tensor, most: int) -> list[list[tuple[int, float]]]:
    """For each of ``values`` [k, hidden]: the ids of the closest used rows by cosine, the closest first.

    One pass over the table; a row never counts as its own neighbour, nor as that of another new row.
    """
    wanted = torch.nn.functional.normalize(values, dim=1)
    best = torch.full((len(values), most), -2.0)
    ids = torch.zeros(len(values), most, dtype=torch.long)
    for first, chunk in rows.chunks():
        used = rows.used[first : first + len(chunk)]
        cosine = wanted @ torch.nn.functional.normalize(chunk, dim=1).nan_to_num().T
        cosine[:, ~used] = -2.0
        both = torch.cat([best, cosine], 1)
        places = torch.cat([ids, torch.arange(first, first + len(chunk)).expand(len(values), -1)], 1)
        best, order = both.topk(most, dim=1)
        ids = places.gather(1, order)
    return [
        [(id, round(value, 4)) for id, value in zip(row, cosines, strict=True) if value > -2.0]
        for row, cosines in zip(ids.tolist(), best.tolist(), strict=True)
    ]
