"""`tokaudit rules`: all rules."""

from __future__ import annotations

from tokaudit.cli.options import TextOrJson
from tokaudit.cli.outcome import Outcome


def rules(format: TextOrJson = "terminal") -> Outcome:
    """List every rule: code, slug, severity, and what it is about.

    \b
    Examples:
      tokaudit rules
      tokaudit rules --format json
    """
    from tokaudit.cli.arguments import one_of

    renderers = {"terminal": _table, "json": _json}
    one_of("--format", format, list(renderers))
    return Outcome(renderers[format]())


def _table() -> str:
    from itertools import groupby

    from tokaudit.cli import streams
    from tokaudit.reporters._page import COLOURS, Page
    from tokaudit.rule import all_rules

    page = Page(streams.view())
    widest = max((len(rule.slug) for rule in all_rules()), default=0)
    for area, members in groupby(all_rules(), key=lambda rule: rule.area()):
        page.blank()
        page.put((area, "bold"))
        for rule in members:
            page.put(
                (f"  {rule.code} ", "bold"),
                (f"{rule.slug:<{widest}} ", ""),
                (f" {rule.severity.word}", COLOURS[rule.severity]),
            )
            page.put(text=rule.summary(), style="dim", column=8)
    return page.render()


def _json() -> str:
    from tokaudit.reporters.json import SCHEMA_VERSION, dump
    from tokaudit.rule import all_rules

    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "rules": [
                {
                    "rule": rule.code,
                    "slug": rule.slug,
                    "area": rule.area(),
                    "level": rule.severity.word,
                    "summary": rule.summary(),
                }
                for rule in all_rules()
            ],
        }
    )
