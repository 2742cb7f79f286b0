"""Render the report on a model directory as a picture.

    python tools/screenshot.py fixtures/tinylm report.svg
    python tools/screenshot.py fixtures/tinylm report.png --width 100

A PNG needs `rsvg-convert` (Debian: librsvg2-bin) and a monospaced font.
"""

from __future__ import annotations

import argparse
import io
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

import tokaudit
from tokaudit.reporters import View, terminal


def svg(reports: Sequence[tokaudit.Report], view: View, title: str) -> str:
    """The terminal report as Rich draws it; ``view.colour`` must be set."""
    console = Console(width=view.width, record=True, file=io.StringIO(), force_terminal=True, _environ={})
    text = Text.from_ansi(terminal.render(reports, view))
    console.print(text, soft_wrap=True, highlight=False, emoji=False, markup=False)
    # librsvg would drop the spaces at both ends of a text, the unbreakable ones of Rich included
    return console.export_svg(title=title).replace("<svg ", '<svg xml:space="preserve" ', 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("picture", type=Path, help="ends in .svg or .png")
    parser.add_argument("--width", type=int, default=80, help="in characters")
    arguments = parser.parse_args()
    view = View(width=arguments.width, colour=True)
    picture = svg([tokaudit.check(arguments.directory)], view, f"tokaudit check {arguments.directory}")
    if arguments.picture.suffix == ".svg":
        arguments.picture.write_text(picture, encoding="utf-8")
    else:
        convert = ["rsvg-convert", "--format", "png", "--output", str(arguments.picture)]
        subprocess.run(convert, input=picture.encode(), check=True)


if __name__ == "__main__":
    main()
