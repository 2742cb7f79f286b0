"""What vocabularies cost, as a table with a column for each, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from tokaudit.contract import Missing, TableKind
from tokaudit.cost.corpus import Encoded, Text
from tokaudit.cost.run import Column, Costs
from tokaudit.cost.tables import FULL, HALF, MIXED, Amount, Part, scaled
from tokaudit.errors import TokauditError, Unreadable
from tokaudit.reporters import View
from tokaudit.reporters._page import Page, cut
from tokaudit.reporters.json import Json, dump, tool, unreadable_part
from tokaudit.text import size

SCHEMA_VERSION = "1.0"
GAP = 2  # cells between columns
WIDEST_TITLE = 20
OTHERS = (TableKind.BIAS, TableKind.SECONDARY)

Cell = str | Missing


class Line(NamedTuple):
    """``cell`` is what stands in a column; None for the title of a section."""

    label: str
    cell: Cell | None = None


def as_text(costs: Costs, view: View) -> str:
    page = Page(view)
    if costs.target:
        page.put((costs.target, "bold"))
    table = [list(_lines(costs, column)) for column in costs.columns]
    label = 2 + max(cell_len(line.label) for line in table[0] if line.cell is not None)
    titles = [cut(page.shown(column.title), WIDEST_TITLE) for column in costs.columns]
    widths = [
        GAP + max(cell_len(text) for text in (title, *(_words(line.cell) for line in lines)))
        for title, lines in zip(titles, table, strict=True)
    ]
    for shown in _blocks(widths, page.width - label):
        page.blank()
        heads = (_right(titles[i], widths[i]) for i in shown)
        page.put((" " * label, ""), ("".join(heads), "bold"))
        for number, line in enumerate(table[0]):
            if line.cell is None:
                page.blank()
                page.put((line.label, "bold"))
                continue
            cells = (_right(_words(table[i][number].cell), widths[i]) for i in shown)
            page.put((f"  {line.label}".ljust(label), "dim"), ("".join(cells), ""))
    page.blank()
    for remark in (*costs.remarks, *_unknown(table)):
        page.put(("note  ", "blue"), text=remark)
    return page.render()


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The numbers of the columns that fit side by side, at least one at a time."""
    block: list[int] = []
    for number, width in enumerate(widths):
        if block and sum(widths[i] for i in block) + width > room:
            yield block
            block = []
        block.append(number)
    yield block


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _words(cell: Cell | None) -> str:
    return "unknown" if isinstance(cell, Missing) else cell or ""


def _unknown(table: Sequence[Sequence[Line]]) -> list[str]:
    """Why cells are unknown: the labels by reason."""
    labels: dict[str, dict[str, None]] = {}
    for lines in table:
        for line in lines:
            if isinstance(line.cell, Missing):
                labels.setdefault(line.cell.reason, {})[line.label] = None
    return [f"unknown ({', '.join(names)}): {reason}" for reason, names in labels.items()]


# --- the lines, the same ones for every column of an answer ---------------------------------------------


def _lines(costs: Costs, column: Column) -> Iterator[Line]:
    tables, positions = column.tables, costs.positions
    yield Line("rows", _number(tables.rows))
    yield Line("hidden", _number(tables.main.width))
    yield from _parameters(costs, column)
    yield from _bytes(costs, column)
    yield from _training(column)
    yield Line(f"logits of {positions.batch:,} × {positions.length:,} tokens, {positions.dtype}")
    yield Line("one copy", _size(positions.bytes(tables.logits_rows)))
    if costs.text is not None:
        yield from _text(costs, column, costs.text)


def _parameters(costs: Costs, column: Column) -> Iterator[Line]:
    tables, output = column.tables, column.tables.output
    yield Line("parameters")
    yield Line("input embeddings", _number(tables.parameters(TableKind.INPUT)))
    if isinstance(output, Missing):
        yield Line("output embeddings", "none")
    else:
        yield Line("output embeddings", "tied" if output.shared else _number(output.values))
    if any(part.kind in OTHERS for part in costs.columns[0].tables.parts):
        yield Line("other tables, biases", _number(tables.parameters(*OTHERS)))
    yield Line("together", _number(tables.parameters()))
    yield Line("of the whole model", _percent(tables.share))
    yield Line(
        "the tie saves" if costs.columns[0].tables.tied else "a tie would save", _number(tables.tie_saves)
    )


def _bytes(costs: Costs, column: Column) -> Iterator[Line]:
    tables = column.tables
    parameters = tables.parameters()
    main = costs.columns[0].tables.main
    yield Line(f"bytes as stored ({main.dtype})")
    yield Line(main.kind.value, _size(tables.main.stored))
    yield Line("together", _size(tables.stored))
    yield Line("of all weights", _percent(tables.stored_share))
    yield Line("bytes of the parameters")
    yield Line("in float32", _size(scaled(parameters, 4)))
    yield Line("in float16, bfloat16", _size(scaled(parameters, 2)))
    yield Line("in float8", _size(scaled(parameters, 1)))


def _training(column: Column) -> Iterator[Line]:
    parameters = column.tables.parameters()
    weights, gradients, masters, moments = (_size(scaled(parameters, each)) for each in MIXED)
    yield Line("training with Adam, mixed precision")
    yield Line("weights, 16 bits", weights)
    yield Line("gradients, 16 bits", gradients)
    yield Line("weights in float32", masters)
    yield Line("2 moments in float32", moments)
    yield Line("together", _size(scaled(parameters, sum(MIXED))))
    yield Line("all in float32", _size(scaled(parameters, sum(FULL))))
    yield Line("all in bfloat16", _size(scaled(parameters, sum(HALF))))


