"""The small changes that mutate.py makes to a file of code."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        return source[: self.start] + self._as_long().encode() + source[self.start + len(old) :]

    def _as_long(self) -> str:
        """The new text with as many lines as the old one, so that what follows keeps its lines."""
        more = "\n" * (self.old.count("\n") - self.new.count("\n"))
        if more and self.new in ("True", "False"):
            return f"({self.new}{more})"
        return f"{self.new[:-1]}{more})" if self.new.startswith("(") else self.new + more


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
        if node.value and ast.unparse(node.value) not in ("None", "False"):
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


def changes_to(path: str, source: bytes) -> list[Mutant]:
    """The changes to a file, one of each name."""
    return list({mutant.name: mutant for mutant in Mutator(path, source).found}.values())
