"""What the rules on the lock share: its two sides, and what findings say about both.

It stands here and not beside the rules because every check imports those, and most checks have no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from tokaudit.contract import Contract, Document, ListDigest, Missing, Vocabulary
from tokaudit.diffs.comparison import joined
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.mapping import MappingDiff, mapping_diff
from tokaudit.diffs.pipeline import pipeline_differences
from tokaudit.diffs.probes import ProbeDiff, ProbesDiff, probes_diff
from tokaudit.diffs.special import special_differences, template_differences
from tokaudit.diffs.tables import place, table_differences
from tokaudit.diffs.values import short
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location
from tokaudit.locks.make import locked_table, short_name
from tokaudit.text import counted

T = TypeVar("T")

MAKE_AGAIN = "if the change is meant, review it and make the lock again with `tokaudit lock`"
MOST_CLAIMS = 8


def sides(contract: Contract) -> tuple[Side, Side]:
    """The lock and the files. Raises FactMissing where no lock was given."""
    return Side(contract.lock), Side(contract.snapshot, contract)


def required(held: T | None, what: str) -> T:
    """The layer of a lock. Raises FactMissing where the lock does not hold it."""
    if held is None:
        raise FactMissing(f"the lock holds no {what}")
    return held


def mapping_change(contract: Contract) -> MappingDiff | None:
    return mapping_diff(*sides(contract))


def pipeline_changes(contract: Contract) -> list[Difference]:
    """What differs in the pipeline and is not explained by tokens that were added, removed or moved."""
    change = mapping_change(contract)
    explained = change.contents if change is not None else frozenset()
    return list(pipeline_differences(*sides(contract), explained))


def template_changes(contract: Contract) -> list[Difference]:
    return list(template_differences(*sides(contract)))


def special_changes(contract: Contract) -> list[Difference]:
    return list(special_differences(*sides(contract)))


def table_changes(contract: Contract) -> list[Difference]:
    return list(table_differences(*sides(contract)))


def probe_changes(contract: Contract) -> ProbesDiff:
    return probes_diff(*sides(contract)) or ProbesDiff(0)


def locked(contract: Contract, layer: str, says: str) -> Claim:
    """What the lock says."""
    return Claim(Location(contract.lock.name, outside=True).child("layers", layer), says)


def claims(contract: Contract, changes: Iterable[Difference]) -> Iterator[Claim]:
    """What stands in the files, and what in the lock, for the first few changes."""
    for change in list(changes)[:MOST_CLAIMS]:
        yield Claim(_at(contract, change), f"{change.what}: {change.right}")
        yield locked(contract, change.layer, f"{change.what}: {change.left}")


def tokens(held: ListDigest) -> str:
    """How many tokens a mapping has, and which mapping it is."""
    return f"{counted(held.count, 'token')}, {short(held.digest)}"


def said(changes: Iterable[Difference | ProbeDiff]) -> str:
    """The first few changes in words."""
    return joined([str(change) for change in changes])


def _at(contract: Contract, change: Difference) -> Location:
    """Where the files say what differs from the lock."""
    places: Mapping[str, Location] = {}
    if change.layer == "added_tokens":
        places = {token.content: token.at for token in contract.vocabulary.added}
    elif change.layer == "templates":
        places = {template.name: template.at for template in contract.templates}
    elif change.layer == "roles":
        places = {token.role.value: token.at for token in contract.special_tokens if token.role is not None}
    elif change.layer in ("tables", "contents"):
        tables = contract.embeddings.tables
        places = {name: t.at for t in tables for name in (place(locked_table(t)), short_name(t))}
    elif change.layer in ("ids", "generation_ids"):
        return _id_place(contract, change)
    elif change.layer in ("tied", "expected_rows"):
        return _start_of(contract.config_or)
    else:
        return _part_place(contract.vocabulary, change.layer)
    return places.get(change.path[0], Location(""))


def _id_place(contract: Contract, change: Difference) -> Location:
    """The field, or the file that would hold it."""
    generation = change.layer == "generation_ids" and isinstance(contract.generation_config_or, Document)
    name = change.path[0].rpartition(".")[2]
    fields = [field for field in contract.id_fields if field.name == name and field.generation is generation]
    if fields:
        return fields[0].at
    return _start_of(contract.generation_config_or if generation else contract.config_or)


def _part_place(vocabulary: Vocabulary, layer: str) -> Location:
    document = vocabulary.pipeline.document
    if layer == "rebuilt_by":
        known = vocabulary.class_or
        return document.at if isinstance(known, Missing) else known.at
    return document.at.child(
        *{"merges": ("model", "merges"), "scores": ("model", "vocab")}.get(layer, (layer,))
    )


def _start_of(document: Document | Missing) -> Location:
    return document.at if isinstance(document, Document) else Location("")
