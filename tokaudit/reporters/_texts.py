"""Texts of a report as every format may show them."""

from __future__ import annotations

from tokaudit.reporters import View
from tokaudit.text import inert

LONGEST = 2000  # characters of one text: a name from a model may have megabytes
_ASCII = str.maketrans({"…": "...", "×": "x", "·": "-", "–": "-", "✓": "+", "✗": "x"})


def plain_text(text: str, view: View) -> str:
    """The text inert, not too long, and in ASCII where the view has no more."""
    text = inert(shortened(text, LONGEST))
    if view.unicode or text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def shortened(text: str, longest: int) -> str:
    """The text, its middle left out where it is longer than so many characters."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"
