"""Where the audited files lie in the repository that the command is run in."""

from __future__ import annotations

import os
import re
from functools import cached_property, lru_cache
from pathlib import Path, PurePath

from tokaudit.errors import TokauditError
from tokaudit.findings import Location, Region
from tokaudit.formats.json_lines import JsonLines
from tokaudit.reporters import inside
from tokaudit.sources import open_source

LARGEST = 32 << 20  # bytes of a JSON file in which lines are looked up
_TOKENIZER_FILES = re.compile(
    r"tokenizer.*|special_tokens_map\.json|added_tokens\.json|vocab.*|target_vocab\.json|merges\.txt"
    r"|(additional_)?chat_template.*|spiece\.model|spm\.model|sentencepiece\..*|.*\.tiktoken"
)


class Checkout:
    """`Places` for the git repository around the working directory; without one, for that directory.

    ``tokenizer`` is the directory of the tokenizer's files where they do not lie beside the others.
    """

    def __init__(self, tokenizer: str | None = None) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def root(self) -> Path:
        here = Path.cwd()
        return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)

    def path(self, target: str, at: Location) -> str:
        """What lies outside the repository is named from the model directory on.

        A snapshot of the Hugging Face cache is named from ``models--ORG--NAME`` on.
        """
        home, file = self._place(target, at)
        directory = os.path.abspath(home)
        relative = PurePath(os.path.relpath(directory, self.root))
        if ".." in relative.parts:
            relative = _own_name(PurePath(directory))
        return inside(f"{relative.as_posix()}/{inside(file)}")

    def region(self, target: str, at: Location) -> Region:
        if at.tensor or not at.file.endswith(".json"):
            return Region()
        lines = _lines(*self._place(target, at))
        return Region() if lines is None else lines.region(at.pointer)

    def _place(self, target: str, at: Location) -> tuple[str, str]:
        """The directory, and the file in it."""
        if at.outside:
            return os.path.split(os.path.abspath(at.file))
        if self.tokenizer is not None and _TOKENIZER_FILES.fullmatch(at.file):
            return self.tokenizer, at.file
        return target, at.file


def _own_name(directory: PurePath) -> PurePath:
    start = next((i for i, part in enumerate(directory.parts) if part.startswith("models--")), -1)
    return PurePath(*directory.parts[start:])


@lru_cache(maxsize=8)
def _lines(directory: str, file: str) -> JsonLines | None:
    """The file's text; None where it cannot be read (again)."""
    try:
        with open_source(directory).open(file) as opened:
            return JsonLines(opened.read_all(LARGEST).decode("utf-8", "replace"))
    except TokauditError:
        return None
