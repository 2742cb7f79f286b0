"""Reports that go to files: ``--output FORMAT=FILE``, and the summary of a GitHub Actions step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokaudit.errors import TokauditError, UsageError

if TYPE_CHECKING:
    from tokaudit.report import Report
    from tokaudit.reporters import Reporter, View

# GitHub drops the summary of a step that exceeds 1024 KiB.
SUMMARY_BYTES = 900_000
_STREAMS = ("/dev/fd/", "/dev/std", "/proc/")


@dataclass(frozen=True, slots=True)
class FileOutput:
    """A report in one format, and the file that it goes to."""

    reporter: Reporter
    file: Path

    def write(self, reports: Sequence[Report], view: View) -> None:
        """Write the file anew, whole or not at all. Raises TokauditError where that is not possible."""
        from tokaudit.atomic import new_file

        text = self.reporter.render(reports, view)
        with new_file(self.file) as building:
            building.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def file_outputs(wanted: Sequence[str], audited: Sequence[str]) -> Sequence[FileOutput]:
    """What ``--output`` asks for. Nothing is ever written into a directory that is audited.

    Raises UsageError for an unknown format, and for a file that is given twice, lies in an audited directory,
    or is no place for a file.
    """
    from tokaudit.reporters import reporter

    outputs: list[FileOutput] = []
    for value in wanted:
        format, separator, name = value.partition("=")
        if not (separator and name):
            raise UsageError(f"--output must be FORMAT=FILE, not {value!r}", hint="sarif=tokaudit.sarif")
        output = FileOutput(reporter(format), file_outside(name, audited))
        if any(output.file == other.file for other in outputs):
            raise UsageError(f"--output names {name!r} twice")
        outputs.append(output)
    return outputs


def file_outside(
    name: str,
    audited: Sequence[str],
    option: str = "--output",
    instead: str = "--format prints to standard output",
) -> Path:
    """The real file behind a name that was given as ``option``, so that a link stays a link.

    ``instead`` is the hint where it is no file.

    Raises UsageError where it lies in an audited directory or is no place for a file.
    """
    if "\0" in name:
        raise UsageError(f"{option}: {name!r} is no name for a file")
    file = Path(os.path.realpath(name))
    if os.path.abspath(name).startswith(_STREAMS) or (file.exists() and not file.is_file()):
        raise UsageError(f"{option}: {name!r} is no file", hint=instead)
    if not file.parent.is_dir():
        raise UsageError(f"{option}: there is no directory {str(file.parent)!r}", hint="make it first")
    for directory in audited:
        if file.is_relative_to(os.path.realpath(directory)):
            hint = "tokaudit changes nothing in what it audits; give a file elsewhere"
            raise UsageError(f"{option}: {name!r} lies in {directory!r}, which is audited", hint=hint)
    return file


def deliver(
    outputs: Sequence[FileOutput], format: str, reports: Sequence[Report], view: View
) -> tuple[Sequence[str], Sequence[TokauditError]]:
    """Write every file, and for ``--format github`` the step's summary: what was written, and what failed."""
    written: list[str] = []
    failures: list[TokauditError] = []
    view = replace(view, colour=False, unicode=True)
    for output in outputs:
        try:
            output.write(reports, view)
            written.append(str(output.file))
        except TokauditError as error:
            failures.append(error)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if format == "github" and summary:
        try:
            _append_summary(summary, reports, view)
        except OSError as error:
            failures.append(TokauditError(f"GITHUB_STEP_SUMMARY cannot be written: {error.strerror}"))
    return written, failures


def _append_summary(file: str, reports: Sequence[Report], view: View) -> None:
    """The file of a step, to which other commands of the step may have written."""
    from tokaudit.reporters import markdown

    used = 0
    with suppress(FileNotFoundError):
        used = os.stat(file).st_size
    if used >= SUMMARY_BYTES:
        return
    text = markdown.summary(reports, view, SUMMARY_BYTES - used)
    with open(file, "a", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
        stream.write(text)
