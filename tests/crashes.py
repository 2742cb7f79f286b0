"""Runs a tokaudit command over and over and makes its N-th change to the file system fail, or kills it there.

usage: crashes.py MODE ARGS...      then one number N a line on standard input

MODE is kill (SIGKILL), int or term (the signal arrives just before the change), the name of an error in lower
case (enospc, eio, edquot) that the change fails with, or change:PATH (a byte of that file becomes another).
For each N the command runs in a fork (torch is imported once) and a JSON line comes back: its exit code
(negative: a signal), what it said on standard error, and whether it made fewer than N changes, so that the
sweep is over.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch  # noqa: F401  (once, before the first fork)

import tokaudit.resize.run  # torch, before the first fork
import tokaudit.resize.values  # noqa: F401
from tokaudit.cli import main as command_line
from tokaudit.ending import end_at_signals

CHANGES = (
    "write", "pwrite", "writev", "copy_file_range", "sendfile", "fsync", "fdatasync", "rename", "replace",
    "link", "symlink", "mkdir", "unlink", "remove", "rmdir", "truncate", "ftruncate", "chmod", "fchmod",
)  # fmt: skip
SIGNALS = {"kill": signal.SIGKILL, "int": signal.SIGINT, "term": signal.SIGTERM}
OVER = 77


class Fault:
    """Counts the changes, which threads make; does its harm at the N-th and never again."""

    def __init__(self, at: int, mode: str) -> None:
        self.at = at
        self.mode = mode
        self.count = 0
        self.lock = threading.Lock()

    def change(self) -> None:
        with self.lock:
            self.count += 1
            if self.count != self.at:
                return
        if self.mode in SIGNALS:
            os.kill(os.getpid(), SIGNALS[self.mode])
            return
        if self.mode.startswith("change:"):
            with ORIGINAL_OPEN(self.mode.partition(":")[2], "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)[0]
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last ^ 1]))
            return
        code = getattr(errno, self.mode.upper())
        raise OSError(code, os.strerror(code))


def counted(function: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
    def wrapper(*args: Any, **options: Any) -> Any:
        standard_stream = function is ORIGINAL_WRITE and args[0] <= 2
        if not standard_stream:
            fault.change()
        return function(*args, **options)

    wrapper.__name__ = function.__name__
    return wrapper


ORIGINAL_WRITE = os.write
ORIGINAL_OPEN = builtins.open


def install(fault: Fault) -> None:
    for name in CHANGES:
        if hasattr(os, name):
            setattr(os, name, counted(getattr(os, name), fault))
    os_open, any_open = os.open, builtins.open

    def open_fd(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            fault.change()
        return os_open(path, flags, *args, **options)

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if set(mode) & set("wax+") and not isinstance(file, int):
            fault.change()
        return any_open(file, mode, *args, **options)

    os.open, builtins.open, io.open = open_fd, open_file, open_file  # type: ignore[assignment]


def run(at: int, mode: str, arguments: list[str], errors: int) -> NoReturn:
    """The command, in the forked child. Exits with OVER where it made fewer changes."""
    os.dup2(errors, 2)
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    fault = Fault(at, mode)
    install(fault)
    end_at_signals()
    code = command_line(arguments)
    sys.stderr.flush()
    os._exit(OVER if fault.count < at else code)


def main() -> None:
    mode, *arguments = sys.argv[1:]
    for line in sys.stdin:
        with tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                run(int(line), mode, arguments, errors.fileno())
            _, status = os.waitpid(child, 0)
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"code": code, "stderr": said, "over": code == OVER}), flush=True)


if __name__ == "__main__":
    main()
