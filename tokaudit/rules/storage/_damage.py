"""Weights files that cannot be read, grouped by their cause: a hundred cut shards are one breach."""

from __future__ import annotations

from collections.abc import Iterable

from tokaudit.contract import Damage, DamagedFile
from tokaudit.findings import Claim, Location
from tokaudit.text import counted, listed, shown


def by_cause(files: Iterable[DamagedFile], damage: Damage) -> tuple[tuple[DamagedFile, ...], ...]:
    """The files with this damage, one group per cause, in the order in which a loader meets them."""
    groups: dict[str, list[DamagedFile]] = {}
    for file in files:
        if file.damage is damage:
            groups.setdefault(file.code, []).append(file)
    return tuple(tuple(group) for group in groups.values())


def described(files: tuple[DamagedFile, ...], several: str) -> str:
    """One file with its reason, or how many there are (``several``: "files cannot be read") and the first."""
    if len(files) == 1:
        return f"{shown(files[0].file)}: {files[0].reason}"
    return f"{len(files)} {several}: {listed([f'{shown(file.file)} ({file.reason})' for file in files], 3)}"


def claims(files: tuple[DamagedFile, ...]) -> tuple[Claim, ...]:
    """What each of the first files is, then where it is named."""
    first = files[:3]
    states = (Claim(Location(file.file), file.reason) for file in first)
    names = (Claim(file.named_by, f"names {shown(file.file)}") for file in first if file.named_by)
    return (*states, *names)


def remedy(files: tuple[DamagedFile, ...], otherwise: str) -> str:
    """The hint of the first file, which knows its own cause best."""
    return files[0].hint or otherwise


def tensors(number: int) -> str:
    return counted(number, "tensor")
