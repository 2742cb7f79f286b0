"""`tokaudit rows`: look at the rows of a model's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.options import Color, Tokenizer
from tokaudit.cli.outcome import Outcome, as_far_as_read

if TYPE_CHECKING:
    from tokaudit.contract.listing import Wanted


def rows(
    path: Annotated[str, typer.Argument(metavar="PATH", hidden=True, help="Model directory.")],
    token: Annotated[
        list[str] | None,
        typer.Option("--token", metavar="TEXT", help="The rows of this token; repeatable."),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", metavar="N", help="The rows of this id; repeatable.")
    ] = None,
    worst: Annotated[
        int | None, typer.Option("--worst", metavar="K", help="The K oddest rows of each table.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--class", metavar="CLASS", help="The rows of a class, such as near-zero or padding."),
    ] = None,
    tokenizer: Tokenizer = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger", metavar="FILE", help="Beside the norms: visits, gradients and updates in training."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="One of: csv, json, terminal.")
    ] = "terminal",
    color: Color = "auto",
) -> Outcome:
    """Show rows of the tables: their norms, nearest tokens and uses.

    Each table is read once, and once more for the nearest tokens. Without a choice the terminal shows the
    oddest rows; json and csv hold all of them. A ledger is what GradientLedger.save wrote (docs/training.md).

    \b
    Classes:
      in-use, padding, reserved, hole    what a row is for
      zero, near-zero, non-finite, identical, under-trained, outlier

    \b
    Examples:
      tokaudit rows path/to/model
      tokaudit rows path/to/model --token "<|im_end|>" --id 0
      tokaudit rows path/to/model --class under-trained
      tokaudit rows path/to/model --format csv > rows.csv
      tokaudit rows path/to/model --ledger run.ledger --id 320

    \b
    Exit codes:
      0  shown
      2  a wrong call, no table, or something unreadable (the rest is shown)
    """
    from tokaudit.cli import streams
    from tokaudit.cli.arguments import facts_of, one_of
    from tokaudit.cli.progress import progress
    from tokaudit.reporters import _rows

    one_of("--format", format, list(_rows.RENDER))
    view = streams.view(color)
    wanted = _wanted(token or [], id or [], worst, kind, everything=format != "terminal")

    from tokaudit.training.ledger_file import read
    from tokaudit.values.listing import list_rows

    recorded = None if ledger is None else read(ledger)
    with facts_of(path), progress(f"reading {path}"):
        found = list_rows(path, wanted, tokenizer=tokenizer, ledger=recorded)
    return as_far_as_read(_rows.RENDER[format](found, view), found.errors)


def _wanted(
    tokens: list[str], ids: list[str], worst: int | None, kind: str | None, *, everything: bool
) -> Wanted:
    from tokaudit.cli.arguments import number, positive
    from tokaudit.contract import RowClass
    from tokaudit.contract.listing import Wanted
    from tokaudit.errors import UsageError
    from tokaudit.text import closest

    if sum((bool(tokens or ids), worst is not None, kind is not None)) > 1:
        raise UsageError("--worst, --class, and --token or --id exclude each other")
    positive("--worst", worst)
    if kind is None:
        numbers = tuple(number("--id", id) for id in ids)
        return Wanted(tuple(tokens), numbers, worst=worst, everything=everything)
    classes = {member.slug: member for member in RowClass}
    if kind not in classes:
        guess = closest(kind, classes)
        raise UsageError(
            f"there is no class {kind!r}",
            hint=f"did you mean {guess}?" if guess else f"there is {', '.join(classes)}",
        )
    return Wanted(kind=classes[kind])
