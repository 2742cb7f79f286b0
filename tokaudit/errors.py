"""Everything tokaudit raises on purpose.

    TokauditError
    |-- UsageError      the call itself is wrong: an unknown rule, two options that exclude each other
    |-- Unreadable      a part of the input cannot be read: no verdict on what depends on it
    |-- RunStopped      a training run was stopped, as it had asked for, because of findings
    FactMissing         control flow, not an error: a rule asked for a fact that the files do not state

Further kinds of TokauditError stand where they are raised: CannotWrite (atomic), Refused (resize) and
ProcessFailure (isolation). Only the command line turns an error into an exit code.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokaudit.report import Report


class TokauditError(Exception):
    """Base of the errors a caller may want to catch.

    ``str(error)`` is one line: what was expected, what was found and where. ``hint`` says what to do.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TokauditError):
    """The call is wrong; nothing was read."""


class Unreadable(TokauditError):
    """A file, or a part of one, that cannot be read.

    ``code`` is stable ("json-syntax", "not-a-regular-file", "file-too-large" ...), ``file`` is the path
    inside the model directory ("" for the directory itself).
    """

    def __init__(self, code: str, file: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        # An audit in another process sends it back; by itself an exception forgets all but its message.
        return partial(Unreadable, hint=self.hint), (self.code, self.file, self.message)


class RunStopped(TokauditError):
    """A training run that was to stop at findings of this severity; ``report`` holds them."""

    def __init__(self, message: str, report: Report, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.report = report


class FactMissing(Exception):
    """The contract does not hold the fact that was asked for; ``reason`` is shown as "skipped: reason"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
