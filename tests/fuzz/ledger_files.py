"""Files of gradient ledgers: as they are saved, and with a document, numbers or bytes that do not fit."""

from __future__ import annotations

import json
import struct
import tempfile
from array import array
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz import headers
from fuzz.values import ODD, TEXTS, bitten, damaged, written
from tokaudit.contract import Missing
from tokaudit.contract.ledger import Ledger, Residual, TableLedger
from tokaudit.training.ledger_file import save

Files = dict[str, bytes]
LEDGER = "run.ledger"

FINITE = st.sampled_from([0.0, 0.5, 1e-30, 1e300])
NUMBERS = FINITE | st.sampled_from([float("inf"), float("nan")])  # what a broken run leaves in rows
COUNTS = st.integers(0, 3) | st.sampled_from([2**31, 2**53 + 1, 2**63 - 1])
NAMES = st.sampled_from(["model.embed_tokens.weight", "lm_head.weight"]) | TEXTS


def _lists(rows: int) -> st.SearchStrategy[array[float]]:
    return st.lists(NUMBERS, min_size=rows, max_size=rows).map(lambda numbers: array("d", numbers)) | st.just(
        array("d", [0.25] * rows)
    )


@st.composite
def table_ledgers(draw: st.DrawFn, rows: int) -> TableLedger:
    residual: Residual | Missing = draw(
        st.builds(Missing, TEXTS) | st.builds(Residual, COUNTS, FINITE, FINITE, COUNTS)
    )
    return TableLedger(
        draw(NAMES),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
        *(draw(_lists(rows)) for _ in range(4)),
        residual_or=residual,
        masked=draw(COUNTS),
        optimizer=draw(st.sampled_from(["", "AdamW"]) | TEXTS),
        weight_decay=draw(FINITE),
    )


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """A ledger that GradientLedger could have made, and some that it could not."""
    rows = draw(st.sampled_from([320, 320, 0, 1, 3, 5]))
    other = draw(st.sampled_from([rows, rows, rows + 1]))
    visits = draw(st.lists(COUNTS, min_size=min(rows, 5), max_size=min(rows, 5)))
    return Ledger(
        steps=draw(COUNTS),
        passes=draw(COUNTS),
        visits=array("q", visits + [0] * draw(st.sampled_from([rows - len(visits), 0]))),
        tables=tuple(draw(table_ledgers(count)) for count in [rows, other][: draw(st.integers(1, 2))]),
        new_ids=tuple(draw(st.lists(st.integers(0, 5) | COUNTS, max_size=3))),
        pad_id=draw(st.none() | st.integers(0, 5) | COUNTS),
    )


def saved(ledger: Ledger) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, LEDGER)
        save(ledger, path)
        return path.read_bytes()


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """A saved ledger whose document, metadata, header or numbers were changed."""
    header, numbers = _parts(saved(draw(ledgers())))
    metadata = header["__metadata__"]
    match draw(st.integers(0, 4)):
        case 0:
            metadata[draw(st.sampled_from(["format", "version", "ledger"]))] = draw(TEXTS)
        case 1:
            header = draw(damaged(st.just(header), least=1))
        case 2:
            numbers = draw(bitten(st.just(numbers)))
        case 3:
            document = json.loads(metadata["ledger"])
            document |= draw(st.dictionaries(st.sampled_from([*document, "x"]), ODD, max_size=2))
            metadata["ledger"] = written(document).decode("utf-8", "replace")
        case _:
            document = draw(damaged(st.just(json.loads(metadata["ledger"])), least=1))
            metadata["ledger"] = written(document).decode("utf-8", "replace")
    return headers.file_bytes(written(header), numbers)


LEDGERS: st.SearchStrategy[Files] = (
    ledgers().map(saved) | edited() | edited() | bitten(ledgers().map(saved)) | headers.FILES
).map(lambda data: {LEDGER: data})
