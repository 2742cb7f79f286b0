"""Source -> Contract: start the isolated process first, and read every file once while it works.

A damaged part becomes a fact that a rule reports, or an unreadable part, and the rest is read all the same.
What reads is imported only after the process was started: importing it takes as long as a small model.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tokaudit.errors import Unreadable
from tokaudit.sources import Source, open_source
from tokaudit.tokenizing import TokenizerProcess, start

if TYPE_CHECKING:
    from tokaudit.contract import Contract, Options

Path = str | os.PathLike[str]

TOKENIZER_JSON = "tokenizer.json"


def load(path: Path, *, tokenizer: Path | None = None, options: Options | None = None) -> Contract:
    """Read a model directory; the tokenizer may lie in another one.

    Raises Unreadable where there is nothing to audit (no such directory, no model in it). Parts that cannot
    be read are listed in ``Contract.unreadable``.
    """
    with Opening(path, tokenizer) as opening:
        return opening.contract(options)


class Opening:
    """A model directory whose tokenizer the isolated process is loading already. A context manager.

    ``process`` is the reason where there is none: no tokenizer.json, or one that cannot be opened.
    """

    def __init__(self, path: Path, tokenizer: Path | None = None) -> None:
        self.model: Source = open_source(path)
        self.tokenizer: Source = self.model if tokenizer is None else open_source(tokenizer)
        self.process: TokenizerProcess | Unreadable | None = self._start()

    def _start(self) -> TokenizerProcess | Unreadable | None:
        if TOKENIZER_JSON not in self.tokenizer.names():
            return None
        try:
            with self.tokenizer.open(TOKENIZER_JSON) as file:
                return start(file)
        except Unreadable as error:
            return error

    def contract(self, options: Options | None = None) -> Contract:
        """Read everything else. Raises Unreadable where there is no model."""
        from tokaudit.load.contract import read_contract

        return read_contract(self.model, self.tokenizer, self.process, options)

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, *raised: object) -> None:
        if isinstance(self.process, TokenizerProcess):
            self.process.close()
