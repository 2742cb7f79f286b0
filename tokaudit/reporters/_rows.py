"""Rows of tables as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping

from rich.cells import set_cell_size

from tokaudit.contract.listing import ListedRow, ListedTable, Listing, Recorded
from tokaudit.contract.values import PURPOSES, RowClass
from tokaudit.reporters import View
from tokaudit.reporters._page import Page, cut
from tokaudit.reporters.json import Json, dump, tool, unreadable_part
from tokaudit.text import counted, inert, named, shown

SCHEMA_VERSION = "1.2"
TOKEN, CLASSES = 20, 24  # cells
_HEAD = f"{'id':>8}  {'token':<{TOKEN}}  {'class':<{CLASSES}}  {'norm':>9}  {'%':>4}"
_BELOW = 10
NARROW = 16  # cells of a token beside what a ledger says
_RECORDED = (
    f"{'id':>8}  {'token':<{NARROW}}  {'norm':>9}  {'visits':>7}  {'input':>9}  {'output':>9}  {'update':>9}"
)
COLUMNS = (
    *("tensor", "id", "token", "class", "norm", "percentile", "largest"),
    *("sign", "nearest", "referred_by"),
    *("visits", "input_gradient", "output_gradient", "update"),
)


def as_text(listing: Listing, view: View) -> str:
    page = Page(view)
    page.put((listing.target, "bold"))
    if listing.ledger is not None:
        steps = counted(listing.ledger.steps, "step")
        page.put(text=f"gradients by path and updates: sums over {steps}", style="dim", column=2)
    for table in listing.tables:
        page.blank()
        page.put(text=_title(table), style="bold")
        recorded = any(row.recorded for row in table.rows)
        page.put((_RECORDED if recorded else _HEAD, "dim"))
        below = "class; " if recorded else ""
        page.put(text=f"{below}nearest tokens (cosine); what refers to it", style="dim", column=_BELOW)
        for row in table.rows:
            _put(page, row)
        if not table.rows:
            page.put(text="no such rows", style="dim", column=2)
        elif len(table.rows) < table.total:
            page.put(text=f"{len(table.rows)} of {table.total} rows", style="dim", column=2)
    for name, reason in listing.unread:
        page.blank()
        page.put((name, "bold"), (": ", ""), text=f"not read, {reason}")
    for part in listing.errors:
        page.blank()
        page.put((part.file, "bold"), (": ", ""), text=f"not read, {part.message}")
    return page.render()


def _title(table: ListedTable) -> str:
    values = table.values
    name = f"{values.table.kind.value} {values.table.name}"
    return f"{name}: {len(values.norms)} rows, typical norm {values.typical_norm:.3g}"


def _put(page: Page, row: ListedRow) -> None:
    page.put((_cells(page, row), "yellow" if row.classes & ~PURPOSES else ""))
    near = ", ".join(f"{_near(id, content)} ({cosine:.2f})" for id, content, cosine in row.nearest)
    refers = ", ".join(row.referred_by)
    classes = row.classes.words if row.recorded else ""
    words = "; ".join(filter(None, (classes, row.sign, near, refers)))
    page.put(text=words, style="dim", column=_BELOW)


def _near(id: int, content: str | None) -> str:
    """A token; where no tokenizer tells its text, the id alone."""
    return str(id) if content is None else named(id, content)


def _cells(page: Page, row: ListedRow) -> str:
    token = "" if row.content is None else page.shown(shown(row.content))
    if row.recorded is not None:
        recorded = row.recorded
        numbers = (recorded.input_gradient, recorded.output_gradient, recorded.update)
        parts = [f"{'' if number is None else f'{number:.3g}':>9}" for number in numbers]
        return "  ".join(
            [f"{row.id:>8}", _cell(token, NARROW), f"{row.norm:>9.3g}", f"{recorded.visits:>7}", *parts]
        )
    share = "" if math.isnan(row.percentile) else f"{row.percentile:.0f}"
    cells = f"{row.id:>8}  {_cell(token, TOKEN)}  {_cell(row.classes.words, CLASSES)}"
    return f"{cells}  {row.norm:>9.3g}  {share:>4}"


def _cell(text: str, width: int) -> str:
    """The text in exactly so many cells."""
    return set_cell_size(cut(text, width), width)


def as_json(listing: Listing, view: View) -> str:
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": tool(),
            "target": listing.target,
            "tables": [_table(table) for table in listing.tables],
            "ledger": listing.ledger and {"steps": listing.ledger.steps, "passes": listing.ledger.passes},
            "errors": [unreadable_part(part) for part in listing.errors],
            "unread": [{"tensor": name, "reason": reason} for name, reason in listing.unread],
        }
    )


def _table(table: ListedTable) -> Json:
    values = table.values
    return {
        "tensor": values.table.name,
        "file": values.table.at.file,
        "kind": values.table.kind.value,
        "typical_norm": number(values.typical_norm),
        "rows": [_row(row) for row in table.rows],
        "total": table.total,
    }


def _row(row: ListedRow) -> Json:
    return {
        "id": row.id,
        "token": row.content,
        "class": _slugs(row),
        "norm": number(row.norm),
        "percentile": number(row.percentile),
        "largest": number(row.largest),
        "sign": row.sign or None,
        "nearest": [
            {"id": id, "token": content, "cosine": number(cosine)} for id, content, cosine in row.nearest
        ],
        "referred_by": list(row.referred_by),
        "recorded": row.recorded and _recorded(row.recorded),
    }


def _recorded(recorded: Recorded) -> Json:
    gradients = (recorded.input_gradient, recorded.output_gradient)
    through_input, through_output = (None if value is None else number(value) for value in gradients)
    return {
        "visits": recorded.visits,
        "input_gradient": through_input,
        "output_gradient": through_output,
        "update": number(recorded.update),
    }


def _slugs(row: ListedRow) -> list[str]:
    return [member.slug for member in RowClass if member in row.classes]


def number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


def as_csv(listing: Listing, view: View) -> str:
    """One line for each row. Token texts are JSON strings: reversible, inert, and no formula begins so."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in listing.tables:
        name = json.dumps(table.values.table.name)
        for row in table.rows:
            token = "" if row.content is None else json.dumps(row.content)
            near = " ".join(f"{id}:{cosine:.4f}" for id, _, cosine in row.nearest)
            numbers = ["" if math.isnan(v) else v for v in (row.norm, row.percentile, row.largest)]
            words = [row.sign, near, "; ".join(row.referred_by)]
            steps = _record_cells(row.recorded)
            writer.writerow([name, row.id, token, " ".join(_slugs(row)), *numbers, *words, *steps])
    return inert_lines(out.getvalue())


def _record_cells(recorded: Recorded | None) -> list[object]:
    if recorded is None:
        return [""] * 4
    numbers = (recorded.input_gradient, recorded.output_gradient, recorded.update)
    return [recorded.visits, *("" if v is None or math.isnan(v) else v for v in numbers)]


def inert_lines(text: str) -> str:
    """Each line made inert; the breaks between them stay."""
    return "".join(inert(line) + "\n" for line in text.splitlines())


RENDER: Mapping[str, Callable[[Listing, View], str]] = {"terminal": as_text, "json": as_json, "csv": as_csv}
