"""`tokaudit resize`: grow a vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tokaudit.cli.options import Color, TextOrJson
from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.resize.request import Request
    from tokaudit.resize.run import Result


def resize(
    source: Annotated[str, typer.Argument(metavar="SRC", hidden=True)],
    destination: Annotated[str | None, typer.Argument(metavar="DST", hidden=True)] = None,
    add_token: Annotated[
        list[str] | None, typer.Option("--add-token", metavar="TEXT", help="Add a token. Repeatable.")
    ] = None,
    special: Annotated[
        bool, typer.Option("--special", help="The tokens of --add-token are special tokens.")
    ] = False,
    tokens: Annotated[
        str | None,
        typer.Option("--tokens", metavar="FILE", help="Add tokens from a file: one a line, .json or .jsonl."),
    ] = None,
    set_role: Annotated[
        list[str] | None,
        typer.Option(
            "--set-role", metavar="ROLE=TEXT", help="Make a token the pad, eos, bos ... token. Repeatable."
        ),
    ] = None,
    to_tokenizer: Annotated[
        str | None,
        typer.Option("--to-tokenizer", metavar="DIR", help="Fit the rows to the tokenizer in DIR."),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", metavar="N", help="At least so many rows.")] = None,
    multiple: Annotated[
        int | None,
        typer.Option("--pad-to-multiple-of", metavar="N", help="Round the rows up to a multiple of N."),
    ] = None,
    init: Annotated[
        str,
        typer.Option("--init", metavar="METHOD", help="How new rows are initialised; see Initialisers."),
    ] = "mean-of-subwords",
    output_init: Annotated[
        str | None,
        typer.Option("--output-init", metavar="METHOD", help="The same for output rows, if it differs."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="For --init normal.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and write nothing.")] = False,
    optimizer: Annotated[
        bool,
        typer.Option("--optimizer", help="Carry optimizer.pt over, with zero moments for the new rows."),
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="Hard-link files that do not change instead of copying them.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on where the source has errors in its special tokens or tie.")
    ] = False,
    format: TextOrJson = "terminal",
    color: Color = "auto",
) -> Outcome:
    """Grow a vocabulary: copy SRC to DST with more tokens and rows.

    New tokens get the ids after the largest one; every table, bias and configuration follows. Their rows
    are the mean of the rows of the pieces that the old tokenizer splits their text into. The result is
    audited and compared with the source row by row before DST appears; SRC is never touched. As JSON it
    prints the plan, or what it wrote into the manifest of DST.

    \b
    Examples:
      tokaudit resize model grown --add-token "<|tool|>" --special
      tokaudit resize model grown --set-role "pad=<pad>" --pad-to-multiple-of 64
      tokaudit resize model grown --to-tokenizer path/to/tokenizer
      tokaudit resize model --tokens words.txt --dry-run --format json

    \b
    Initialisers:
      mean-of-subwords       the mean of the rows of the text's pieces
      subword-mean-rescaled  the same, scaled to the median norm
      weighted-subwords      the last pieces weigh most, in output rows the first
      mean                   the mean of all rows in use
      normal                 sampled around that mean with the rows' covariance
      zeros                  zero
      copy=TOKEN             the row of another token
      description=TEXT       the mean over the pieces of another text

    \b
    Exit codes:
      0  written, or planned
      2  refused or failed: nothing is written, unless the line on standard error
         says that DST is
    """
    from tokaudit.cli import streams
    from tokaudit.cli.arguments import one_of
    from tokaudit.errors import UsageError
    from tokaudit.reporters import _plan
    from tokaudit.resize.ask import method
    from tokaudit.resize.prepare import plan_resize

    one_of("--format", format, list(_plan.RENDER))
    request = _request(
        (add_token or [], special, tokens, set_role or []),
        rows=rows,
        multiple=multiple,
        init=method(init),
        output_init=method(output_init) if output_init else "",
        seed=seed,
        force=force,
        link=link,
        optimizer=optimizer,
    )
    if to_tokenizer is None and rows is None and multiple is None and not (request.tokens or request.roles):
        hint = "give --add-token, --tokens, --set-role, --to-tokenizer, --rows or --pad-to-multiple-of"
        raise UsageError("nothing was asked for", hint=hint)
    view = streams.view(color)
    if dry_run:
        return Outcome(_plan.RENDER[format](plan_resize(source, request, to_tokenizer=to_tokenizer), view))
    if destination is None:
        raise UsageError("the destination is missing", hint="tokaudit resize SRC DST, or --dry-run")
    done = _done(source, destination, request, to_tokenizer)
    return Outcome(_plan.RENDER_RESULT[format](done, view), written=(destination,))


def _request(asked: tuple[list[str], bool, str | None, list[str]], **options: Any) -> Request:
    from tokaudit.resize.ask import roles, token_file
    from tokaudit.resize.request import NewToken, Request

    texts, special, file, role_texts = asked
    tokens = tuple(NewToken(text, special=special) for text in texts)
    if file is not None:
        tokens += token_file(Path(file))
    return Request(tokens=tokens, roles=roles(role_texts), **options)


def _done(source: str, destination: str, request: Request, to_tokenizer: str | None) -> Result:
    from tokaudit.cli.progress import copying
    from tokaudit.resize.run import resize as run

    with copying(f"writing {destination}") as progress:
        return run(source, destination, request, to_tokenizer=to_tokenizer, progress=progress)
