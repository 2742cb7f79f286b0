"""What a caller asks of a resize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tokaudit.contract import Role
from tokaudit.errors import TokauditError

# The initialisers by name; initialisers.py has their formulas.
METHODS = (
    "mean-of-subwords",
    "mean",
    "subword-mean-rescaled",
    "weighted-subwords",
    "normal",
    "zeros",
    "copy",
    "description",
)


class Refused(TokauditError):
    """The resize cannot be done right; nothing was written."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to add, as it is asked for. ``init`` overrides the initialiser ("zeros", "copy=TOKEN")."""

    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None  # default: not special, as the library has it
    single_word: bool = False
    init: str = ""


@dataclass(frozen=True)
class Request:
    """What the caller wants. ``rows`` and ``multiple`` size the tables, ``roles`` maps a role to its text."""

    tokens: tuple[NewToken, ...] = ()
    roles: Mapping[Role, str] = field(default_factory=dict)
    rows: int | None = None
    multiple: int | None = None
    init: str = "mean-of-subwords"
    output_init: str = ""
    seed: int = 0
    force: bool = False
    link: bool = False
    optimizer: bool = False

    @cached_property
    def methods(self) -> Mapping[str, str]:
        """The initialisers that tokens ask for themselves, by content."""
        return {token.content: token.init for token in self.tokens if token.init}
