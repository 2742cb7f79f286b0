"""The one place that makes text from a model directory safe to show.

Token texts, tensor names and file names come from strangers: they may hold control characters, bidi
overrides, terminal escapes or the syntax of a CI log. ``shown`` quotes one such text inside a sentence,
``inert`` is what every reporter passes a whole sentence through.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST_SHOWN = 60
LONGEST_POINTER = 120
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN = re.compile(r"[ -~]*")


def inert(text: str) -> str:
    """The text with everything that could act on a terminal or a CI log written as an escape.

    Control, format, surrogate, private and unassigned characters and unusual spaces become ``\\xNN``,
    ``\\uNNNN`` or ``\\UNNNNNNNN``; ``::`` becomes ``:\\u003a`` and ``##[`` becomes ``##\\u005b``, the
    syntax of GitHub's log commands. Applying it twice changes nothing.
    """
    if not _PLAIN.fullmatch(text):
        text = "".join(map(_escaped, text))
    return text.replace("::", ":\\u003a").replace("##[", "##\\u005b")


def _escaped(char: str) -> str:
    if " " <= char <= "~":
        return char
    category = unicodedata.category(char)
    if category not in _HIDDEN and category != "Zs":
        return char
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(char)
    wide = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return short.get(char) or (f"\\x{code:02x}" if code < 0x100 else wide)


def shown(content: str, longest: int = LONGEST_SHOWN) -> str:
    """A text from the model in quotes, inert, shortened in the middle when it is long."""
    content = shortened(content, longest)
    return '"' + inert(content.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def pointed(pointer: str) -> str:
    """A JSON pointer within a sentence, inert, shortened in the middle: its keys are the file's own."""
    return inert(shortened(pointer, LONGEST_POINTER)) or "top level"


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, and an ellipsis for its middle where it has more."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}\u2026{text[-half:]}"


def named(id: int, content: str | None) -> str:
    """An id with the text of its token: ``320 "[PAD]"``."""
    return f"{id} {shown(content)}" if content is not None else f"{id} (no token)"


def listed(items: Sequence[str], most: int = 5, total: int | None = None) -> str:
    """``a, b, c and 7 more``; ``total`` counts the items where the sequence was cut already."""
    total = len(items) if total is None else total
    text = ", ".join(items[:most])
    return f"{text} and {total - most} more" if total > most else text


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``3 rows``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def size(nbytes: int) -> str:
    """A number of bytes in binary units: ``1.2 GiB``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def first_line(error: BaseException) -> str:
    """What an error says, as far as it fits a sentence; its class where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST_POINTER] if lines else type(error).__name__


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, for "did you mean"."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), 1)), None)


def json_kind(value: object) -> str:
    """The JSON type of a value in words: "a list", "missing" for null or nothing."""
    if value is None:
        return "missing"
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return kinds.get(type(value), "an object")


def json_value(value: object) -> str:
    """A JSON value as it stands in the file, short enough for a sentence."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, (list, dict)):
        return json_kind(value)
    text = {"True": "true", "False": "false", "None": "null"}.get(str(value), str(value))
    return text if len(text) <= 40 else f"{text[:20]}\u2026"
