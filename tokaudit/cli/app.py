"""The Typer application. Each command is one file beside this one; nothing heavy is imported here."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tokaudit import __version__
from tokaudit.cli import check, cost, data, diff, explain, hash, lock, resize, rows, rules, schema
from tokaudit.errors import UsageError

# What Typer raises for a wrong call. Its own name for it is private, and an older Typer takes it from click.
WrongCall: Any = typer.BadParameter.__base__


class _Values:
    """Coerces the values of options without pydantic.

    Typer 0.29 builds a pydantic validator for each option of a call, given or not: some 60 ms,
    longer than the rest of a start. The options here are texts, numbers and flags.
    """

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        if value is None:
            return [] if param.multiple or param.nargs == -1 else None
        if param.type_descriptor.annotation is int and not isinstance(value, int):
            if not re.fullmatch(r"-?[0-9]{1,18}", value):
                raise typer.BadParameter(f"{value!r} is not a number", ctx=ctx, param=param)
            return int(value)
        return value


class _Light:
    """Gives Typer's parameters their values with `_Values`. A Typer without validators is left as it is."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except WrongCall as error:
            error.ctx = error.ctx or ctx  # an option without its value does not know its command
            raise

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if hasattr(param, "_runtime_param"):
                param._runtime_param = _Values()
        return params


class Command(_Light, TyperCommand):
    """A command that starts fast."""


class Group(_Light, TyperGroup):
    """The group of all commands, which starts fast."""


app = typer.Typer(
    cls=Group,
    rich_markup_mode=None,  # plain help: Rich would take as long as the rest of a start
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in (
    ("check", check.check),
    ("lock", lock.lock),
    ("hash", hash.hash),
    ("diff", diff.diff),
    ("resize", resize.resize),
    ("rows", rows.rows),
    ("data", data.data),
    ("cost", cost.cost),
    ("explain", explain.explain),
    ("rules", rules.rules),
    ("schema", schema.schema),
):
    app.command(name, cls=Command)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tokaudit {__version__}")
        raise typer.Exit


@app.callback()
def _tokaudit(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Audit the contract between a tokenizer and a checkpoint.

    A token id is an address: it selects a row of the input embeddings. tokaudit reads the tokenizer, the
    configuration and the headers of the weights, and says where they disagree.

    \b
    Examples:
      tokaudit check path/to/model         audit a model directory
      tokaudit explain TA101               what a rule finds, why, how to fix it
      tokaudit resize model grown --add-token "<|tool|>"   grow its vocabulary
      tokaudit lock path/to/model          write its contract as a lock
      tokaudit diff released fine-tuned    what differs between two models
    """


def explained(error: Any) -> UsageError:
    """Typer's complaint about a call, as ours."""
    text = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx else "tokaudit"
    return UsageError(text[:1].lower() + text[1:], hint=f"`{command} --help` shows how to call it")
