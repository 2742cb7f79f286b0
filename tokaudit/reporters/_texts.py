"""Texts of a report as every format may show them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.reporters import View
from tokaudit.text import inert

LONGEST = 2000  # characters of one text: a name from a model may have megabytes
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]+`')  # token texts and commands
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


def spans(sentence: str) -> Iterator[tuple[str, bool]]:
    """The sentence in pieces, and which of them are code: what stands in quotes or backticks, these off."""
    at = 0
    for quoted in _QUOTED.finditer(sentence):
        yield sentence[at : quoted.start()], False
        yield quoted[0].strip("`"), True
        at = quoted.end()
    yield sentence[at:], False
