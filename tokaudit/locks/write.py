"""Writing a lock: JSON that is the same for the same contract byte by byte, and that people can review.

Version 1 is an object of ``lockVersion``, ``layers`` and ``digests``. Keys are sorted, the file is ASCII, and
a value stands on one line where it fits, a list of numbers always. The digest of a layer is that of its value
in canonical JSON (RFC 8785), so that anyone can check it; ``mapping``, ``merges`` and ``scores`` have
digests of the lists themselves (digests.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from tokaudit.contract import ListDigest, Lock, LockedTable, LockedToken, Probe
from tokaudit.errors import TokauditError
from tokaudit.formats import limits
from tokaudit.locks.digests import canonical_digest
from tokaudit.locks.normal import PARTS
from tokaudit.text import size

T = TypeVar("T")

VERSION = 1
LINE = 100  # characters of a line
LISTS = ("mapping", "merges", "scores")  # layers whose digests are those of lists
LAYERS = (
    "mapping",
    "added_tokens",
    "merges",
    "scores",
    *PARTS,
    "rebuilt_by",
    "templates",
    "roles",
    "ids",
    "generation_ids",
    "expected_rows",
    "tables",
    "tied",
    "contents",
    "probes",
)


def layers_of(lock: Lock) -> dict[str, object]:
    """The layers that the lock holds, as JSON values, in the order of ``LAYERS``."""
    found: dict[str, object] = {
        "mapping": lock.mapping and _list(lock.mapping),
        "added_tokens": _each(lock.added_tokens, _token),
        "merges": lock.merges and _list(lock.merges),
        "scores": lock.scores and _list(lock.scores),
        "rebuilt_by": lock.rebuilt_by,
        "templates": lock.templates,
        "roles": lock.roles
        and {role: {"content": held.content, "id": held.id} for role, held in lock.roles.items()},
        "ids": _id_lists(lock.ids),
        "generation_ids": _id_lists(lock.generation_ids),
        "expected_rows": lock.expected_rows,
        "tables": _each(lock.tables, _table),
        "tied": lock.tied,
        "contents": lock.contents,
        "probes": _each(lock.probes, _probe),
    }
    known = {name: value for name, value in found.items() if value is not None} | dict(lock.parts or {})
    return {name: known[name] for name in LAYERS if name in known}


def digests_of(lock: Lock) -> dict[str, str]:
    """The digest of each layer that the lock holds."""
    lists = {"mapping": lock.mapping, "merges": lock.merges, "scores": lock.scores}
    found: dict[str, str] = {}
    for name, value in layers_of(lock).items():
        of_list = lists.get(name)
        found[name] = canonical_digest(value) if of_list is None else of_list.digest
    return found


def to_text(lock: Lock) -> str:
    """The file. Raises TokauditError where it would be larger than what is read."""
    document = {"lockVersion": VERSION, "layers": layers_of(lock), "digests": digests_of(lock)}
    text = _written(document, "") + "\n"
    if len(text) > limits.LOCK_BYTES:
        raise TokauditError(
            f"the lock would take {size(len(text))}, more than {size(limits.LOCK_BYTES)}",
            hint="the added tokens of this tokenizer are too many or too long",
        )
    return text


def _written(value: object, indent: str) -> str:
    line = json.dumps(value, sort_keys=True, ensure_ascii=True)
    numbers = isinstance(value, list) and all(type(member) is int for member in value)
    if not isinstance(value, (dict, list)) or numbers or len(indent + line) <= LINE:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_written(value[key], inner)}" for key in sorted(value)]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}}}"
    parts = [_written(member, inner) for member in value]
    return "[\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}]"


def _each(items: tuple[T, ...] | None, write: Callable[[T], object]) -> list[object] | None:
    return None if items is None else [write(item) for item in items]


def _list(digest: ListDigest) -> object:
    blocks = {str(begin): block for begin, block in digest.blocks.items()}
    return {"blocks": blocks, "count": digest.count, "end": digest.end}


def _token(token: LockedToken) -> object:
    return {"content": token.content, "id": token.id, **dict.fromkeys(token.flags, True)}


def _table(table: LockedTable) -> object:
    return {
        "dtype": table.dtype,
        "hidden": table.hidden,
        "kind": table.kind,
        "name": table.name,
        "rows": table.rows,
    }


def _probe(probe: Probe) -> object:
    return {"ids": None if probe.ids is None else list(probe.ids), "text": probe.text}


def _id_lists(ids: Mapping[str, tuple[int, ...]] | None) -> object:
    return None if ids is None else {name: list(listed) for name, listed in ids.items()}
