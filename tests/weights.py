"""Reads safetensors the plain way, for tests: an independent look at what was written."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def tables_of(directory: Path) -> dict[str, list[bytes]]:
    """Every tensor of every shard as the bytes of its rows; of a [1, V] tensor those of its values."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in header_of(path).items():
            if name == "__metadata__":
                continue
            start, stop = (8 + length + offset for offset in entry["data_offsets"])
            shape = entry["shape"] or [1]
            rows = shape[1] if len(shape) == 2 and shape[0] == 1 else shape[0]
            step = (stop - start) // max(1, rows)
            found[name] = [data[start + i * step : start + (i + 1) * step] for i in range(rows)]
    return found
