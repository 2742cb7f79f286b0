"""The facts of a diff, and the two sides that they are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tokaudit.contract import Contract, Lock
from tokaudit.errors import FactMissing
from tokaudit.sources import Source
from tokaudit.text import named


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same on both sides. ``layer`` is one of a lock's.

    ``what``, ``left`` and ``right`` are in words; texts in them that come from a model are quoted. ``path``
    says for programs where in the layer it is: ("input embeddings", "rows").
    """

    layer: str
    what: str
    left: str
    right: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.left} -> {self.right}"


@dataclass(frozen=True)
class Side:
    """One side: its fingerprints and, where it is a directory, everything else that is known of it."""

    lock: Lock
    contract: Contract | None = None
    source: Source | None = None  # of the weights

    @property
    def name(self) -> str:
        return self.lock.name

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each token whose text is known: of all of them, or of those that the lock lists."""
        if self.contract is not None and self.lock.mapping is not None:
            return self.contract.vocabulary.effective
        listed = {token.content: token.id for token in self.lock.added_tokens or ()}
        for role in (self.lock.roles or {}).values():
            if role.id is not None:
                listed.setdefault(role.content, role.id)
        return listed

    @property
    def knows_all_ids(self) -> bool:
        return self.contract is not None and self.lock.mapping is not None

    @cached_property
    def texts(self) -> Mapping[int, str]:
        """The texts of the known ids."""
        return {id: content for content, id in self.ids.items()}

    def named(self, id: int) -> str:
        """The id, and its text where that is known."""
        if id in self.texts:
            return named(id, self.texts[id])
        return named(id, None) if self.knows_all_ids else str(id)

    @property
    def merges(self) -> tuple[tuple[str, str], ...] | None:
        """The merges themselves, which a lock does not hold."""
        try:
            found = self.contract and self.contract.vocabulary.pipeline.merges
        except FactMissing:
            return None
        return found if isinstance(found, tuple) else None

    def template(self, name: str) -> str | None:
        """The text of a chat template, which a lock does not hold."""
        templates = self.contract.templates if self.contract else ()
        return next((template.text for template in templates if template.name == name), None)
