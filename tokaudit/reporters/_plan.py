"""A resize: the plan and what was done, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tokaudit.reporters import View
from tokaudit.reporters._page import Page
from tokaudit.reporters.json import Json, dump
from tokaudit.reporters.terminal import put_verdict
from tokaudit.text import counted, json_value, listed, named, size

if TYPE_CHECKING:
    from tokaudit.resize.manifest import WrittenRow
    from tokaudit.resize.plan import FileEdit, NewRow, Plan, Recipe, TensorEdit
    from tokaudit.resize.run import Result

MOST_TOKENS = 20
MOST_FILES = 20
PLAN_VERSION = "1.0"


def as_text(plan: Plan, view: View) -> str:
    """The plan for a terminal."""
    page = Page(view)
    page.put((plan.source, "bold"))
    page.blank()
    if plan.nothing_to_do:
        _nothing(page, plan)
        _notes(page, plan)
        return page.render()
    _summary(page, plan)
    _tables(page, plan)
    _files(page, plan)
    _tokens(page, plan)
    _notes(page, plan)
    return page.render()


def result_text(result: Result, view: View) -> str:
    """What was done, and the verdict of the audit of the result."""
    page = Page(view)
    plan = result.plan
    page.put((result.destination, "bold"))
    page.blank()
    if plan.nothing_to_do:
        _nothing(page, plan)
        page.put(text=f"{result.destination} is a copy of {plan.source}")
    else:
        _summary(page, plan)
        names = sorted({edit.at.file for edit in plan.files} | set(plan.taken_files))
        page.put(("  files    ", "dim"), text=listed(names, most=MOST_FILES) or "none changed")
    page.blank()
    for written in result.rows[:MOST_TOKENS]:
        _written(page, written, plan)
    _more(page, len(result.rows), "in tokaudit-resize.json")
    page.blank()
    if result.left_behind:
        page.put(("not carried", "bold"))
        rows = [(left.name, left.reason) for left in result.left_behind[:MOST_FILES]]
        page.columns(rows, indent=2, styles=("yellow", ""))
        _more(page, len(result.left_behind), "files", shown=MOST_FILES)
        page.blank()
    _notes(page, plan)
    for path in result.abandoned:
        text = f"{path.name}, beside it, is left of a run that was killed: delete it"
        page.put(("warning  ", "yellow"), text=text)
    page.blank()
    proven = "every old row, and every byte that had no reason to change, is the source's"
    page.put(("✓ proven", "bold green"), (": ", ""), text=proven, hang=2)
    put_verdict(page, result.report)
    return page.render()


def _nothing(page: Page, plan: Plan) -> None:
    page.put(text=f"nothing to do: the {plan.rows_after} rows hold every token, and no field would change")


def _summary(page: Page, plan: Plan) -> None:
    rows = f"{plan.rows_before} before, {plan.rows_after} after"
    if plan.rows_before == plan.rows_after:
        rows = f"{plan.rows_before}, as before"
    page.put(("  rows     ", "dim"), text=rows)
    shards = counted(len(plan.rewritten_shards), "shard")
    tables = f"{counted(len(plan.tensors), 'table')} in {shards}" if plan.tensors else "none changed"
    tie = ", output embeddings tied to input embeddings" if plan.tied else ""
    page.put(("  tables   ", "dim"), text=tables + tie)
    moved = f"{size(plan.bytes_rewritten)} rewritten, {size(plan.bytes_copied)} copied"
    page.put(("  weights  ", "dim"), text=moved)


def _tables(page: Page, plan: Plan) -> None:
    rows = [(edit.table.name, _growth(edit)) for edit in plan.tensors]
    if rows:
        page.blank()
        page.put(("tables", "bold"))
        page.columns(rows, indent=2, styles=("cyan", ""))


def _growth(edit: TensorEdit) -> str:
    rows = f"{edit.table.rows} -> {edit.rows_after} rows"
    if edit.table.rows == edit.rows_after:
        rows = f"{edit.table.rows} rows as before, some written"
    grown = f", {size(edit.bytes_added)} more" if edit.bytes_added else ""
    return f"{rows}, {edit.table.tensor.dtype}{grown}, in {edit.table.tensor.file}"


def _files(page: Page, plan: Plan) -> None:
    rows = [(str(edit.at), _change(edit)) for edit in plan.files]
    rows += [(name, "taken from the other tokenizer") for name in plan.taken_files]
    rows += [(name, "not carried") for name in plan.dropped_files if name not in plan.taken_files]
    if rows:
        page.blank()
        page.put(("files", "bold"))
        page.columns(rows, indent=2, styles=("cyan", ""))


def _change(edit: FileEdit) -> str:
    match edit.operation:
        case "replace":
            return f"{json_value(edit.before)} -> {json_value(edit.after)}"
        case "set":
            return f"not stated -> {json_value(edit.after)}"
        case _:
            members = edit.after if isinstance(edit.after, (list, dict)) else ()
            if len(members) == 1 and isinstance(members, list):
                return f"{json_value(members[0])} added" if isinstance(members[0], int) else "1 entry more"
            return f"{counted(len(members), 'entry', 'entries')} more"


def _tokens(page: Page, plan: Plan) -> None:
    rows = [(named(row.id, row.content), _origin(row, plan)) for row in plan.rows[:MOST_TOKENS]]
    if plan.padding_rows:
        bias = ", with an output bias that keeps them from being chosen" if plan.padding_bias else ""
        rows.append((counted(plan.padding_rows, "padding row"), f"the mean of the rows in use{bias}"))
    if rows:
        page.blank()
        page.put(("new rows", "bold"))
        page.columns(rows, indent=2, styles=("", "dim"))
        _more(page, len(plan.rows), "tokens in --format json")
    page.blank()


def _origin(row: NewRow, plan: Plan) -> str:
    """Where a row's values come from, in words."""
    if row.input == row.output or not plan.has_output_side:
        return _recipe(row.input)
    return f"input {_recipe(row.input)}; output {_recipe(row.output)}"


