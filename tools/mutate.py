"""Change the code in small ways and see whether a test notices.

    python tools/mutate.py                               120 changes to each of the four folders
    python tools/mutate.py --path tokaudit/rules/tie     changes below one path only
    python tools/mutate.py --count 20 --seed 7 --minutes 5
    python tools/mutate.py --again alive.json --tests test_lock.py,test_strict_json.py

It works on a clone of the last commit in a temporary directory. One process imports everything and collects
the tests; all else happens in forks of it. First the tests run there once, to learn which lines each of them
reaches. Then a fork for each change puts the changed function in the place of the old one and runs tests that
reach it, the narrow and fast ones first, until one fails or their time is up. A change to what runs at import
is written to its file and tried by a process that imports it anew. "unreached" are changes to lines that no
test reaches in its own process: what tests only see by a command counts as untested.

Changes that no test can notice stand in mutants_equivalent.txt beside this script, with the reason.
Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn, TextIO, TypeVar

from changes import Mutant, changes_to

PROJECT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
FOLDERS = ("tokaudit/contract", "tokaudit/formats", "tokaudit/rules", "tokaudit/resize")
# These look at tokaudit from a process of their own, or at pages and pictures: they would learn nothing here.
LEFT_OUT = ("action", "benchmark", "docs", "fuzz", "hostile", "html", "imports", "many", "resize_faults")
WARM = (
    "hypothesis",
    "jinja2",
    "jsonschema",
    "numpy",
    "pytest",
    "rich.console",
    "safetensors.torch",
    "tokenizers",
    "torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "typer",
)
SLOWEST = 5.0  # seconds of a test that is used
MEMORY = 16 << 30
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

Lines = set[tuple[str, int]]
T = TypeVar("T")


class Reached:
    """Which lines of the four folders run between ``start`` and ``stop``."""

    def __init__(self, root: Path) -> None:
        self.root = f"{root}/"
        self.prefixes = tuple(f"{root}/{folder}/" for folder in FOLDERS)
        self.lines: Lines = set()
        self.left: dict[CodeType, set[int]] = {}

    def start(self) -> None:
        self.lines, self.left = set(), {}
        sys.settrace(self._call)
        threading.settrace(self._call)

    def stop(self) -> Lines:
        sys.settrace(None)
        return self.lines

    def _call(self, frame: FrameType, event: str, value: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self.prefixes):
            return None
        if code not in self.left:
            self.left[code] = {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
        return self._line if self.left[code] else None

    def _line(self, frame: FrameType, event: str, value: object) -> Callable[..., Any]:
        if event == "line":
            # A generator of an earlier test can end in this one: its code is not known here.
            self.left.get(frame.f_code, set()).discard(frame.f_lineno)
            self.lines.add((frame.f_code.co_filename.removeprefix(self.root), frame.f_lineno))
        return self._line


@dataclass(frozen=True)
class Tests:
    reaching: Mapping[tuple[str, int], Sequence[str]]
    seconds: Mapping[str, float]  # of processor time
    depth: Mapping[str, Counter[str]]  # of a test: how many lines of which file it reaches
    imported: Lines  # lines that run when their file is imported

    @classmethod
    def measured(cls, parts: Iterator[Mapping[str, Any]], imported: Lines) -> Tests:
        reaching: dict[tuple[str, int], list[str]] = defaultdict(list)
        seconds, depth = {}, {}
        for part in parts:
            for test, (took, lines) in part.items():
                seconds[test], depth[test] = took, Counter(path for path, _ in lines)
                for path, line in lines:
                    reaching[path, line].append(test)
        return cls(reaching, seconds, depth, imported)

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """Tests that reach it, as many as ``budget`` seconds take; at import, tests that use its file.

        In turns the one that goes deepest into the mutant's file, and the fastest of the next file of tests,
        those with tests of units first.
        """
        found = {test for line in mutant.lines for test in self.reaching.get((mutant.path, line), ())}
        if not found and any((mutant.path, line) in self.imported for line in mutant.lines):
            found = {test for test in self.depth if mutant.path in self.depth[test]} or set(self.depth)
        deep = sorted(found, key=lambda test: (-self.depth[test][mutant.path], self.seconds[test], test))
        chosen: dict[str, None] = {}
        for test in itertools.chain.from_iterable(zip(deep, self._of_each_file(found), strict=True)):
            if test not in chosen and self.seconds[test] <= budget:
                chosen[test] = None
                budget -= self.seconds[test]
        return list(chosen)

    def _of_each_file(self, tests: Collection[str]) -> list[str]:
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            by_file[_file(test)].append(test)
        narrow = sorted(by_file.values(), key=lambda tests: min(self.depth[test].total() for test in tests))
        turns = itertools.zip_longest(*narrow)
        return [test for turn in turns for test in turn if test is not None]


class RunsAtImport(Exception):
    """The change is to the body of a module or a class."""


def differing(old: CodeType, new: CodeType, body: bool = True) -> list[tuple[CodeType, CodeType]]:
    """The pairs of functions that differ, nested ones too, from the outside in."""
    inside = []
    for inner, other in zip(_nested(old), _nested(new), strict=False):
        at_once = not inner.co_flags & inspect.CO_OPTIMIZED or inner.co_name in COMPREHENSIONS
        inside += differing(inner, other, body and at_once)
    same = _itself(old) == _itself(new)
    if body and not same:
        raise RunsAtImport
    return inside if body or (same and not inside) else [(old, new), *inside]


def _nested(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _itself(code: CodeType) -> tuple[object, ...]:
    consts = [const.co_name if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


class Functions:
    """The functions of tokaudit that this process holds, and the caches of them and of the tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self.caches = []
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename.startswith(f"{root}/tokaudit"):
                self.known[self._key(found.__code__)].append(found)
            elif type(found) is functools._lru_cache_wrapper:
                code = getattr(found.__wrapped__, "__code__", None)
                if code and code.co_filename.startswith(f"{root}/"):
                    self.caches.append(found)

    @staticmethod
    def _key(code: CodeType) -> tuple[str, str, int]:
        return code.co_filename, code.co_qualname, code.co_firstlineno

    def change(self, mutant: Mutant) -> None:
        """Put the changed functions in the place of the old ones; RunsAtImport where that does not do it."""
        path = self.root / mutant.path
        source = path.read_bytes()
        old, new = (compile(text, path, "exec") for text in (source, mutant.applied(source)))
        pairs = differing(old, new)
        if not any(self.known[self._key(before)] for before, _ in pairs):
            raise RunsAtImport
        for before, after in pairs:
            for function in self.known[self._key(before)]:
                function.__code__ = after
        for cache in self.caches:
            cache.cache_clear()


