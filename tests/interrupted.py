"""Runs a tokaudit command and interrupts it where an exception would be lost, with a lock held.

usage: interrupted.py N ARGS...

When the main thread has imported a module, a callback of the import machinery takes the lock of all imports.
At the N-th time SIGINT arrives just then. What is raised in a callback goes nowhere: KeyboardInterrupt would
neither end the run nor release the lock, for which the threads that import wait from then on.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import os
import signal
import sys
import threading

from tokaudit.cli import run

CALLBACK = "cb"  # of a module's lock, in _get_module_lock


class Interrupting:
    """Stands in for the module of the lock in the import machinery."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def __getattr__(self, name: str) -> object:
        return getattr(_imp, name)

    def acquire_lock(self) -> None:
        _imp.acquire_lock()
        if (
            sys._getframe(1).f_code.co_name == CALLBACK
            and threading.current_thread() is threading.main_thread()
        ):
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)  # where a shell starts it in the background
_frozen_importlib._imp = Interrupting(int(sys.argv.pop(1)))
run()