def _text(costs: Costs, column: Column, text: Text) -> Iterator[Line]:
    yield Line(f"{text.name}: {size(text.nbytes)}, {text.words:,} words")
    encoded = column.encoded
    tokens = encoded if isinstance(encoded, Missing) else encoded.tokens
    yield Line("tokens", _number(tokens))
    yield Line("tokens per byte", _rate(tokens, text.nbytes))
    yield Line("tokens per word", _rate(tokens, text.words))
    if any(isinstance(each.encoded, Encoded) and each.encoded.unknown for each in costs.columns):
        yield Line("unknown tokens", _number(encoded if isinstance(encoded, Missing) else encoded.unknown))
    stretch = costs.stretch(column)
    yield Line("length of a text", stretch if isinstance(stretch, Missing) else f"{stretch:.2f}x")
    yield Line("its logits", stretch if isinstance(stretch, Missing) else _logits(costs, column, stretch))


def _logits(costs: Costs, column: Column, stretch: float) -> Cell:
    return _size(costs.positions.bytes(column.tables.logits_rows, stretch))


def _number(amount: Amount) -> Cell:
    return amount if isinstance(amount, Missing) else f"{amount:,}"


def _size(amount: Amount) -> Cell:
    return amount if isinstance(amount, Missing) else size(amount)


def _percent(share: float | Missing) -> Cell:
    return share if isinstance(share, Missing) else f"{100 * share:.1f} %"


def _rate(tokens: Amount, per: int) -> Cell:
    rate = _quotient(tokens, per)
    return rate if isinstance(rate, Missing) else f"{rate:.3f}"


def _quotient(tokens: Amount, per: int) -> float | Missing:
    if isinstance(tokens, Missing):
        return tokens
    return tokens / per if per else Missing("the text has no words")


# --- JSON -----------------------------------------------------------------------------------------------


def as_json(costs: Costs, view: View) -> str:
    """In structures of its own: cost.schema.json."""
    positions = costs.positions
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "tool": tool(),
            "target": costs.target or None,
            "logits": {"batch": positions.batch, "length": positions.length, "dtype": positions.dtype},
            "text": None
            if costs.text is None
            else {"file": costs.text.name, "bytes": costs.text.nbytes, "words": costs.text.words},
            "columns": [_column(costs, column) for column in costs.columns],
            "remarks": list(costs.remarks),
            "errors": [_error(error) for error in costs.errors],
        }
    )


def _column(costs: Costs, column: Column) -> Json:
    tables, positions = column.tables, costs.positions
    parameters = tables.parameters()
    return {
        "title": column.title,
        "kind": column.kind,
        "rows": _known(tables.rows),
        "hidden": _known(tables.main.width),
        "tied": tables.tied,
        "tables": [_part(part) for part in tables.parts],
        "parameters": {
            "input": _known(tables.parameters(TableKind.INPUT)),
            "output": _known(tables.parameters(TableKind.OUTPUT)),
            "other": _known(tables.parameters(*OTHERS)),
            "total": _known(parameters),
            "share": _known(tables.share),
            "tie_saves": _known(tables.tie_saves),
        },
        "bytes": {
            "stored": _known(tables.stored),
            "stored_share": _known(tables.stored_share),
            "float32": _known(scaled(parameters, 4)),
            "float16": _known(scaled(parameters, 2)),
            "float8": _known(scaled(parameters, 1)),
        },
        "training": {name: _state(parameters, each) for name, each in CONVENTIONS.items()},
        "logits_bytes": _known(positions.bytes(tables.logits_rows)),
        "text": None if costs.text is None else _encoded(costs, column, costs.text),
        "unknown": _unknown([list(_lines(costs, column))]),
    }


CONVENTIONS: Mapping[str, tuple[int, int, int, int]] = {"mixed": MIXED, "float32": FULL, "bfloat16": HALF}


def _state(parameters: Amount, convention: tuple[int, int, int, int]) -> Json:
    weights, gradients, masters, moments = (_known(scaled(parameters, each)) for each in convention)
    return {
        "weights": weights,
        "gradients": gradients,
        "master_weights": masters,
        "moments": moments,
        "total": _known(scaled(parameters, sum(convention))),
    }


def _part(part: Part) -> Json:
    return {
        "kind": part.kind.value,
        "tensor": part.name,
        "rows": _known(part.rows),
        "width": _known(part.width),
        "parameters": _known(part.parameters),
        "dtype": part.dtype,
        "packed": part.packed or None,
        "stored_bytes": _known(part.stored),
        "shared": part.shared,
        "grows": part.grows,
    }


def _encoded(costs: Costs, column: Column, text: Text) -> Json:
    encoded = column.encoded
    known = encoded if isinstance(encoded, Encoded) else None
    tokens = known.tokens if known else Missing("")
    stretch = costs.stretch(column)
    logits = (
        Missing("")
        if isinstance(stretch, Missing)
        else costs.positions.bytes(column.tables.logits_rows, stretch)
    )
    return {
        "tokens": _known(tokens),
        "unknown_tokens": known.unknown if known else None,
        "tokens_per_byte": _known(_quotient(tokens, text.nbytes)),
        "tokens_per_word": _known(_quotient(tokens, text.words)),
        "relative_length": _known(stretch),
        "logits_bytes": _known(logits),
    }


def _known(amount: float | Missing) -> float | None:
    return None if isinstance(amount, Missing) else amount


def _error(error: TokauditError) -> Json:
    """A tokenizer that fails is no part of a model, but told like one."""
    if isinstance(error, Unreadable):
        return unreadable_part(error)
    return unreadable_part(Unreadable("tokenizer", "", error.message, hint=error.hint))


RENDER: Mapping[str, Callable[[Costs, View], str]] = {"terminal": as_text, "json": as_json}
