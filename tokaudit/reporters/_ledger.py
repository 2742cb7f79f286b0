"""A gradient ledger as a table for people."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.cells import set_cell_size

from tokaudit.contract import Missing
from tokaudit.contract.ledger import Ledger, LedgerRow, median
from tokaudit.reporters import View
from tokaudit.reporters._page import Page, cut
from tokaudit.text import counted, listed, shown

TOKEN = 18  # cells
MOST_NEW, MOST_OTHERS = 20, 5


def as_text(ledger: Ledger, view: View) -> str:
    """The rows that matter: that of padding, new ones, and the others that moved the most."""
    page = Page(view)
    page.put((_title(ledger), "bold"))
    for words in _facts(ledger):
        page.put(text=words, style="dim", column=2)
    page.blank()
    page.put((_line("id", "token", "", "visits", "input", "output", "update"), "dim"))
    for row in _chosen(ledger):
        mark = "pad" if row.pad else "new" if row.new else ""
        numbers = [str(row.visits), *map(_number, (row.input_gradient, row.output_gradient, _update(row)))]
        token = "" if row.content is None else page.shown(shown(row.content))
        page.put((_line(str(row.id), token, mark, *numbers), "yellow" if row.new else ""))
    page.put((_line("", "median of old", "", *_medians(ledger)), "dim"))
    return page.render()


def _title(ledger: Ledger) -> str:
    steps, passes = counted(ledger.steps, "step"), counted(ledger.passes, "backward pass", "backward passes")
    return f"gradient ledger: {steps}, {passes}, {listed([table.name for table in ledger.tables])}"


def _facts(ledger: Ledger) -> Iterator[str]:
    yield "sums over the steps: gradient norms by path, and how far the row moved"
    for table in ledger.tables:
        residual = table.residual_or
        if isinstance(residual, Missing):
            yield f"{table.name}: not verified, {residual.reason}"
        elif residual.rows:
            yield f"{table.name}: the paths do not add up in {counted(residual.rows, 'row')}"
        else:
            most = f"{residual.relative:.1e} (tolerance {residual.tolerance:.1e})"
            yield f"{table.name}: the paths add up to the gradient in every row, to {most}"
    for words, output in (("input", False), ("output", True)):
        ratio = ledger.ratio(output=output)
        if ratio is not None:
            yield f"{words} gradients per visit, new rows over old ones: {ratio:.3g} times (medians)"


def _chosen(ledger: Ledger) -> list[LedgerRow]:
    pad = [ledger.pad_id] if ledger.pad_id is not None and ledger.pad_id in ledger.ids else []
    apart = list(dict.fromkeys([*pad, *ledger.new_ids[:MOST_NEW]]))
    others = set(ledger.ids).difference(apart, ledger.new_ids)
    rows = [ledger.row(id) for id in others]
    rows.sort(key=lambda row: (-_sortable(_update(row)), row.id))
    return [*(ledger.row(id) for id in apart), *rows[:MOST_OTHERS]]


def _update(row: LedgerRow) -> float:
    """Of either table, the one that moved more."""
    return max(row.input_update or 0.0, row.output_update or 0.0)


def _sortable(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _medians(ledger: Ledger) -> list[str]:
    rows = [ledger.row(id) for id in ledger.visited_old]
    visits = str(int(median([float(row.visits) for row in rows])))
    gradients = ([row.input_gradient for row in rows], [row.output_gradient for row in rows])
    return [visits, *(_number(median(values)) for values in (*gradients, [_update(row) for row in rows]))]


def _number(value: float) -> str:
    return f"{value:.3g}"


def _line(id: str, token: str, mark: str, visits: str, given: str, output: str, update: str) -> str:
    token = set_cell_size(cut(token, TOKEN), TOKEN)
    return f"{id:>8}  {token}  {mark:<3}  {visits:>7}  {given:>9}  {output:>9}  {update:>9}"
