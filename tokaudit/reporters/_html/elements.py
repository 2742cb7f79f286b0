"""HTML that is safe by construction: whatever is not `Markup` is a text, and is made inert and escaped."""

from __future__ import annotations

import html
import re

from tokaudit.reporters import View
from tokaudit.reporters._texts import plain_text, spans

_VIEW = View()
_VOID = frozenset({"link", "meta", "wbr"})


class Markup(str):
    """HTML that is ready to be used, in ASCII."""

    __slots__ = ()


def text(words: str) -> Markup:
    """A text, possibly from a model, as what a browser shows and never acts on."""
    return _ascii(html.escape(plain_text(words, _VIEW)))


def sentence(words: str) -> Markup:
    """The same; what stands in quotes or backticks is set as code, so that right-to-left texts stay apart."""
    pieces = spans(plain_text(words, _VIEW))
    return Markup("".join(element("code", piece) if is_code else text(piece) for piece, is_code in pieces))


def breakable(place: str) -> Markup:
    """A path or a name, which may go on in the next line after a separator."""
    pieces = re.split(r"(?<=[/#.])", plain_text(place, _VIEW))
    return Markup("<wbr>".join(map(text, pieces)))


def element(name: str, /, *children: str, **attributes: str) -> Markup:
    """``element("p", "a < b", class_="x")`` -> ``<p class="x">a &lt; b</p>``; ``data_id`` is ``data-id``."""
    stated = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{stated}>")
    return Markup(f"<{name}{stated}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else text(child) for child in children))


def _ascii(words: str) -> Markup:
    return Markup(words.encode("ascii", "xmlcharrefreplace").decode("ascii"))
