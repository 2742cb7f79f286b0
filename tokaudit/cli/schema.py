"""`tokaudit schema`: the JSON Schema of what tokaudit writes."""

from __future__ import annotations

from typing import Annotated

import typer

from tokaudit.cli.outcome import Outcome


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True, help="Which schema.")] = "report",
) -> Outcome:
    """Print the JSON Schema of a document.

    NAME is what the document holds: report, the output of `tokaudit check --format json`; diff, that of
    `tokaudit diff --format json`; lock, what `tokaudit lock` writes; plan, the output of `tokaudit resize
    --dry-run --format json`; manifest, the tokaudit-resize.json in its result, which it prints without
    --dry-run; cost, the output of `tokaudit cost --format json`.

    \b
    Example:
      tokaudit schema report > report.schema.json
    """
    from importlib.resources import files

    from tokaudit.errors import UsageError

    suffix = ".schema.json"
    folder = files("tokaudit.reporters")
    known = sorted(file.name.removesuffix(suffix) for file in folder.iterdir() if file.name.endswith(suffix))
    if name not in known:
        raise UsageError(f"there is no schema {name!r}", hint=f"there is {', '.join(known)}")
    return Outcome((folder / (name + suffix)).read_text(encoding="utf-8"))
