"""Options that commands share. Those of `check` and `data` are None where not given: the settings decide."""

from __future__ import annotations

from typing import Annotated

import typer

from tokaudit.reporters import names

Tokenizer = Annotated[
    str | None,
    typer.Option("--tokenizer", metavar="PATH", help="Take the tokenizer from this directory."),
]
FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        metavar="LEVEL",
        help="note, warning or error: exit 1 from this level on.  [default: error]",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="The same as --fail-on warning.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", metavar="FORMAT", help=f"One of: {', '.join(names())}.  [default: terminal]"
    ),
]
Output = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", metavar="FORMAT=FILE", help="Also write a report to a file; repeatable."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")]
ColorOrSettings = Annotated[
    str | None, typer.Option("--color", metavar="WHEN", help="auto, always or never.  [default: auto]")
]
Color = Annotated[str, typer.Option("--color", metavar="WHEN", help="auto, always or never.")]
TextOrJson = Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help="One of: json, terminal.")]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="NAME", help="Of raw token data, as uint16.  [default: deduced]"),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="What counts token data: local or ray.  [default: local]"),
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Take settings from this file.")]
Isolated = Annotated[
    bool, typer.Option("--isolated", help="Take no settings from files and environment variables.")
]
