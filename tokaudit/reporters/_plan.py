"""A resize as people read it: the plan, what was done, and the plan as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokaudit.reporters import View
from tokaudit.reporters._page import Page
from tokaudit.text import counted, json_value, listed, named, size

if TYPE_CHECKING:
    from tokaudit.resize.plan import FileEdit, NewRow, Plan
    from tokaudit.resize.run import Result

MOST_ROWS = 20
PLAN_VERSION = "1.0"


def as_text(plan: Plan, view: View) -> str:
    """The plan for a terminal."""
    page = Page(view)
    page.put((plan.source, "bold"))
    page.blank()
    if plan.nothing_to_do:
        page.put(text=f"nothing to do: {plan.rows_before} rows hold every token that was asked for")
        return page.render()
    _tables(page, plan)
    _files(page, plan)
    _rows(page, plan)
    _notes(page, plan)
    return page.render()


def result_text(result: Result, view: View) -> str:
    """What was done, and the verdict of the audit of the result."""
    page = Page(view)
    plan = result.plan
    page.put((result.destination, "bold"))
    page.blank()
    if plan.nothing_to_do:
        page.put(text=f"nothing to do: {plan.rows_before} rows hold every token that was asked for")
        return page.render()
    page.put(("  rows    ", "dim"), text=f"{plan.rows_before} before, {plan.rows_after} now")
    names = [f"{edit.table.name} in {edit.table.tensor.file}" for edit in plan.tensors]
    page.put(("  tables  ", "dim"), text=listed(names, most=8) or "none changed")
    page.put(("  files   ", "dim"), text=listed(sorted({e.at.file for e in plan.files}), most=12) or "none")
    page.blank()
    for written in result.rows[:MOST_ROWS]:
        page.put((f"  {named(written.row.id, written.row.content)}", "bold"))
        page.put(("    from  ", "dim"), text=_origin(written.row))
        page.put(
            ("    norm  ", "dim"),
            text=f"{written.norm:.4g}, above {written.percentile:.0f} % of the rows in use",
        )
        near = [f"{named(n.id, n.content)} {n.cosine:.2f}" for n in written.neighbours]
        page.put(("    near  ", "dim"), text=", ".join(near) or "nothing")
    if len(result.rows) > MOST_ROWS:
        page.put(text=f"  and {len(result.rows) - MOST_ROWS} more, in tokaudit-resize.json")
    page.blank()
    for left in result.left_behind:
        page.put(("  not carried  ", "yellow"), text=f"{left.name}: {left.reason}")
    _notes(page, plan)
    page.blank()
    errors = counted(len([f for f in result.report.findings if f.severity.word == "error"]), "error")
    page.put(("proven  ", "bold green"), text=f"every old row is unchanged; audit of the result: {errors}")
    return page.render()


def _tables(page: Page, plan: Plan) -> None:
    rows = [
        (
            edit.table.name,
            f"{edit.table.rows} -> {edit.rows_after} rows, {edit.table.tensor.dtype}, "
            f"{size(edit.bytes_added)} more in {edit.table.tensor.file}",
        )
        for edit in plan.tensors
    ]
    if rows:
        page.put(("tables", "bold"))
        page.columns(rows, indent=2, styles=("cyan", ""))
        shards = counted(len(plan.rewritten_shards), "shard")
        page.put(
            text=f"{shards} rewritten ({size(plan.bytes_rewritten)}), {size(plan.bytes_copied)} copied",
            column=2,
        )
        page.blank()


def _files(page: Page, plan: Plan) -> None:
    rows = [(str(edit.at), _change(edit)) for edit in plan.files]
    rows += [(name, "taken from the other tokenizer") for name in plan.replaced_files]
    if rows:
        page.put(("files", "bold"))
        page.columns(rows, indent=2, styles=("cyan", ""))
        page.blank()


def _change(edit: FileEdit) -> str:
    if edit.operation == "replace":
        return f"{json_value(edit.before)} -> {json_value(edit.after)}"
    if isinstance(edit.after, list):
        return f"{counted(len(edit.after), 'entry', 'entries')} more"
    return json_value(edit.after)


def _rows(page: Page, plan: Plan) -> None:
    tokens = [row for row in plan.rows if row.content is not None]
    padding = len(plan.rows) - len(tokens)
    if tokens:
        page.put(("new tokens", "bold"))
        rows = [(named(row.id, row.content), _origin(row)) for row in tokens[:MOST_ROWS]]
        page.columns(rows, indent=2, styles=("", "dim"))
        if len(tokens) > MOST_ROWS:
            page.put(text=f"  and {len(tokens) - MOST_ROWS} more")
    if padding:
        page.put(text=f"  {counted(padding, 'padding row')}: the mean of the rows in use")
    page.blank()


def _origin(row: NewRow) -> str:
    """Where a row's values come from, in words."""
    pieces = listed([named(piece.id, piece.content) for piece in row.pieces], most=8)
    method = row.method if row.method == row.output_method else f"{row.method} / {row.output_method}"
    return row.note or (f"{method}: {pieces}" if pieces else method)


def _notes(page: Page, plan: Plan) -> None:
    for note in plan.notes:
        page.put(("note  ", "yellow"), text=note)


def as_json(plan: Plan) -> str:
    """The plan as JSON, in structures of its own."""
    document = {
        "plan_version": PLAN_VERSION,
        "source": plan.source,
        "rows_before": plan.rows_before,
        "rows_after": plan.rows_after,
        "tied": plan.tied,
        "tokens": [
            {
                "id": row.id,
                "content": row.content,
                "method": row.method,
                "output_method": row.output_method,
                "pieces": [{"id": piece.id, "content": piece.content} for piece in row.pieces],
                "note": row.note or None,
            }
            for row in plan.rows
            if row.content is not None
        ],
        "padding_rows": sum(row.content is None for row in plan.rows),
        "tensors": [
            {
                "name": edit.table.name,
                "file": edit.table.tensor.file,
                "dtype": edit.table.tensor.dtype,
                "shape_before": list(edit.table.tensor.shape),
                "shape_after": list(edit.shape_after),
                "bytes_added": edit.bytes_added,
            }
            for edit in plan.tensors
        ],
        "files": [
            {
                "file": edit.at.file,
                "pointer": edit.at.pointer,
                "operation": edit.operation,
                "before": edit.before,
                "after": edit.after,
            }
            for edit in plan.files
        ],
        "bytes_rewritten": plan.bytes_rewritten,
        "bytes_copied": plan.bytes_copied,
        "replaced_files": list(plan.replaced_files),
        "notes": list(plan.notes),
    }
    return json.dumps(document, indent=2) + "\n"
