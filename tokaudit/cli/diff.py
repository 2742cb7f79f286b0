"""`tokaudit diff`: what differs between two models, or a model and a lock, and what it means for a use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tokaudit.cli.options import Color, TextOrJson
from tokaudit.cli.outcome import Outcome

if TYPE_CHECKING:
    from tokaudit.diffs.run import Diff


def diff(
    left: Annotated[str, typer.Argument(metavar="A", hidden=True, help="A model directory or a lock.")],
    right: Annotated[str, typer.Argument(metavar="B", hidden=True, help="A model directory or a lock.")],
    use: Annotated[
        str,
        typer.Option("--for", metavar="USE", help="drop-in, speculative or merge."),
    ] = "drop-in",
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare the rows of the tokens that both have.")
    ] = False,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="Open no weights file.")] = False,
    format: TextOrJson = "terminal",
    color: Color = "auto",
) -> Outcome:
    """Say what differs between A and B, and whether B will do.

    A and B are model directories, locks, or one of each. Tokens that were added, removed, replaced or
    moved are shown with their texts, and so is every difference in the pipeline, the special ids, the
    chat template, the tables and the encodings of probe texts.

    \b
    Uses:
      drop-in      B in the place of A: whatever changes an encoding, an id or
                   a row counts
      speculative  B drafts for A: every id that both have must stand for the
                   same token
      merge        A and B are parents of one model: the same mapping, tables
                   of the same shape

    \b
    Examples:
      tokaudit diff released fine-tuned --deep
      tokaudit diff target draft --for speculative
      tokaudit diff tokaudit.lock path/to/model --format json

    \b
    Exit codes:
      0  the same for that use
      1  they differ
      2  no verdict: a wrong call, or input that cannot be read or compared
    """
    from tokaudit.cli import streams
    from tokaudit.cli.arguments import one_of
    from tokaudit.cli.progress import progress
    from tokaudit.diffs.run import Answer
    from tokaudit.diffs.run import diff as run
    from tokaudit.diffs.uses import use_named
    from tokaudit.report import Verdict
    from tokaudit.reporters import _diff, _diff_json

    renderers = {"terminal": _diff.as_text, "json": _diff_json.as_json}
    one_of("--format", format, list(renderers))
    view = streams.view(color)
    wanted = use_named(use)
    with progress(f"comparing {left} and {right}"):
        found = run(left, right, use=wanted, deep=deep, read_weights=not no_weights)
    verdicts = {
        Answer.SAME: Verdict.PASS,
        Answer.DIFFERS: Verdict.FINDINGS,
        Answer.NO_VERDICT: Verdict.NO_VERDICT,
    }
    return Outcome(renderers[format](found, view), verdicts[found.answer], _complaint(found))


def _complaint(found: Diff) -> str:
    """The line that comes with exit code 2; else a note on keys of a lock that were passed over."""
    from tokaudit.cli import streams
    from tokaudit.diffs.run import Answer
    from tokaudit.errors import TokauditError

    if found.unreadable:
        return streams.error_lines(found.unreadable)
    if found.answer is Answer.NO_VERDICT:
        return streams.error_lines([TokauditError(found.undecided[0])])
    sides = (found.comparison.left, found.comparison.right)
    return "".join(streams.ignored_keys(side.lock) for side in sides if side.contract is None)
