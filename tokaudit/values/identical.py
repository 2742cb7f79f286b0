"""Rows of the same bytes: a checksum finds candidates, a hash of what is stored groups them."""

from __future__ import annotations

import hashlib

import torch

from tokaudit.values.stored import StoredTable

LEAST_BYTES = 16


def identical_rows(
    table: StoredTable, checksums: torch.Tensor, excepted: torch.Tensor
) -> list[tuple[int, ...]]:
    """Groups of two and more rows, in order, whose bytes are equal; ``excepted`` (bool [rows]) stay out.

    Only rows that share their checksum are read again, each compared with the first of its group. Rows of
    fewer than 16 bytes may be equal by chance: there are no groups of them.
    """
    if table.row_bytes < LEAST_BYTES:
        return []
    candidates = (~excepted).nonzero().flatten()
    ordered, order = checksums[candidates].sort(stable=True)
    same = ordered[1:] == ordered[:-1]
    edge = torch.zeros(1 if len(ordered) else 0, dtype=torch.bool)
    shared = torch.cat([edge, same]) | torch.cat([same, edge])
    rows, sums = candidates[order][shared].tolist(), ordered[shared].tolist()
    groups: dict[tuple[int, bytes], list[int]] = {}
    with table.opened() as read:
        for row, number in zip(rows, sums, strict=True):
            data = read(row)
            members = groups.setdefault((number, hashlib.blake2b(data, digest_size=16).digest()), [])
            if not members or read(members[0]) == data:
                members.append(row)
    return sorted(tuple(members) for members in groups.values() if len(members) > 1)
