"""`tokaudit explain`: the page of one rule."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.reporters import View
    from tokaudit.rule import Rule


def _rule_names(incomplete: str) -> list[tuple[str, str]]:
    from tokaudit.rule import all_rules

    return [
        (name, rule.summary())
        for rule in all_rules()
        for name in (rule.code, rule.slug)
        if name.startswith(incomplete)
    ]


def explain(
    rule: Annotated[
        str, typer.Argument(metavar="CODE|SLUG", hidden=True, autocompletion=_rule_names, help="The rule.")
    ],
) -> Outcome:
    """Print what a rule finds, why it matters and how to fix it.

    The rule is named by its code or by its slug.

    \b
    Examples:
      tokaudit explain TA101
      tokaudit explain token-id-out-of-range
    """
    from tokaudit.cli import streams
    from tokaudit.rule import find_rule, unknown_rule

    found = find_rule(rule)
    if found is None:
        raise unknown_rule(rule)
    view = streams.view()
    return Outcome(_painted(found, view) if view.colour else _page(found))


def _page(rule: type[Rule]) -> str:
    """The page as it is written: Markdown."""
    return f"# {rule.code} {rule.slug}\n\n{_about(rule)}\n\n{inspect.getdoc(rule)}\n"


def _about(rule: type[Rule]) -> str:
    return f"{rule.severity.word}, {rule.area()}"


def _painted(rule: type[Rule], view: View) -> str:
    """The page for a terminal."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown
    from rich.text import Text
    from rich.theme import Theme

    from tokaudit.reporters._page import COLOURS, WIDEST

    canvas = io.StringIO()
    theme = Theme({"markdown.h2": "bold", "markdown.code": "cyan", "markdown.code_block": "cyan"})
    width = min(view.width, WIDEST)
    console = Console(
        file=canvas, force_terminal=True, color_system="standard", width=width, theme=theme, _environ={}
    )
    colour = COLOURS[rule.severity]
    console.print(
        Text.assemble((rule.code, f"bold {colour}"), (f" {rule.slug}", colour), f"  {_about(rule)}")
    )
    console.print()
    console.print(Markdown(inspect.getdoc(rule) or ""))
    return canvas.getvalue()
