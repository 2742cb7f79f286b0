"""Change the code in small ways and see whether a test notices.

    python tools/mutate.py                               120 changes to each of the four folders
    python tools/mutate.py --path tokaudit/rules/tie     changes below one path only
    python tools/mutate.py --count 20 --seed 7 --minutes 5
    python tools/mutate.py --again alive.json --tests test_lock.py,test_strict_json.py

It works on a clone of the last commit in a temporary directory. The tests run there once to learn which lines
each of them reaches. Then each change is tried by some fast tests that reach its line, and by more of them if
those notice nothing, in a fork of this process, which has imported everything but tokaudit. "unreached" are
changes to lines that no test reaches in its own process: what tests only see by a command counts as untested.

Changes that no test can notice stand in mutants_equivalent.txt beside this script, with the reason.
Linux only.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

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
MOST_TESTS = 150
FILES = 3
THOROUGH = 3  # times the seconds, for a change that the first tests do not notice
MEMORY = 16 << 30

OTHER: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
SEVERITIES = {"ERROR": "WARNING", "WARNING": "ERROR", "NOTE": "WARNING", "INFO": "WARNING"}


@dataclass(frozen=True)
class Mutant:
    """A change: the text ``old`` at ``start`` (a byte offset) becomes ``new``."""

    path: str
    line: int
    lines: tuple[int, ...]  # of the part that changes; one of them must be reached
    scope: str  # the class and function around it
    start: int
    old: str
    new: str

    @property
    def change(self) -> str:
        return f"{' '.join(self.old.split())} -> {' '.join(self.new.split())}"

    @property
    def name(self) -> str:
        """What mutants_equivalent.txt knows it by; it outlives a shift of the lines."""
        return f"{self.path} | {self.scope} | {self.change}"

    def applied(self, source: bytes) -> bytes:
        old = self.old.encode()
        assert source[self.start : self.start + len(old)] == old
        return source[: self.start] + self.new.encode() + source[self.start + len(old) :]


class Mutator(ast.NodeVisitor):
    """Collects the changes to one file. Texts, annotations, decorators and messages stay as they are."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.statement: ast.stmt | None = None
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def change(self, node: ast.AST, new: str | ast.AST) -> None:
        node_: Any = node
        start = self.starts[node_.lineno - 1] + node_.col_offset
        end = self.starts[node_.end_lineno - 1] + node_.end_col_offset
        old = self.source[start:end].decode()
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        lines = range(node_.lineno, node_.end_lineno + 1)
        if self.statement and not hasattr(self.statement, "body"):
            lines = range(self.statement.lineno, (self.statement.end_lineno or 0) + 1)
        self.found.append(
            Mutant(self.path, node_.lineno, tuple(lines), ".".join(self.scope), start, old, text)
        )

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self.statement = node
        super().visit(node)

    def _scoped(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self.scope.append(node.name)
        if isinstance(node, ast.FunctionDef):
            for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    visit_ClassDef = visit_FunctionDef = _scoped

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.change(node, "pass")

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("__all__", "__slots__"):
            return
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self.change(node, "pass")
        self.generic_visit(node)

    def _removed(self, node: ast.AST) -> None:
        self.change(node, "pass")
        self.generic_visit(node)

    visit_AugAssign = visit_Continue = visit_Break = visit_Delete = _removed

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.change(node, "pass")
        elif isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            self.change(node, "0 and (yield)")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and ast.unparse(node.value) != "None":
            self.change(node, "return None")
        self.generic_visit(node)

    def _condition(self, test: ast.expr) -> None:
        if ast.unparse(test) not in ("TYPE_CHECKING", "True", "False"):
            self.change(test, "True")
            self.change(test, "False")

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._condition(node.test)
        if isinstance(node, ast.If):
            self.visit(node.test)
            for statement in (*node.body, *node.orelse):
                self.visit(statement)
        else:
            self.generic_visit(node)

    visit_IfExp = visit_If  # type: ignore[assignment]

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, operator in enumerate(node.ops):
            ops = [*node.ops[:at], OTHER[type(operator)](), *node.ops[at + 1 :]]
            self.change(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.change(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for at in range(len(node.values)):
            self.change(node, ast.BoolOp(node.op, node.values[:at] + node.values[at + 1 :]))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub)):
            self.change(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = [side for side in (node.left, node.right) if _is_text(side)]
        if type(node.op) in ARITHMETIC and not texts:
            self.change(node, ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.change(node, str(not node.value))
        elif isinstance(node.value, int):
            self.change(node, str(node.value + 1))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in CALLS:
            self.change(node, CALLS[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "Severity" and node.attr in SEVERITIES:
            self.change(node, f"Severity.{SEVERITIES[node.attr]}")
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        if node.lower or node.upper:
            self.change(node, ":")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for at, keyword in enumerate(node.keywords):
            if keyword.arg and not _is_text(keyword.value):
                rest = node.keywords[:at] + node.keywords[at + 1 :]
                self.change(node, ast.Call(node.func, node.args, rest))
        self.generic_visit(node)

    def _elements(self, node: ast.Set | ast.List | ast.Tuple) -> None:
        if len(node.elts) > 1 and all(isinstance(element, ast.Constant) for element in node.elts):
            self.change(node, type(node)(node.elts[:-1], *([ast.Load()] * (not isinstance(node, ast.Set)))))
        self.generic_visit(node)

    visit_Set = visit_List = visit_Tuple = _elements


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


class Measure:
    """A pytest plugin: which lines of the four folders each test reaches, and how long it takes."""

    def __init__(self, root: Path, into: Path) -> None:
        self.root, self.into = f"{root}/", into
        self.prefixes = tuple(f"{root}/{folder}/" for folder in FOLDERS)
        self.seen: set[tuple[str, int]] = set()
        self.left: dict[CodeType, set[int]] = {}
        self.lines: dict[str, list[tuple[str, int]]] = {}
        self.seconds: Counter[str] = Counter()
        self.failed: set[str] = set()

    def trace(self, frame: FrameType, event: str, value: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self.prefixes):
            return None
        if code not in self.left:
            self.left[code] = {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
        if not self.left[code]:
            return None
        return self.reached

    def reached(self, frame: FrameType, event: str, value: object) -> Callable[..., Any]:
        if event == "line":
            # A generator of an earlier test can end in this one: its code is not known here.
            self.left.get(frame.f_code, set()).discard(frame.f_lineno)
            self.seen.add((frame.f_code.co_filename.removeprefix(self.root), frame.f_lineno))
        return self.reached

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.seen, self.left = set(), {}
        sys.settrace(self.trace)
        threading.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        if nodeid not in self.failed and self.seconds[nodeid] < SLOWEST:
            self.lines[nodeid] = sorted(self.seen)

    def pytest_sessionfinish(self) -> None:
        self.into.write_text(json.dumps([self.lines, self.seconds]))


class Chosen:
    """A pytest plugin: only these tests, the fast ones first; the first that fails is written down."""

    def __init__(self, seconds: Mapping[str, float], killer: Path) -> None:
        self.seconds, self.killer = seconds, killer

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        kept = [item for item in items if item.nodeid in self.seconds]
        items[:] = sorted(kept, key=lambda item: self.seconds[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.killer.write_text(report.nodeid)


@dataclass(frozen=True)
class Tests:
    reaching: Mapping[tuple[str, int], Sequence[str]]
    of_file: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]
    reach: Mapping[str, int]  # how many lines a test reaches: few for the test of a unit

    def of(self, mutant: Mutant, budget: float, *, all_files: bool = False) -> dict[str, float]:
        """Tests that reach it with their seconds; for a line that runs at import, tests that use its file."""
        found = {test for line in mutant.lines for test in self.reaching.get((mutant.path, line), ())}
        usable = found or self.of_file.get(mutant.path) or self.reach
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(usable, key=self.seconds.__getitem__):
            by_file[test.partition("::")[0]].append(test)
        # Loading a file of tests takes time, too: those with tests of units, and those with most tests.
        narrow = sorted(by_file, key=lambda file: min(self.reach[test] for test in by_file[file]))
        broad = sorted(by_file, key=lambda file: -len(by_file[file]))
        files = narrow if all_files else list(dict.fromkeys([*narrow[:FILES], *broad[:FILES]]))
        chosen: dict[str, float] = {}
        left = budget
        for rank in range(max((len(by_file[file]) for file in files), default=0)):
            for test in (by_file[file][rank] for file in files if rank < len(by_file[file])):
                if self.seconds[test] < left and (all_files or len(chosen) < MOST_TESTS):
                    chosen[test] = self.seconds[test]
                    left -= self.seconds[test]
        return chosen


def read_tests(file: Path) -> Tests:
    lines, seconds = json.loads(file.read_text())
    reaching: dict[tuple[str, int], list[str]] = defaultdict(list)
    of_file: dict[str, list[str]] = defaultdict(list)
    for test, reached in lines.items():
        for path, line in reached:
            reaching[path, line].append(test)
        for path in {path for path, _ in reached}:
            of_file[path].append(test)
    return Tests(reaching, of_file, seconds, {test: len(reached) for test, reached in lines.items()})


class Bench:
    """A clone of the last commit where tests are run on changed code."""

    def __init__(self, work: Path) -> None:
        self.work, self.root = work, work / "clone"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(PROJECT), str(self.root)], check=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self.root / "tokaudit")], check=True)

    def pytest(self, arguments: Sequence[str], plugin: object, seconds: float) -> int | None:
        """Its exit code in a fork of this process; None after so many seconds."""
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            log = os.open(self.work / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = 70
            try:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                os.chdir(self.root)
                if isinstance(plugin, Chosen):
                    # A stale .pyc could stand for changed code: two changes can have one size and second.
                    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                    sys.dont_write_bytecode = True
                sys.path.insert(0, str(self.root))
                import pytest

                rewritten = "ignore::pytest.PytestAssertRewriteWarning"  # warm() has imported plugins already
                options = [
                    "-q",
                    "-W",
                    rewritten,
                    "-p",
                    "no:cacheprovider",
                    f"--basetemp={self.work / 'files'}",
                ]
                code = pytest.main([*options, *arguments], plugins=[plugin])
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        deadline = time.monotonic() + seconds
        status = None
        while status is None and time.monotonic() < deadline:
            time.sleep(0.02)
            done, ended = os.waitpid(pid, os.WNOHANG)
            status = ended if done else None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also what a test left behind
        if status is None:
            os.waitpid(pid, 0)
            return None
        return os.waitstatus_to_exitcode(status)

    def measured(self, names: Sequence[str]) -> Tests:
        into = self.work / "lines.json"
        code = self.pytest([f"tests/{name}" for name in names], Measure(self.root, into), 3600)
        if code not in (0, 1):
            raise SystemExit(f"pytest ended with {code}:\n{(self.work / 'log').read_text()[-4000:]}")
        return read_tests(into)

    def tried(self, mutant: Mutant, tests: Mapping[str, float]) -> tuple[str, str]:
        """What became of it ("killed", "timeout", "alive", "unreached"), and the test that noticed."""
        if not tests:
            return "unreached", ""
        file, killer = self.root / mutant.path, self.work / "killer"
        source = file.read_bytes()
        shutil.rmtree(self.work / "files", ignore_errors=True)
        killer.unlink(missing_ok=True)
        for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            cached.unlink()
        file.write_bytes(mutant.applied(source))
        try:
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            code = self.pytest(["-x", *files], Chosen(tests, killer), 60 + 5 * sum(tests.values()))
        finally:
            file.write_bytes(source)
        if code is None:
            return "timeout", ""
        name = killer.read_text() if killer.exists() else "(at import)"
        return ("killed", name) if code else ("alive", "")


def equivalents() -> set[str]:
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line.startswith("tokaudit/")}


def mutants(root: Path, prefix: str) -> Iterator[Mutant]:
    for file in sorted(root.glob("tokaudit/**/*.py")):
        path = str(file.relative_to(root))
        if path.startswith(FOLDERS) and path.startswith(prefix):
            yield from {m.name: m for m in Mutator(path, file.read_bytes()).found}.values()


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


def table(outcomes: Mapping[Mutant, str]) -> str:
    lines = [
        "| folder | mutants tried | killed | equivalent | still alive |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    total: Counter[str] = Counter()
    for folder in FOLDERS:
        counts = Counter(what for mutant, what in outcomes.items() if mutant.path.startswith(f"{folder}/"))
        total += counts
        lines.append(_line(f"`{folder.removeprefix('tokaudit/')}/`", counts))
    return "\n".join([*lines, _line("all", total)])


def _line(title: str, counts: Counter[str]) -> str:
    killed = counts["killed"] + counts["timeout"]
    alive = counts["alive"] + counts["unreached"]
    return f"| {title} | {counts.total()} | {killed} | {counts['equivalent']} | {alive} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=120, help="changes to each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--path", default="tokaudit/", help="only files whose path starts with this")
    parser.add_argument("--minutes", type=float, default=600, help="try no more changes after these")
    parser.add_argument("--seconds", type=float, default=8, help="of tests for one change")
    parser.add_argument("--tests", default="", help="only these files of tests/, separated by commas")
    parser.add_argument("--alive", type=Path, help="write the changes that nothing noticed to this file")
    parser.add_argument("--again", type=Path, help="try the changes of such a file")
    call = parser.parse_args()
    deadline = time.monotonic() + 60 * call.minutes
    warm()
    left_out = tuple(f"test_{name}" for name in LEFT_OUT)
    names = (
        call.tests.split(",") if call.tests else sorted(file.name for file in PROJECT.glob("tests/test_*"))
    )
    names = [name for name in names if not name.startswith(left_out)]
    with tempfile.TemporaryDirectory(prefix="tokaudit-mutants-") as folder:
        bench = Bench(Path(folder))
        found = list(mutants(bench.root, call.path))
        if call.again:
            wanted = set(json.loads(call.again.read_text(encoding="utf-8")))
            chosen = [mutant for mutant in found if mutant.name in wanted]
            for name in sorted(wanted - {mutant.name for mutant in chosen}):
                print(f"gone: {name}", flush=True)
        else:
            chosen = sample(found, call.count, call.seed)
        tests = bench.measured(names)
        print(f"{len(chosen)} of {len(found)} changes, {len(tests.of_file)} files reached", flush=True)
        outcomes = attempts(bench, tests, chosen, call.seconds, deadline)
    if call.alive:
        alive = [mutant.name for mutant, what in outcomes.items() if what in ("alive", "unreached")]
        call.alive.write_text(json.dumps(alive, indent=1), encoding="utf-8")
    print(table(outcomes))
    return 0


def attempts(
    bench: Bench, tests: Tests, chosen: Sequence[Mutant], seconds: float, deadline: float
) -> dict[Mutant, str]:
    known = equivalents()
    outcomes: dict[Mutant, str] = {}
    for mutant in chosen:
        if time.monotonic() > deadline:
            break
        if mutant.name in known:
            outcomes[mutant] = "equivalent"
            continue
        what, by = bench.tried(mutant, tests.of(mutant, seconds))
        if what == "alive":
            more = bench.tried(mutant, tests.of(mutant, THOROUGH * seconds, all_files=True))
            if more[0] == "killed":  # so many tests can also be too slow: an endless loop shows with the few
                what, by = more
        outcomes[mutant] = what
        print(f"{what}: {mutant.path}:{mutant.line} {mutant.change}", f"[{by}]" if by else "", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
