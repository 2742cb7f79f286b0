"""How many tokens a tokenizer makes of a text, which may be larger than the memory."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from tokaudit.errors import TokauditError, Unreadable
from tokaudit.load import TOKENIZER_JSON
from tokaudit.progress import Progress
from tokaudit.sources import OpenFile, Source, open_named, open_source
from tokaudit.tokenizing import Limits, start

PIECE_BYTES = 1 << 16
PIECES_AT_ONCE = 4
# A piece may start where no token of a usual tokenizer goes on: behind the last line break, before a space.
_LINE = re.compile(rb".*\n(?=[^\s])", re.DOTALL)
_SPACE = re.compile(rb".*\S(?=\s)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """What a corpus is, whoever encodes it. Words are what stands between white space."""

    name: str
    nbytes: int
    words: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a tokenizer makes of it; ``unknown`` of the tokens are its unknown token."""

    tokens: int
    unknown: int


def read_text(path: str) -> Text:
    """Read it once. Raises Unreadable ("empty-file", "not-utf8" and what reading raises)."""
    with open_named(path) as file:
        if not file.size:
            raise Unreadable("empty-file", path, "expected a text, found an empty file")
        return Text(path, file.size, _words(pieces(file)))


def _words(parts: Iterable[str]) -> int:
    words, within = 0, False  # within a word that the next part may go on with
    for part in parts:
        words += len(part.split()) - (within and not part[0].isspace())
        within = not part[-1].isspace()
    return words


def pieces(file: OpenFile) -> Iterator[str]:
    """The text in parts of at most PIECE_BYTES, cut at ends of lines where there are any."""
    start, size = 0, file.size
    while start < size:
        data = file.read(start, min(PIECE_BYTES, size - start))
        if start + len(data) < size:
            data = data[: _cut(data)]
        try:
            yield data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unreadable(
                "not-utf8", file.name, f"expected UTF-8, found another byte at {start + error.start}"
            ) from None
        start += len(data)


def _cut(data: bytes) -> int:
    for pattern in (_LINE, _SPACE):
        found = pattern.match(data)
        if found and found.end() > len(data) // 2:
            return found.end()
    cut = len(data)
    while cut > len(data) - 4 and data[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    return cut - 1 if data[cut - 1] >= 0xC0 else cut


def encode_all(text: Text, tokenizers: Sequence[str], progress: Progress) -> list[Encoded | TokauditError]:
    """What the tokenizer of each directory makes of the text, side by side on all processors.

    A tokenizer that fails gives its error, and so does one that finds the file gone.
    """
    progress.start(text.nbytes * len(tokenizers))
    stopped = threading.Event()

    def run(tokenizer: str) -> Encoded | TokauditError:
        try:
            return _encode(text.name, open_source(tokenizer), progress, stopped)
        except TokauditError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="tokaudit") as pool:
        try:
            return list(pool.map(run, tokenizers))
        finally:
            stopped.set()


def _encode(path: str, source: Source, progress: Progress, stopped: threading.Event) -> Encoded:
    """Raises TokauditError: what opening, starting and encoding raise."""
    tokens = unknown = 0
    with open_named(path) as text, source.open(TOKENIZER_JSON) as document:
        # Each answer has a limit of its own in wall time; that on processor time allows all of them as much.
        answers = 1 + text.size // (PIECE_BYTES // 2 * PIECES_AT_ONCE)
        limits = Limits()
        limits = replace(limits, cpu_seconds=limits.cpu_seconds + int(answers * limits.answer_seconds))
        with start(document, limits=limits) as process:
            stream = pieces(text)
            while batch := list(islice(stream, PIECES_AT_ONCE)):
                if stopped.is_set():
                    break
                for counted in process.count(batch):
                    tokens += counted.tokens
                    unknown += counted.unknown
                progress.advance(sum(len(piece.encode()) for piece in batch))
    return Encoded(tokens, unknown)
