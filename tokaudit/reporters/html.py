"""One page for a browser that holds everything: findings, facts and pictures. It loads nothing from anywhere.

Texts from a model are hostile. In the markup every text is inert and escaped (`elements`), what the pictures
are drawn from lies in base64 (`packed`), and the script writes texts as text only. Should something get
through all the same, the page's Content-Security-Policy runs no script and applies no style but those whose
hashes it names, and lets the page load nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from tokaudit import __version__
from tokaudit.report import Report
from tokaudit.reporters import View
from tokaudit.reporters._html.elements import Markup, element
from tokaudit.reporters._html.sections import article, footer, overview
from tokaudit.text import counted

_SCRIPTS = ("before.js", "uPlot.iife.min.js", "page.js")
_STYLES = ("uPlot.min.css", "page.css")


def render(reports: Sequence[Report], view: View) -> str:
    """One page; several reports follow each other below a table of their verdicts."""
    alone = len(reports) == 1
    title = reports[0].target if alone else counted(len(reports), "model")
    style, script = _asset(_STYLES), _asset(_SCRIPTS)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"tokaudit: {title}"),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    body = element(
        "body",
        element("h1", "tokaudit", class_="name"),
        *([] if alone else [overview(reports, view)]),
        element("main", *(article(report, view, place) for place, report in enumerate(reports))),
        footer(__version__),
        element("script", script),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _policy(style: Markup, script: Markup) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")


@cache
def _asset(names: tuple[str, ...]) -> Markup:
    """The files one after the other. A comment parts the colons of ``::before``, which a log could act on."""
    folder = resources.files("tokaudit.reporters._html")
    source = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    return Markup(source.replace("::", ":/**/:"))