def _recipe(recipe: Recipe) -> str:
    pieces = listed([named(piece.id, piece.content) for piece in recipe.pieces], most=8)
    return f"{recipe.method}: {recipe.note or pieces}" if recipe.note or pieces else recipe.method


def _written(page: Page, written: WrittenRow, plan: Plan) -> None:
    page.put((f"  {named(written.row.id, written.row.content)}", "bold"))
    page.put(("    from  ", "dim"), text=_origin(written.row, plan))
    norm = f"{written.norm:.4g}, above {written.percentile:.0f} % of the rows in use"
    page.put(("    norm  ", "dim"), text=norm)
    near = [f"{named(near.id, near.content)} {near.cosine:.2f}" for near in written.neighbours]
    page.put(("    near  ", "dim"), text=", ".join(near) or "nothing")


def _more(page: Page, total: int, where: str, shown: int = MOST_TOKENS) -> None:
    if total > shown:
        page.put(text=f"  and {total - shown} more {where}")


def _notes(page: Page, plan: Plan) -> None:
    for text in plan.warnings:
        page.put(("warning  ", "yellow"), text=text)
    for text in plan.notes:
        page.put(("note  ", "blue"), text=text)


def as_json(plan: Plan, view: View) -> str:
    """The plan as JSON, in structures of its own: plan.schema.json."""
    added = {token.id for token in plan.added}
    document: Json = {
        "plan_version": PLAN_VERSION,
        "source": plan.source,
        "nothing_to_do": plan.nothing_to_do,
        "rows_before": plan.rows_before,
        "rows_after": plan.rows_after,
        "tied": plan.tied,
        "tokens": [
            {
                "id": row.id,
                "content": row.content,
                "new_to_the_tokenizer": row.id in added,
                "input": _recipe_json(row.input),
                "output": _recipe_json(row.output),
            }
            for row in plan.rows
        ],
        "padding_rows": plan.padding_rows,
        "tensors": [
            {
                "name": edit.table.name,
                "file": edit.table.tensor.file,
                "dtype": edit.table.tensor.dtype,
                "side": "output" if edit.output_side else "input",
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
        "taken_files": list(plan.taken_files),
        "dropped_files": list(plan.dropped_files),
        "rewritten_shards": list(plan.rewritten_shards),
        "bytes_rewritten": plan.bytes_rewritten,
        "bytes_copied": plan.bytes_copied,
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
    }
    return dump(document)


def _recipe_json(recipe: Recipe) -> Json:
    return {
        "method": recipe.method,
        "constituents": [{"id": piece.id, "content": piece.content} for piece in recipe.pieces],
        "note": recipe.note or None,
    }


def result_json(result: Result, view: View) -> str:
    """The manifest that was written: manifest.schema.json."""
    return dump(result.manifest)


RENDER: Mapping[str, Callable[[Plan, View], str]] = {"terminal": as_text, "json": as_json}
RENDER_RESULT: Mapping[str, Callable[[Result, View], str]] = {"terminal": result_text, "json": result_json}
