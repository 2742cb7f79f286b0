"""What must hold for everything that tokaudit prints: it is inert, in one line for an error, and readable."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
from reports import ACTIVE, without_commands
from test_ci_reporters import SARIF_SCHEMA, assert_code_scanning_takes

import tokaudit.reporters
from tokaudit.cli import streams
from tokaudit.errors import TokauditError
from tokaudit.report import Report
from tokaudit.reporters import View, names, reporter

LONGEST_MESSAGE = 1000  # characters
_SCHEMAS = Path(tokaudit.reporters.__file__).parent

# Errors ---------------------------------------------------------------------------------------------------


def is_one_line(error: TokauditError) -> None:
    """As whoever catches it sees it, and as the command line prints it: two lines at most, with the hint."""
    assert error.message.isprintable(), repr(error.message)
    assert len(error.message) < LONGEST_MESSAGE, f"{len(error.message)} characters"
    lines = streams.error_lines([error])
    is_inert(lines, "error")
    assert len(lines.splitlines()) <= 2, lines


# Reports --------------------------------------------------------------------------------------------------


def is_inert(text: str, what: str) -> None:
    """Nothing in it acts on a terminal or a CI log, but for the commands of the github format."""
    rest = without_commands(text)
    found = ACTIVE.search(rest)
    assert found is None, f"{what}: raw U+{ord(found[0]):04X}"
    assert not re.search(r"(?m)^\s*::", rest), f"{what}: a workflow command"
    assert "##[" not in rest, f"{what}: a workflow command"
    rest.encode()


@functools.cache
def validator(schema: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((_SCHEMAS / f"{schema}.schema.json").read_bytes()))


def report_renders(report: Report) -> None:
    """In every format, inert, and readable for those who read it."""
    for format in names():
        text = reporter(format).render([report], View())
        is_inert(text, format)
        assert not text or text.endswith("\n"), format
        if format == "json":
            validator("report").validate(json.loads(text))
        elif format == "sarif":
            log = json.loads(text)
            for run in log["runs"]:
                del run["tool"]["driver"]["rules"][1:]  # the same each time, and most of the log
            SARIF_SCHEMA.validate(log)
            assert_code_scanning_takes(log)
        elif format == "gitlab":
            assert isinstance(json.loads(text), list)
        elif format == "junit":
            ElementTree.fromstring(text)
    for view in (View(verbose=True, width=40), View(quiet=True, unicode=False)):
        is_inert(reporter("terminal").render([report], view), "terminal")
