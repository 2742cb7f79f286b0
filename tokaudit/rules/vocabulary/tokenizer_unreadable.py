from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule

_MEND = "mend that place, or take the file from its source again"
_UNMARK = "save it as UTF-8 without a byte order mark"


class TokenizerUnreadable(Rule):
    """tokenizer.json does not parse, or the tokenizers library does not load it or encode with it.

    ## What it finds

    The first cause why `tokenizer.json` cannot be used: it is no JSON, it begins with a byte order mark, a
    part has the wrong type, an id is no id, a merge needs a token that the vocabulary lacks, or whatever else
    makes the `tokenizers` library refuse it, abort, or run out of time or memory. The library runs in a
    process of its own for this, and there also encodes an ordinary text, with special tokens, and decodes it
    again: some files load and take the process down on the first text (a post-processor that names a token
    which it does not define, a normalizer that makes gigabytes of one word).

    ## Why it matters

    Every fast tokenizer is made from this file. Loading or encoding fails, often with an error that names
    neither the file nor the place; some malformed files take the whole process down.

    ## How to fix it

    Mend the place that is named. After an edit by hand of the vocabulary, take the merges that need the
    removed token out as well. Otherwise take the file from its source again. If a sound file runs out of time
    or memory on a slow machine, TOKAUDIT_PATIENCE=4 in the environment allows four times as much.
    """

    code = "TA405"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        problem = contract.tokenizer_error
        if problem is None:
            contract.vocabulary.loaded  # noqa: B018  nobody has said that it loads where this is missing
            return
        marked = problem.at.file in contract.marked
        yield self.finding(
            f"tokenizer.json cannot be used: {problem.value}",
            [problem.says(problem.value)],
            why="every fast tokenizer is made from this file: using it fails, or takes the process down",
            fix=_UNMARK if marked else _MEND,
        )
