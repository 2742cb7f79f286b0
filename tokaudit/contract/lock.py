"""The contract as a lock: small enough to be committed, complete enough that drift says what changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")  # of an added token: how it is matched

# A part of the pipeline in normal form: JSON values, optional fields left out where they hold their default.
Json = object


@dataclass(frozen=True, slots=True)
class ListDigest:
    """A digest of a list that is too long for a lock.

    ``blocks`` are shorter digests of its stretches, by where each begins, so that drift can be placed.
    ``end`` is the last position + 1; there may be fewer entries (``count``) than that.
    """

    digest: str
    count: int
    end: int
    blocks: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ListDigests:
    """Digests of a vocabulary's long lists, by the ids that its files declare; None for one it does not have.

    They are made while the `tokenizers` library loads the file, which takes as long.
    """

    mapping: ListDigest
    merges: ListDigest | None
    scores: ListDigest | None


@dataclass(frozen=True, slots=True)
class LockedToken:
    """An added token: its effective id, its text, its matching flags."""

    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    single_word: bool = False

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(name for name in FLAGS if getattr(self, name))


@dataclass(frozen=True, slots=True)
class LockedRole:
    """The token that has a role; ``id`` is None where no file gives its text one."""

    content: str
    id: int | None


@dataclass(frozen=True, slots=True)
class LockedTable:
    """A table of token rows. ``kind`` is the word of its TableKind; ``rows`` is None for a packed one.

    ``name`` is the tensor's without the prefixes that a model class puts before it.
    """

    kind: str
    name: str
    rows: int | None
    hidden: int | None
    dtype: str


@dataclass(frozen=True, slots=True)
class Probe:
    """A text and what it encodes to, post-processor included; None where the library refuses the text."""

    text: str
    ids: tuple[int, ...] | None


@dataclass(frozen=True)
class Lock:
    """Fingerprints of a contract by layer. A layer is None where its facts were not there to be locked.

    ``name`` says where it comes from (the lock's file, or the model's directory) and is no part of it.
    ``mapping`` digests the token-to-id mapping, ``merges`` those of a BPE model, ``scores`` those of a
    Unigram one. ``parts`` are the parts of the pipeline by name ("model", "normalizer" ... "padding"; None
    for a part that the tokenizer does not have). ``rebuilt_by`` is the tokenizer class that builds
    another pipeline, "" where the class takes it as it stands.
    ``templates`` are digests by name. ``ids`` are the token ids that config.json names, by field;
    ``generation_ids`` those that generation reads. ``expected_rows`` is how many input rows the
    configuration asks for. ``contents`` are digests of the tables' bytes, by name.
    ``ignored`` are JSON Pointers of keys in the file that this version of tokaudit does not know.
    """

    name: str
    mapping: ListDigest | None = None
    added_tokens: tuple[LockedToken, ...] | None = None
    merges: ListDigest | None = None
    scores: ListDigest | None = None
    parts: Mapping[str, Json] | None = None
    rebuilt_by: str | None = None
    templates: Mapping[str, str] | None = None
    roles: Mapping[str, LockedRole] | None = None
    ids: Mapping[str, tuple[int, ...]] | None = None
    generation_ids: Mapping[str, tuple[int, ...]] | None = None
    expected_rows: int | None = None
    tables: tuple[LockedTable, ...] | None = None
    tied: bool | None = None
    contents: Mapping[str, str] | None = None
    probes: tuple[Probe, ...] | None = None
    ignored: tuple[str, ...] = ()
