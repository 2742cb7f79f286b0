"""Runs commands of tokaudit one after the other, each in a fork of one process that has imported everything.

As a script it is that process: a JSON line {"arguments": [...], "stdout": PATH, "stderr": PATH, "seconds": N,
"environment": {...}, "cwd": PATH} on standard input, and a JSON line {"code": ..., "seconds": ...,
"peak": bytes} comes back. A code below 0 is a signal.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from command import PROJECT, environment


@dataclass(frozen=True)
class Done:
    """How a command ended. ``peak`` is the largest resident memory of it or of a child of it, in bytes."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    peak: int


class Forked:
    """The process; a context manager. ``folder`` takes what the commands print."""

    def __init__(self, folder: Path, *, seconds: float = 180) -> None:
        self.folder = folder
        self.seconds = seconds
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env=environment(PYTHONPATH=os.pathsep.join([str(PROJECT), str(Path(__file__).parent)])),
        )

    def run(self, *arguments: str | Path, cwd: Path = PROJECT, **changes: str) -> Done:
        out, err = self.folder / "stdout", self.folder / "stderr"
        request = {
            "arguments": [os.fsdecode(argument) for argument in arguments],
            "stdout": str(out),
            "stderr": str(err),
            "seconds": self.seconds,
            "environment": changes,
            "cwd": str(cwd),
        }
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Done(answer["code"], out.read_bytes(), err.read_bytes(), answer["seconds"], answer["peak"])

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)
        if self.process.stdout:
            self.process.stdout.close()


def _serve() -> None:
    import torch  # noqa: F401  (once, before the first fork)

    import tokaudit.cli.app
    import tokaudit.resize.run
    import tokaudit.values.read  # noqa: F401
    from tokaudit.tokenizing import Limits

    # What hangs costs the limit on time, with every command; the limit itself is tests/test_tokenizing.py's.
    Limits.__init__.__defaults__ = (5.0, 5.0, 15, *Limits.__init__.__defaults__[3:])  # type: ignore[index]

    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            _play(request)
        usage, status = _waited(pid, request["seconds"])
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": time.perf_counter() - started,
            "peak": usage.ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


def _play(request: dict[str, object]) -> None:
    os.setpgid(0, 0)
    for descriptor, name in ((0, os.devnull), (1, str(request["stdout"])), (2, str(request["stderr"]))):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(name, flags, 0o600), descriptor)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = 70
    try:
        from tokaudit.cli import main

        code = main(request["arguments"])  # type: ignore[arg-type]
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _waited(pid: int, seconds: float) -> tuple[resource.struct_rusage, int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return usage, status
        time.sleep(0.002)
    os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    return usage, status


if __name__ == "__main__":
    _serve()
