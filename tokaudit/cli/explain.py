"""`tokaudit explain`: the page of one rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.reporters import View


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
    import inspect

    from tokaudit.cli import streams
    from tokaudit.errors import UsageError
    from tokaudit.rule import all_rules, find_rule
    from tokaudit.text import closest

    found = find_rule(rule)
    if found is None:
        guess = closest(
            rule.lower(), [name for known in all_rules() for name in (known.slug, known.code.lower())]
        )
        hint = f"did you mean {_as_written(guess)}?" if guess else "`tokaudit rules` lists them"
        raise UsageError(f"no rule is called {rule!r}", hint=hint)
    heading = f"# {found.code} {found.slug}\n\n{found.severity.word}, {found.area()}\n\n"
    page = heading + (inspect.getdoc(found) or "") + "\n"
    view = streams.view()
    return Outcome(_rendered(page, view) if view.colour else page)


def _as_written(name: str) -> str:
    return name.upper() if name.startswith("ta") and name[2:].isdigit() else name


def _rendered(page: str, view: View) -> str:
    """The page, which is Markdown, for a terminal."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    canvas = io.StringIO()
    console = Console(
        file=canvas,
        force_terminal=True,
        color_system="standard",
        width=min(view.width, 100),
        _environ={},
    )
    console.print(Markdown(page))
    return canvas.getvalue()
