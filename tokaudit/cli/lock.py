"""`tokaudit lock`: write the contract of a model as a lock, or say whether one is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.options import Tokenizer
from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.contract import Contract, Lock


def lock(
    path: Annotated[str, typer.Argument(metavar="PATH", hidden=True, help="Model directory.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the lock is; - prints it.")
    ] = "tokaudit.lock",
    deep: Annotated[
        bool, typer.Option("--deep", help="Also pin the bytes of the tables, each of which is read once.")
    ] = False,
    tokenizer: Tokenizer = None,
    no_weights: Annotated[
        bool, typer.Option("--no-weights", help="Open no weights file; the lock holds no tables.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the lock is not up to date.")
    ] = False,
) -> Outcome:
    """Write the contract of a model as a lock.

    The lock is committed where the model is deployed from. It is a small JSON file of fingerprints by layer,
    so that drift says what changed: the token-to-id mapping, added tokens, merges, each part of the pipeline,
    chat templates, special ids, tables, and probe texts with their ids. It is the same for the same contract,
    however the model's files are written. `tokaudit check --lock` compares a model with it.

    \b
    Examples:
      tokaudit lock path/to/model
      tokaudit lock path/to/model -o locks/chat.lock --deep
      tokaudit lock path/to/model --check

    \b
    Exit codes:
      0  written, or up to date
      1  --check: not up to date
      2  the model cannot be locked, or the file cannot be written
    """
    from tokaudit.cli.outputs import file_outside
    from tokaudit.cli.progress import progress
    from tokaudit.locks.read import read
    from tokaudit.locks.run import lockable
    from tokaudit.locks.write import digests_of, to_text
    from tokaudit.text import inert

    audited = [path, *filter(None, [tokenizer])]
    file = None if output == "-" else file_outside(output, audited, instead="`-o -` prints the lock")
    held = read(output) if check else None
    deep = deep or (held is not None and held.contents is not None)
    with progress(f"locking {path}"):
        contract = lockable(path, tokenizer=tokenizer, deep=deep, read_weights=not no_weights)
    text = to_text(contract.snapshot)
    if held is not None:
        return _checked(held, contract, text)
    if file is None:
        return Outcome(text)

    from tokaudit.atomic import new_file

    with new_file(file) as building:
        building.write_text(text, encoding="ascii", newline="\n")
    layers = len(digests_of(contract.snapshot))
    return Outcome(f"{inert(output)}: {layers} layers of {inert(path)}\n", written=(output,))


def _checked(held: Lock, contract: Contract, text: str) -> Outcome:
    """Whether the file is what would be written now, and what changed."""
    from pathlib import Path

    from tokaudit.cli import streams
    from tokaudit.diffs.difference import Side
    from tokaudit.diffs.run import compare
    from tokaudit.report import Verdict
    from tokaudit.reporters._diff import changes_as_text

    if Path(held.name).read_bytes() == text.encode():
        return Outcome(f"{held.name}: up to date\n", Verdict.PASS)
    found = compare(Side(held), Side(contract.snapshot, contract))
    return Outcome(changes_as_text(found, streams.view()), Verdict.FINDINGS, streams.ignored_keys(held))
