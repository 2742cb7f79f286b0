"""What the pictures are drawn from: tokens and rows of one report, small enough to lie in a page.

The bytes are a header (JSON, one line) and columns with an entry for each id or row, deflated, in base64:
nothing in it can be markup or script, whatever the tokens are called. ``page.js`` is what unpacks it.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping

from tokaudit.contract import RowClass, TableKind, TableValues
from tokaudit.report import Summary, Tokens
from tokaudit.reporters import View
from tokaudit.reporters._texts import plain_text
from tokaudit.text import shown

MOST_IDS = 1 << 20  # that are drawn: a hostile file may state an id of any size
MOST_SIGNS = 20_000  # rows of a table that the page says why they look never trained
STEPS = 65_533  # of a norm on the logarithmic scale from the smallest to the largest one
ZERO, NOT_FINITE = STEPS + 1, STEPS + 2
_NO_TOKEN, _BASE, _ADDED, _RESERVED, _SPECIAL = 0, 1, 2, 4, 8

Header = dict[str, object]


def drawn(facts: Summary) -> tuple[TableValues, ...]:
    """The tables whose rows are drawn: input and output embeddings."""
    tables = facts.values.tables if facts.values is not None else ()
    return tuple(table for table in tables if table.table.kind in (TableKind.INPUT, TableKind.OUTPUT))


def drawn_ids(facts: Summary) -> int:
    """The ids from 0 on that the pictures have room for."""
    rows = (facts.input_rows or 0, facts.required_rows or 0, *(table.ids.stop for table in drawn(facts)))
    return min(MOST_IDS, max(rows))


def packed(facts: Summary) -> str:
    """Everything in ASCII without a character that HTML knows."""
    span = drawn_ids(facts)
    tokens = facts.tokens or Tokens({}, frozenset(), frozenset(), frozenset(), {})
    columns = [_kinds(tokens, span), _texts(tokens, span)]
    tables: list[Header] = []
    for table in drawn(facts):
        about, *parts = _table(table, span)
        tables.append(about)
        columns += parts
    header: Header = {
        "span": span,
        "inputRows": facts.input_rows,
        "required": facts.required_rows,
        "base": facts.base_tokens is not None,
        "classes": {member.value: member.slug for member in RowClass},
        "roles": _roles(facts, span),
        "tables": tables,
        "lengths": [len(column) for column in columns],
    }
    line = json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n"
    return base64.b64encode(zlib.compress(line + b"".join(columns), 9)).decode("ascii")


def _kinds(tokens: Tokens, span: int) -> bytes:
    """A byte for each id: which tokens there are, and of what kind."""
    kinds = bytearray(span)
    for id in tokens.texts:
        if 0 <= id < span:
            kinds[id] = _BASE
    for ids, kind in (
        (tokens.added, _ADDED - _BASE),
        (tokens.reserved, _RESERVED),
        (tokens.special, _SPECIAL),
    ):
        for id in ids:
            if 0 <= id < span:
                kinds[id] += kind
    return bytes(kinds)


def _texts(tokens: Tokens, span: int) -> bytes:
    """A line for each id, as every report shows the text; no text has a line break left in it."""
    texts = tokens.texts
    return "\n".join(shown(texts[id])[1:-1] if id in texts else "" for id in range(span)).encode()


def _roles(facts: Summary, span: int) -> Mapping[int, list[str]]:
    """What refers to each id."""
    referred_by = facts.tokens.referred_by if facts.tokens is not None else {}
    return {
        id: [plain_text(words, View()) for words in several]
        for id, several in sorted(referred_by.items())
        if 0 <= id < span
    }


def _table(table: TableValues, span: int) -> tuple[Header, bytes, bytes]:
    """Its header, its classes and its norms, both as 16-bit numbers, the high bytes before the low ones."""
    ids = range(table.first_id, min(table.ids.stop, span))
    norms = table.norms[: len(ids)]
    positive = [norm for norm in norms if 0 < norm < math.inf]
    low = math.log(min(positive, default=1.0))
    high = math.log(max(positive, default=1.0))
    header: Header = {
        "name": table.table.kind.value,
        "first": ids.start,
        "rows": len(ids),
        "low": low,
        "high": high,
        "signs": dict(_signs(table, ids)),
        "nearest": {
            id: [[other.id, round(other.cosine, 4)] for other in others]
            for id, others in table.new.items()
            if id in ids
        },
    }
    step = (high - low) / STEPS or 1.0
    levels = [
        round((math.log(norm) - low) / step) if 0 < norm < math.inf else NOT_FINITE if norm else ZERO
        for norm in norms
    ]
    return header, _planes(table.classes[: len(ids)].tolist()), _planes(levels)


def _signs(table: TableValues, ids: range) -> Iterator[tuple[int, str]]:
    for id, sign in list(table.signs.items())[:MOST_SIGNS]:
        if id in ids:
            yield id, sign


def _planes(numbers: list[int]) -> bytes:
    return bytes(number >> 8 for number in numbers) + bytes(number & 255 for number in numbers)