class Fork:
    """A process that runs ``work`` with its output in ``folder/log``; what that returns is its answer.

    ``seconds`` of processor time end it, and ten times as many of any time.
    """

    def __init__(self, work: Callable[[Path], object], folder: Path, seconds: float | None) -> None:
        self.folder, self.seconds = folder, seconds
        self.started = time.monotonic()
        folder.mkdir()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work)

    def _run(self, work: Callable[[Path], object]) -> NoReturn:
        try:
            os.setpgid(0, 0)
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream, to in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
                os.dup2(to, stream)
            if self.seconds:
                resource.setrlimit(resource.RLIMIT_CPU, (int(self.seconds), int(self.seconds)))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            part = self.folder / "part"
            part.write_text(json.dumps(work(self.folder)), encoding="utf-8")
            part.rename(self.folder / "answer")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def ended(self) -> bool:
        """Whether it has ended, which it has when its time is up."""
        done, _ = os.waitpid(self.pid, os.WNOHANG)
        late = self.seconds and time.monotonic() > self.started + 10 * self.seconds
        if not done and not late:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # also what a test left behind
        if not done:
            os.waitpid(self.pid, 0)
        return True

    @property
    def answer(self) -> Any:
        """What the work returned; None where it did not come to that."""
        file = self.folder / "answer"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def side_by_side(tasks: Iterator[tuple[T, Fork]], jobs: int) -> Iterator[tuple[T, Fork]]:
    """The tasks as they end, of which up to ``jobs`` run at the same time."""
    running = list(itertools.islice(tasks, jobs))
    while running:
        ended = [task for task in running if task[1].ended()]
        for task in ended:
            yield task
            shutil.rmtree(task[1].folder, ignore_errors=True)
        running = [task for task in running if task not in ended]
        running += itertools.islice(tasks, jobs - len(running))
        time.sleep(0.005)


