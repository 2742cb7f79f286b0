"""How a run ends by a signal: there and then, and nothing half-made stays.

An exception that a handler raises comes out wherever the main thread is just then. In the callback of a weak
reference, of which the import machinery has some, it is lost, and a lock may stay held for ever. So the
handler raises nothing: it removes what is unfinished and ends the process, whose threads end with it.
Isolated processes end by themselves (`isolation.child.die_with_parent`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128  # and the number of the signal is the exit code
_CLEAR = b"\r\x1b[K\x1b[?25h"  # a line of progress is erased, and the cursor shown again

_removals: list[Callable[[], None]] = []


def before_the_end(remove: Callable[[], None]) -> None:
    """Have this called in the main thread when a signal ends the process; it must need no lock."""
    _removals.append(remove)


def end_at_signals() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP end the process, except those that it was started to ignore."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signum, _end)


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    try:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        for remove in _removals:
            remove()
        if sys.stderr is not None and sys.stderr.isatty():
            with suppress(OSError):
                os.write(sys.stderr.fileno(), _CLEAR)
    finally:
        os._exit(SIGNALLED + signum)
