"""A diff as JSON, for programs. Its structures are versioned and described in diff.schema.json."""

from __future__ import annotations

from tokaudit.contract import Lock
from tokaudit.diffs.difference import Difference, Side
from tokaudit.diffs.mapping import MappingDiff
from tokaudit.diffs.run import Diff
from tokaudit.reporters import View
from tokaudit.reporters.json import Json, dump, tool, unreadable_part

SCHEMA_VERSION = "1.0"
MOST_LISTED = 1000  # of one list; the count beside it is of all


def as_json(diff: Diff, view: View) -> str:
    found = diff.comparison
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": tool(),
            "left": _side(found.left),
            "right": _side(found.right),
            "use": diff.use.value,
            "verdict": diff.answer.value,
            "reasons": list(diff.reasons),
            "remarks": list(diff.remarks),
            "undecided": list(diff.undecided),
            "mapping": None if found.mapping is None else _mapping(found.mapping),
            "pipeline": [_difference(each) for each in found.pipeline],
            "templates": [_difference(each) for each in found.templates],
            "special": [_difference(each) for each in found.special],
            "tables": [_difference(each) for each in found.tables],
            "rows": [
                {
                    "table": rows.table,
                    "tensor": rows.name,
                    "compared": rows.compared,
                    "different": len(rows.different),
                    "tokens": _tokens(rows.different),
                    "not_compared": rows.reason or None,
                }
                for rows in found.rows
            ],
            "probes": None
            if found.probes is None
            else {
                "compared": found.probes.compared,
                "different": [
                    {"text": probe.text, "token": probe.first, "left": probe.left, "right": probe.right}
                    for probe in found.probes.different
                ],
            },
            "not_compared": dict(found.not_compared),
            "errors": [unreadable_part(part) for part in diff.unreadable],
        }
    )


def _side(side: Side) -> Json:
    return {"name": side.name, "kind": "lock" if side.contract is None else "directory", **_facts(side.lock)}


def _facts(lock: Lock) -> Json:
    return {
        "tokens": None if lock.mapping is None else lock.mapping.count,
        "required_rows": None if lock.mapping is None else lock.mapping.end,
        "expected_rows": lock.expected_rows,
        "tied": lock.tied,
        "tables": None
        if lock.tables is None
        else [
            {
                "kind": table.kind,
                "name": table.name,
                "rows": table.rows,
                "hidden": table.hidden,
                "dtype": table.dtype,
            }
            for table in lock.tables
        ],
    }


def _mapping(diff: MappingDiff) -> Json:
    return {
        "added": {"count": len(diff.added), "tokens": _tokens(diff.added)},
        "removed": {"count": len(diff.removed), "tokens": _tokens(diff.removed)},
        "moved": {
            "count": len(diff.moved),
            "tokens": [
                {"content": moved.content, "left": moved.left, "right": moved.right}
                for moved in diff.moved[:MOST_LISTED]
            ],
        },
        "replaced": {
            "count": len(diff.replaced),
            "ids": [
                {"id": pair.id, "left": pair.left, "right": pair.right}
                for pair in diff.replaced[:MOST_LISTED]
            ],
        },
        "complete": diff.complete,
        "ranges": [list(pair) for pair in diff.ranges],
    }


def _tokens(tokens: tuple[tuple[int, str], ...]) -> list[Json]:
    return [{"id": id, "content": content} for id, content in tokens[:MOST_LISTED]]


def _difference(difference: Difference) -> Json:
    return {
        "layer": difference.layer,
        "path": list(difference.path),
        "what": difference.what,
        "left": difference.left,
        "right": difference.right,
    }
