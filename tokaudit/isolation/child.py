"""The child's side of an isolated process: what every worker does before it touches the file.

A worker is started as ``python -I WORKER DOCUMENT LIFELINE MEMORY CPU``: two inherited file descriptors,
bytes of memory (0: no limit) and seconds of processor time. Requests come in on stdin and answers leave on
what was stdout; each is a length (8 bytes, big-endian) and so many bytes of JSON. The first answer needs no
request. An answer is ``{"answer": ...}`` or ``{"failure": [kind, cause]}``.

Only the standard library is imported: a child must start as fast as what it runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable

LENGTH_BYTES = 8
LONGEST_CAUSE = 2000  # characters; a message can quote a token of megabytes


def confined() -> tuple[int, int]:
    """Take the limits of the command line. The descriptors of the file and of the answers."""
    document, lifeline, memory, cpu = map(int, sys.argv[1:])
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library might print must not look like an answer
    die_with_parent(lifeline)
    confine(memory, cpu)
    return document, answers


def die_with_parent(lifeline: int) -> None:
    """Have the kernel end this process as soon as the parent's end of the pipe closes, however it ended.

    The default action of SIGIO reaches a process that is stuck inside the library, too. PR_SET_PDEATHSIG
    is no substitute: it exists on Linux only and fires when the *thread* that started the child ends.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline)
    if poll.poll(0):  # it had closed before the signal was armed
        os._exit(1)


def confine(memory: int, cpu: int) -> None:
    """Take these limits: bytes of address space (0: none) and seconds of processor time."""
    limit(resource.RLIMIT_CORE, 0, 0)
    # The hard limit on processor time kills without a reason; the soft one, a second earlier, says which.
    limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    if memory:
        limit(resource.RLIMIT_AS, memory, memory)


def limit(which: int, soft: int, hard: int) -> None:
    """Lower a limit of this process, which may be below that already."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))


def respond(answers: int, act: Callable[[], object]) -> None:
    """Send what the act gives, or why it fails."""
    reply: dict[str, object]
    try:
        reply = {"answer": act()}
    except MemoryError:
        reply = {"failure": ["memory", ""]}
    except Exception as error:
        reply = {"failure": ["rejected", str(error)[:LONGEST_CAUSE]]}
    except BaseException as error:  # a Rust panic: PanicException is no Exception and has no public name
        reply = {"failure": ["panicked", str(error)[:LONGEST_CAUSE]]}
    data = json.dumps(reply).encode()
    with open(answers, "wb", closefd=False) as out:
        out.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
