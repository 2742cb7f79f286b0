"""The command line: the console entry, and the only place that knows exit codes.

    0         no finding at or above --fail-on
    1         findings
    2         no verdict: a wrong call, input that cannot be read, a limit, an internal error
    130, 143  interrupted, terminated (129: the terminal is gone)

What a command prints is collected, and written when its exit code is settled: a reader that has gone or a
disk that is full can then never look like findings. A code of 2 always comes with one line on standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tokaudit.ending import end_at_signals

if TYPE_CHECKING:
    from tokaudit.cli.outcome import Outcome

NO_VERDICT = 2
INTERRUPTED = 130


def run() -> NoReturn:
    """The console entry."""
    end_at_signals()
    code = main()
    # All that a run leaves was written and flushed by now. Taking down torch and a million objects one by one
    # would last as long as reading a table; the kernel frees them at once.
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (by default ``sys.argv``) and return the exit code. Raises nothing.

    Signals are the business of who calls it.
    """
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # the panic of a Rust extension is no Exception
        from tokaudit.cli import streams

        streams.complain(streams.last_words(error))
        return NO_VERDICT


def _main(arguments: Sequence[str] | None) -> int:
    import gc

    from tokaudit.cli import streams
    from tokaudit.errors import UsageError

    gc.disable()  # a run is short and makes millions of objects that are all needed: half its time
    if sys.stdout is None:
        raise UsageError("standard output is closed, so the report cannot be printed")
    outcome, code = _run(arguments)
    streams.write(outcome.output, outcome.written)
    streams.complain(outcome.complaint)
    return code


def _run(arguments: Sequence[str] | None) -> tuple[Outcome, int]:
    """What the command leaves, and its exit code."""
    import io
    from contextlib import redirect_stdout

    import typer
    from typer.main import get_command

    from tokaudit.cli.app import WrongCall, app, explained
    from tokaudit.cli.outcome import Outcome

    printed = io.StringIO()  # by Typer: help, the version, completion scripts
    try:
        with redirect_stdout(printed):
            left = get_command(app).main(arguments, prog_name="tokaudit", standalone_mode=False)
    except WrongCall as error:
        raise explained(error) from None
    except typer.Abort as abort:  # Typer takes an EOFError for Ctrl-D at a prompt; there are no prompts
        raise abort.__cause__ or KeyboardInterrupt from None
    except SystemExit as leaving:  # Typer's completion leaves this way
        if leaving.code:
            raise
        left = 0
    if isinstance(left, Outcome):
        return left, _code(left)
    return Outcome(printed.getvalue()), left


def _code(outcome: Outcome) -> int:
    if outcome.verdict is None:
        return 0
    from tokaudit.report import Verdict

    return {Verdict.PASS: 0, Verdict.FINDINGS: 1, Verdict.NO_VERDICT: NO_VERDICT}[outcome.verdict]
