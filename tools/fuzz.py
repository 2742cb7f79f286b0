"""Fuzz tokaudit for as long as you like: ``python tools/fuzz.py --minutes 30 [--target NAME] [--seed N]``.

Inputs come from the generators under tests/fuzz, with random seeds, in turns of some hundred for each target.
An input on which something does not hold that must hold for any (tests/fuzz/properties.py) is shrunk and
kept as a folder. For each of them:

1. mend the kind of bug, not the one input;
2. move the folder to tests/fuzz/found/, with a name that says what was wrong, and put that name and the
   command on which it failed into commands.json there: tests/test_fuzz.py replays it for ever;
3. fuzz that target again.

Exit code: 0 nothing was found, 1 something was. An input that hangs ends the run with the traceback; it is
the folder fuzz-input-* that is left among the temporary files. Ctrl-C ends the run with its figures.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests")]

from fuzz.properties import CHECKS, SECONDS, command_names, write  # noqa: E402
from fuzz.targets import TARGETS, Files  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

SHRINKING = 90.0  # seconds for one failure


@dataclass
class Failure:
    """The smallest input so far on which the same line failed."""

    files: Files
    command: str
    why: str
    first: float = field(default_factory=time.monotonic)


class Fuzzer:
    """Runs targets in turn and keeps what fails, one input for each place of failure."""

    def __init__(self, out: Path, seed: int, end: float = float("inf")) -> None:
        self.out = out
        self.end = end  # by the monotonic clock
        self.random = random.Random(seed)
        self.tried: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}
        self.known: dict[str, Failure] = {}
        self.current = ""

    def stop(self) -> None:
        """Try no more inputs after this one."""
        self.end = 0.0

    def turn(self, target: str, inputs: int) -> None:
        """Try so many inputs of one target; a failure that is new is shrunk and written."""
        began = time.monotonic()
        self.current = ""
        running = settings(
            max_examples=inputs,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )(given(TARGETS[target], st.sampled_from(command_names()))(self._tried(target)))
        try:
            seed(self.random.getrandbits(64))(running)()
        except Exception:  # the failure, or Hypothesis about one that did not come again
            if not self.current:
                raise
            self._keep(target, self.current)
        self.seconds[target] += time.monotonic() - began

    def _tried(self, target: str):  # type: ignore[no-untyped-def]
        def try_one(files: Files, command: str) -> None:
            if time.monotonic() > self.end and not self.current:
                return
            self.tried[target] += 1
            began = time.monotonic()
            with _Folder(files) as folder:
                faulthandler.dump_traceback_later(20 * SECONDS, exit=True, file=sys.__stderr__)
                try:
                    CHECKS[target](folder, command)
                except Exception as error:
                    if self._is_news(_place(error), files, command, error):
                        raise
                finally:
                    faulthandler.cancel_dump_traceback_later()
            self.slowest[target] = max(self.slowest.get(target, 0), time.monotonic() - began)

        return try_one

    def _is_news(self, place: str, files: Files, command: str, error: Exception) -> bool:
        """Whether the failure is the one that is being shrunk; all others are known."""
        if not self.current and place not in self.known:
            self.current = place
        if place != self.current:
            return False
        why = "".join(traceback.format_exception(error))
        before = self.known.get(place)
        if before is not None and time.monotonic() - before.first > SHRINKING:
            return False
        if before is None or _size(files) <= _size(before.files):
            failure = Failure(files, command, why)
            failure.first = before.first if before else failure.first
            self.known[place] = failure
        return True

    def _keep(self, target: str, place: str) -> None:
        failure = self.known[place]
        name = f"{target}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        folder = self.out / name
        shutil.rmtree(folder, ignore_errors=True)
        write(failure.files, folder)
        (self.out / f"{name}.txt").write_text(
            f"target {target}, command {failure.command!r}\n{place}\n\n{failure.why}",
            encoding="utf-8",
            errors="replace",
        )
        print(f"FOUND {folder}: {place}", flush=True)


def _size(files: Files) -> int:
    return sum(map(len, files.values()))


class _Folder:
    """A folder with the files; it stays behind where the process dies."""

    def __init__(self, files: Files) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fuzz-input-"))
        write(files, self.path / "model")

    def __enter__(self) -> Path:
        return self.path / "model"

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _place(error: Exception) -> str:
    """Where it failed: the innermost line of tokaudit, or of the properties, and the kind of error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/tokaudit/" in frame.filename or "/tests/fuzz/" in frame.filename]
    last = (own or frames)[-1]
    words = str(error).split("\n")[0][:60] if isinstance(error, AssertionError) else ""
    words = "".join("N" if char.isdigit() else char for char in words)
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} {words}".encode(
        "ascii", "replace"
    ).decode()


def _targets(name: str) -> Iterator[str]:
    return cycle(TARGETS if name == "all" else [name])


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz tokaudit.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time")
    parser.add_argument("--turn", type=int, default=150, help="inputs of a target before the next one")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="where failing inputs are kept")
    asked = parser.parse_args()
    started = asked.seed if asked.seed is not None else random.SystemRandom().getrandbits(32)
    asked.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    print(f"seed {started}", flush=True)
    fuzzer = Fuzzer(asked.out, started, time.monotonic() + 60 * asked.minutes)
    signal.signal(signal.SIGINT, lambda *_: fuzzer.stop())
    for target in _targets(asked.target):
        if time.monotonic() > fuzzer.end:
            break
        fuzzer.turn(target, asked.turn)
    print(f"{'target':12} {'inputs':>8} {'seconds':>8} {'slowest':>8}")
    for target in fuzzer.tried:
        slowest = fuzzer.slowest.get(target, 0.0)
        print(f"{target:12} {fuzzer.tried[target]:8} {fuzzer.seconds[target]:8.0f} {slowest:7.1f}s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{len(fuzzer.known)} failures; at most {peak} MiB")
    return 1 if fuzzer.known else 0


if __name__ == "__main__":
    raise SystemExit(main())
