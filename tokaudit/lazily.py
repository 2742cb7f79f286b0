"""Names of a package whose modules are imported when they are asked for."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def found(package: str, homes: Mapping[str, str], name: str) -> object:
    """What a package's ``__getattr__`` returns; ``homes`` names the module of each name."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    __import__(homes[name])
    value: object = getattr(sys.modules[homes[name]], name)
    setattr(sys.modules[package], name, value)
    return value
