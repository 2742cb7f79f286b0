"""`tokaudit hash`: the digests of a contract, for those who only want to compare two numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from tokaudit.cli.options import Tokenizer
from tokaudit.cli.outcome import Outcome


def hash(
    path: Annotated[str, typer.Argument(metavar="PATH", hidden=True, help="Model directory, or a lock.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also the bytes of the tables, each of which is read once.")
    ] = False,
    tokenizer: Tokenizer = None,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Open no weights file.")] = False,
) -> Outcome:
    """Print the digests of a model's contract or of a lock, one a line.

    They are the digests that `tokaudit lock` writes. Two models with the same line have the same layer,
    however their files are written.

    \b
    Examples:
      tokaudit hash path/to/model
      tokaudit hash path/to/model | grep -E "mapping|merges"
      tokaudit hash tokaudit.lock

    \b
    Exit codes:
      0  printed
      2  the model cannot be locked: a part is unreadable, or there is no part
    """
    import os

    from tokaudit.cli.progress import progress
    from tokaudit.locks.read import read
    from tokaudit.locks.run import lock
    from tokaudit.locks.write import digests_of

    if os.path.isfile(path):
        held = read(path)
    else:
        with progress(f"reading {path}"):
            held = lock(path, tokenizer=tokenizer, deep=deep, read_weights=not no_weights)
    return Outcome("".join(f"{layer} {digest}\n" for layer, digest in digests_of(held).items()))