class Running:
    """A pytest plugin: runs chosen ones of the collected tests. ``failed`` is called when one fails."""

    def __init__(self, session: Any, folder: Path, failed: Callable[[str], object]) -> None:
        factory = session.config._tmp_path_factory  # the forks must not share its folder
        factory._given_basetemp, factory._basetemp = folder / "files", None
        self.items = {item.nodeid: item for item in session.items}
        self.failed = failed
        session.config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed(report.nodeid)

    def run(self, names: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Each name after its test has run, with the seconds of processor time that it took."""
        for name, following in zip(names, [*names[1:], None], strict=True):
            item, nextitem = self.items[name], self.items[following] if following else None
            began = _seconds_taken()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            yield name, _seconds_taken() - began


def _seconds_taken() -> float:
    """Of processor time, by this process and those that it has waited for."""
    return sum(os.times()[:4])


def noticed(session: Any, tests: Sequence[str], folder: Path) -> str:
    """The word "killed" and the first of the tests that fails, or "alive"."""
    failed: list[str] = []
    for _ in Running(session, folder, failed.append).run(tests):
        if failed:
            return f"killed {failed[0]}"
    return "alive"


def measured(session: Any, root: Path, tests: Sequence[str], folder: Path) -> dict[str, Any]:
    """For each of the tests that passes: its seconds and the lines it reaches."""
    reached, failed, found = Reached(root), set[str](), {}
    running = Running(session, folder, failed.add)
    reached.start()
    for name, seconds in running.run(tests):
        lines = reached.stop()
        if name not in failed and seconds < SLOWEST:
            found[name] = seconds, sorted(lines)
        reached.start()
    reached.stop()
    return found


@dataclass
class Collected:
    """A pytest plugin: ``then`` takes the place of running the tests that were collected."""

    then: Callable[[Any], object]
    answer: Any = None

    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed:
            raise RuntimeError("tests that cannot be collected")
        self.answer = self.then(session)
        return True


def collected(root: Path, files: Sequence[str], then: Callable[[Any], object]) -> Any:
    """What ``then`` makes of the pytest session that has collected the tests of ``files``, below ``root``."""
    import pytest

    os.chdir(root)
    sys.path.insert(0, str(root))
    # A stale .pyc could stand for changed code: two changes can have one size and second.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    plugin = Collected(then)
    rewritten = "ignore::pytest.PytestAssertRewriteWarning"  # warm() has imported plugins already
    code = pytest.main(["-q", "-s", "-W", rewritten, "-p", "no:cacheprovider", *files], plugins=[plugin])
    if plugin.answer is None:
        raise RuntimeError(f"pytest ended with {code}")
    return plugin.answer


class Bench:
    """Tries changes to a clone of the last commit, ``jobs`` at a time. ``say`` takes lines for people."""

    def __init__(self, work: Path, jobs: int, seconds: float, say: TextIO) -> None:
        self.work, self.root = work, work / "clone"
        self.jobs, self.seconds, self.say = jobs, seconds, say
        self.forks = itertools.count()
        subprocess.run(["git", "clone", "--quiet", "--shared", str(PROJECT), str(self.root)], check=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self.root / "tokaudit")], check=True)

    def fork(self, work: Callable[[Path], object], *, trial: bool = True) -> Fork:
        folder = self.work / f"fork-{os.getpid()}-{next(self.forks)}"
        return Fork(work, folder, 10 + 3 * self.seconds if trial else None)

    def outcomes(self, mutants: Sequence[Mutant], files: Sequence[str]) -> dict[Mutant, str]:
        """What became of each: "killed", "alive" or "unreached"."""
        found: dict[Mutant, str] = {}
        whole = self.fork(functools.partial(self._in_place, mutants, files), trial=False)
        for _, fork in side_by_side(iter([(None, whole)]), 1):
            if fork.answer is None:
                raise SystemExit((fork.folder / "log").read_text(errors="replace")[-4000:])
            at_import = []
            for mutant, (what, tests) in zip(mutants, fork.answer, strict=True):
                found[mutant] = what
                at_import += [(mutant, tests)] if what == "imported" else []
        trials = (
            (mutant, self.fork(functools.partial(self._anew, mutant, tests))) for mutant, tests in at_import
        )
        for mutant, fork in side_by_side(trials, self.jobs):
            found[mutant] = self._outcome(mutant, fork)
        return found

    def _in_place(self, mutants: Sequence[Mutant], files: Sequence[str], folder: Path) -> Any:
        """What became of each, and the tests for it. "imported" are changes that _anew has to try."""
        sys.path.insert(0, str(self.root))
        imported = Reached(self.root)
        imported.start()
        import_all()
        lines = imported.stop()
        return collected(self.root, files, lambda session: self._each(mutants, session, lines))

    def _each(self, mutants: Sequence[Mutant], session: Any, imported: Lines) -> object:
        tests = Tests.measured(self._measured(session), imported)
        print(f"{len(tests.seconds)} of {len(session.items)} tests are of use", file=self.say)
        functions = Functions(self.root)
        chosen = {mutant: tests.of(mutant, self.seconds) for mutant in mutants}
        outcomes = dict.fromkeys(mutants, "unreached")
        trials = (
            (mutant, self.fork(functools.partial(self._replaced, mutant, names, functions, session)))
            for mutant, names in chosen.items()
            if names
        )
        for mutant, fork in side_by_side(trials, self.jobs):
            outcomes[mutant] = self._outcome(mutant, fork)
        return [(outcomes[mutant], chosen[mutant]) for mutant in mutants]

    def _measured(self, session: Any) -> Iterator[Mapping[str, Any]]:
        by_file: dict[str, list[str]] = defaultdict(list)
        for item in session.items:
            by_file[_file(item.nodeid)].append(item.nodeid)
        parts = [list(by_file.values())[at :: self.jobs] for at in range(self.jobs)]
        runs = (
            (
                None,
                self.fork(
                    functools.partial(measured, session, self.root, list(itertools.chain(*part))), trial=False
                ),
            )
            for part in parts
        )
        for _, fork in side_by_side(runs, self.jobs):
            if fork.answer is None:
                raise RuntimeError((fork.folder / "log").read_text(errors="replace")[-4000:])
            yield fork.answer

    @staticmethod
    def _replaced(
        mutant: Mutant, tests: Sequence[str], functions: Functions, session: Any, folder: Path
    ) -> str:
        try:
            functions.change(mutant)
        except RunsAtImport:
            return "imported"
        return noticed(session, tests, folder)

    def _anew(self, mutant: Mutant, tests: Sequence[str], folder: Path) -> Any:
        clone = folder / "clone"
        shutil.copytree(self.root, clone, ignore=shutil.ignore_patterns(".git"), symlinks=True)
        file = clone / mutant.path
        file.write_bytes(mutant.applied(file.read_bytes()))
        for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            cached.unlink()
        files = list(dict.fromkeys(map(_file, tests)))
        return collected(clone, files, lambda session: noticed(session, tests, folder))

    def _outcome(self, mutant: Mutant, fork: Fork) -> str:
        """A change with which no answer came is noticed: something ended early, or did not end."""
        what, _, by = str(fork.answer or "killed without an answer").partition(" ")
        if what != "imported":
            print(f"{what}: {mutant.path}:{mutant.line} {mutant.change} [{by}]", file=self.say)
        return what


def _file(test: str) -> str:
    return test.partition("::")[0]


def import_all() -> None:
    """Import every module of tokaudit that can be imported here."""
    import tokaudit

    for module in pkgutil.walk_packages(tokaudit.__path__, "tokaudit."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def equivalents() -> set[str]:
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line.startswith("tokaudit/")}


def changes(root: Path, prefix: str) -> Iterator[Mutant]:
    for file in sorted(root.glob("tokaudit/**/*.py")):
        path = str(file.relative_to(root))
        if path.startswith(FOLDERS) and path.startswith(prefix):
            yield from changes_to(path, file.read_bytes())


def sample(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` of each folder, in an order that takes the folders in turns."""
    groups = []
    for folder in FOLDERS:
        group = [mutant for mutant in found if mutant.path.startswith(f"{folder}/")]
        groups.append(random.Random(seed).sample(group, min(count, len(group))))
    return [group[at] for at in range(count) for group in groups if at < len(group)]


def warm() -> None:
    """Import once what the tests import, but nothing of tokaudit."""
    for name in WARM:
        importlib.import_module(name)
    assert not any(name.startswith("tokaudit") for name in sys.modules)


def table(found: Sequence[Mutant], outcomes: Mapping[Mutant, str]) -> str:
    lines = [
        "| folder | mutants | tried | killed | equivalent | still alive |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for title, prefix in [*((f"`{folder[9:]}/`", f"{folder}/") for folder in FOLDERS), ("all", "")]:
        counts = Counter(what for mutant, what in outcomes.items() if mutant.path.startswith(prefix))
        possible = sum(mutant.path.startswith(prefix) for mutant in found)
        alive = counts["alive"] + counts["unreached"]
        figures = possible, counts.total(), counts["killed"], counts["equivalent"], alive
        lines.append(" | ".join([f"| {title}", *map(str, figures)]) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=120, help="changes to each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--path", default="tokaudit/", help="only files whose path starts with this")
    parser.add_argument("--seconds", type=float, default=10, help="of tests for one change")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="changes tried at the same time")
    parser.add_argument("--tests", default="", help="only these files of tests/, separated by commas")
    parser.add_argument("--alive", type=Path, help="write the changes that nothing noticed to this file")
    parser.add_argument("--again", type=Path, help="try the changes of such a file")
    call = parser.parse_args()
    warm()
    left_out = tuple(f"test_{name}" for name in LEFT_OUT)
    names = (
        call.tests.split(",") if call.tests else sorted(file.name for file in PROJECT.glob("tests/test_*"))
    )
    files = [f"tests/{name}" for name in names if not name.startswith(left_out)]
    say = os.fdopen(os.dup(1), "w", buffering=1)
    with tempfile.TemporaryDirectory(prefix="tokaudit-mutants-") as folder:
        bench = Bench(Path(folder), call.jobs, call.seconds, say)
        found = list(changes(bench.root, call.path))
        if call.again:
            wanted = set(json.loads(call.again.read_text(encoding="utf-8")))
            chosen = [mutant for mutant in found if mutant.name in wanted]
            for name in sorted(wanted - {mutant.name for mutant in chosen}):
                print(f"gone: {name}", file=say)
        else:
            chosen = sample(found, call.count, call.seed)
        print(f"{len(chosen)} of {len(found)} changes", file=say)
        known = equivalents()
        outcomes = {mutant: "equivalent" for mutant in chosen if mutant.name in known}
        outcomes |= bench.outcomes([mutant for mutant in chosen if mutant.name not in known], files)
    alive = [mutant for mutant in chosen if outcomes[mutant] in ("alive", "unreached")]
    for mutant in alive:
        print(f"{outcomes[mutant]}: {mutant.name}", file=say)
    if call.alive:
        call.alive.write_text(json.dumps([mutant.name for mutant in alive], indent=1), encoding="utf-8")
    print(table(found, outcomes), file=say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
