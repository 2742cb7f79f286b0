"""Lines of styled text that fit a terminal: wrapping, alignment, colour.

Rich's own wrapping may put any word of a text at the beginning of a line, where a CI system looks for
commands, so the lines are made here, from inert texts; Rich only paints them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from tokaudit.findings import Severity
from tokaudit.reporters import View
from tokaudit.reporters._texts import plain_text

Span = tuple[str, str]  # a text without line breaks, and its Rich style
Line = list[Span]

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}
WIDEST = 100  # longer lines are hard to read
NARROWEST = 20
LEAST_COLUMN = 24  # a column of text narrower than this goes below its label
_WORD = re.compile(  # pad 7 "<pad>", is one word, and so is 8.3 %,
    r' *(?:(?:[a-z/]{1,20} )?\d+ "[^" ]+"[^ ]*|[\d.]+ %[^ ]*|[^ ]+)| +'
)


class Page:
    """Collects lines and renders them. Whatever is put on it is made inert first."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.width = max(NARROWEST, min(view.width, WIDEST))
        self.lines: list[Line] = []

    def blank(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append([])

    def put(
        self,
        *label: Span,
        text: str = "",
        style: str = "",
        column: int | None = None,
        hang: int | None = None,
    ) -> None:
        """A label and a text beside it.

        ``column`` is the cell where the text begins (by default right behind the label), ``hang`` the one
        where its further lines do (by default the same). A label that reaches into the column stands on a
        line of its own; so does one that leaves the text too little room, which is then indented below it.
        """
        spans = [(self.shown(words), look) for words, look in label]
        text = self.shown(text)
        column = _cells(spans) if column is None else column
        hang = column if hang is None else hang
        narrow = self.width - hang < min(LEAST_COLUMN, cell_len(text))
        if narrow and label:
            column = hang = min(_indent(spans) + 4, self.width // 2)
        if not text or narrow or _cells(spans) > column:
            self._put_alone(spans)
            spans = []
        for piece in wrap(text, self.width - column, self.width - hang):
            margin = " " * ((column if spans else hang) - _cells(spans))
            self.lines.append([*spans, (margin + piece, style)])
            spans, column = [], hang

    def _put_alone(self, spans: Line) -> None:
        """A label without a text beside it, which may be wider than the page."""
        if not spans:
            return
        if _cells(spans) <= self.width:
            self.lines.append(spans)
            return
        margin = " " * _indent(spans)
        words = "".join(words for words, _ in spans)
        room = self.width - len(margin)
        for piece in wrap(words.strip(), room, room):
            self.lines.append([(margin + piece, spans[-1][1])])

    def columns(self, rows: Sequence[tuple[str, str]], *, indent: int, styles: tuple[str, str]) -> None:
        """Two columns; the left one is as wide as its widest text that leaves the right one its room."""
        column = self.column([" " * indent + left for left, _ in rows], default=indent + 4)
        for left, right in rows:
            self.put((" " * indent + left, styles[0]), text=right, style=styles[1], column=column)

    def column(self, labels: Iterable[str], default: int = 4) -> int:
        """Where a column beside the labels begins: behind the widest of them that leaves it its room."""
        widths = [cell_len(self.shown(label)) + 2 for label in labels]
        return max((width for width in widths if width <= self.width - LEAST_COLUMN), default=default)

    def shown(self, text: str) -> str:
        return plain_text(text, self.view)

    def render(self) -> str:
        while self.lines and not self.lines[-1]:
            self.lines.pop()
        return paint(self.lines) if self.view.colour else plain(self.lines)


def wrap(text: str, first: int, further: int) -> list[str]:
    """The text in pieces of so many cells: the ``first`` one, the ``further`` ones.

    It breaks at spaces, not within an id and the text of its token or a percentage, and within a word only
    where that is wider than a whole piece. Nothing but the one space at each break is lost: runs of spaces
    stay.
    """
    pieces: list[str] = []
    current = ""
    room = first
    for word in _WORD.findall(text):
        if cell_len(current + word) <= room:
            current += word
            continue
        if current or cell_len(word) <= further:
            pieces.append(current)
            word = word.removeprefix(" ")
            room = further
        while cell_len(word) > room:
            cut = _cut(word, room)
            pieces.append(word[:cut])
            word = word[cut:]
            room = further
        current = word
    return [*pieces, current] if current else pieces


def _cut(word: str, width: int) -> int:
    """Where to break a word that is wider than ``width``: behind a separator in the second half, if any."""
    fitting = 1
    used = 0
    for i, char in enumerate(word):
        used += cell_len(char)
        if used > width:
            break
        fitting = i + 1
    behind = [match.end() for match in re.finditer(r"[#/._-]", word[:fitting])]
    return behind[-1] if behind and behind[-1] > fitting // 2 else max(1, fitting)


def _cells(spans: Line) -> int:
    return sum(cell_len(words) for words, _ in spans)


def _indent(spans: Iterable[Span]) -> int:
    words = "".join(words for words, _ in spans)
    return len(words) - len(words.lstrip(" "))


def cut(text: str, cells: int) -> str:
    """The text in at most so many cells; one that is cut ends in two dots."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 2) + ".."


def plain(lines: Iterable[Line]) -> str:
    return "".join("".join(words for words, _ in line).rstrip() + "\n" for line in lines)


def paint(lines: Iterable[Line]) -> str:
    from rich.console import Console
    from rich.text import Text

    canvas = io.StringIO()
    console = Console(
        file=canvas,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        _environ={},
    )
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
    return canvas.getvalue()
