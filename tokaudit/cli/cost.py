"""`tokaudit cost`: what a vocabulary costs, in tables, training state, logits and sequence length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.options import Color, TextOrJson
from tokaudit.cli.outcome import Outcome, as_far_as_read

if TYPE_CHECKING:
    from tokaudit.cost.run import Costs, Request


def cost(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", hidden=True, help="Model directory.")
    ] = None,
    vocab_size: Annotated[
        list[str] | None,
        typer.Option("--vocab-size", metavar="N", help="A number of rows instead of a model; repeatable."),
    ] = None,
    hidden: Annotated[
        int | None, typer.Option("--hidden", metavar="D", help="The width of the tables, without a model.")
    ] = None,
    tied: Annotated[
        bool | None,
        typer.Option("--tied/--untied", help="Whether the tables are one, without a model: untied."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="DTYPE", help="What the tables are stored in: bfloat16."),
    ] = None,
    add: Annotated[int | None, typer.Option("--add", metavar="K", help="Beside it K tokens more.")] = None,
    pad_to_multiple_of: Annotated[
        int | None,
        typer.Option(
            "--pad-to-multiple-of", metavar="M", help="Beside it the rows rounded up to a multiple."
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="Texts at once, for the logits.")] = 1,
    length: Annotated[int, typer.Option("--length", metavar="L", help="Tokens of each text.")] = 2048,
    logits_dtype: Annotated[
        str, typer.Option("--logits-dtype", metavar="DTYPE", help="What logits are computed in.")
    ] = "float32",
    corpus: Annotated[
        str | None, typer.Option("--corpus", metavar="FILE", help="A UTF-8 text that the tokenizers encode.")
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option("--tokenizer", metavar="DIR", help="Beside it this tokenizer's vocabulary; repeatable."),
    ] = None,
    format: TextOrJson = "terminal",
    color: Color = "auto",
) -> Outcome:
    """Say what a vocabulary costs: tables, training, logits, texts.

    PATH is a model directory. Without one, `--vocab-size` and `--hidden` describe the tables; with
    `--tokenizer` their rows are those that the tokenizer needs. Every vocabulary is a column of one table.
    A DTYPE is float32, bfloat16, float16 or float8.

    \b
    Examples:
      tokaudit cost path/to/model
      tokaudit cost path/to/model --add 1000 --pad-to-multiple-of 128
      tokaudit cost --vocab-size 32000 --vocab-size 128000 --hidden 4096 --batch 8
      tokaudit cost path/to/model --corpus text.txt --tokenizer other/tokenizer

    \b
    Exit codes:
      0  shown
      2  a wrong call, no table, or something unreadable (the rest is shown)
    """
    from tokaudit.cli import streams
    from tokaudit.cli.arguments import number, one_of, positive
    from tokaudit.cost.tables import DTYPES, Positions
    from tokaudit.reporters import _cost

    one_of("--format", format, list(_cost.RENDER))
    view = streams.view(color)
    positive("--hidden", hidden)
    positive("--add", add)
    positive("--pad-to-multiple-of", pad_to_multiple_of)
    positive("--batch", batch)
    positive("--length", length)
    if dtype is not None:
        one_of("--dtype", dtype, list(DTYPES))
    one_of("--logits-dtype", logits_dtype, list(DTYPES))

    from tokaudit.cost.run import Request

    request = Request(
        path=path,
        vocab_sizes=tuple(number("--vocab-size", text, least=1) for text in vocab_size or []),
        hidden=hidden,
        tied=tied,
        dtype=dtype,
        add=add,
        multiple=pad_to_multiple_of,
        positions=Positions(batch, length, logits_dtype),
        corpus=corpus,
        tokenizers=tuple(tokenizer or []),
    )
    found = _found(request)
    return as_far_as_read(_cost.RENDER[format](found, view), found.errors)


def _found(request: Request) -> Costs:
    from tokaudit.cli.arguments import facts_of
    from tokaudit.cli.progress import copying, progress
    from tokaudit.cost.run import costs
    from tokaudit.errors import UsageError
    from tokaudit.progress import Quiet

    if request.path is None and not (request.vocab_sizes or request.tokenizers):
        raise UsageError("nothing to cost", hint="give a model directory, or --vocab-size and --hidden")
    if request.path is not None and request.vocab_sizes:
        raise UsageError("a model directory and --vocab-size exclude each other")
    with facts_of(request.path or next(iter(request.tokenizers), "")):
        if request.corpus is None:
            with progress("reading"):
                return costs(request, Quiet())
        with copying(f"encoding {request.corpus}") as bar:
            return costs(request, bar)
