"""What a chat template prints, read off its syntax tree: nothing is compiled, rendered or looked up.

Two questions are answered. ``printed`` lists every text and role variable that the template can print.
``conversation`` follows the template through a conversation that ends with an assistant's plain answer, and
gives what it prints in order; conditions that this does not decide keep both of their branches.

Jinja2 parses (its parser only builds the tree). The time grows with the length of the template, and the
number of steps that are followed is limited.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from tokaudit.contract import Role
from tokaudit.text import shortened

ROLE_VARIABLES = frozenset(f"{role.value}_token" for role in Role)
MOST_STEPS = 50_000
LONGEST_CAUSE = 200  # characters of Jinja2's words, which may quote the template

TOO_DEEP = "it is nested too deeply"
# Words for the assistant's role, the usual one first.
ASSISTANTS = ("assistant", "model", "gpt", "chatbot", "bot", "ai")
_TRIMS = frozenset({"trim", "string", "safe", "strip", "lstrip", "rstrip"})
_ASKS = frozenset({"startswith", "endswith", "find", "index", "count", "isdigit", "items", "keys", "values"})


class TemplateProblem(Exception):
    """Why nothing can be said about a template; ``str`` is the reason."""


class BrokenTemplate(TemplateProblem):
    """Jinja2 does not parse it, neither here nor in transformers."""


@dataclass(frozen=True, slots=True)
class Text:
    """A literal text."""

    text: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A role variable: "bos_token", "eos_token" ..."""

    name: str


@dataclass(frozen=True, slots=True)
class Content:
    """The text of the message."""


@dataclass(frozen=True, slots=True)
class Fail:
    """``raise_exception(...)``: nothing is printed at all."""


@dataclass(frozen=True, slots=True)
class Leave:
    """``continue`` or ``break``: the rest of the innermost loop is not printed."""


@dataclass(frozen=True, slots=True)
class Either:
    """One of the branches is printed; which one is not known."""

    branches: tuple[Steps, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """One pass through a loop; ``turn`` marks the loop over the messages, at an assistant's message."""

    steps: Steps
    turn: bool


Step = Text | Variable | Content | Fail | Leave | Either | Loop
Steps = tuple[Step, ...]


class _Mark(enum.Enum):
    """What is known of a value that is no constant."""

    UNKNOWN = enum.auto()
    UNDEFINED = enum.auto()
    MESSAGES = enum.auto()
    MESSAGE = enum.auto()  # the assistant's message that the loop is at
    COUNT = enum.auto()  # messages | length, and what is computed from it
    INDEXES = enum.auto()  # range(messages | length)
    INDEX = enum.auto()
    LOOP = enum.auto()
    CONTENT = enum.auto()  # a text that holds the message's content
    PART = enum.auto()  # {"type": "text", "text": ...}, where content is a list of parts


@dataclass(frozen=True, slots=True)
class _Value:
    """The value of an expression, as a mark or a constant, and what printing it prints."""

    known: object = _Mark.UNKNOWN
    prints: Steps = ()

    @property
    def truth(self) -> bool | None:
        if self.known is _Mark.UNKNOWN:
            return None
        return self.known is not _Mark.UNDEFINED if isinstance(self.known, _Mark) else bool(self.known)


_Names = dict[str, _Value]
_UNKNOWN = _Value()
_UNDEFINED = _Value(_Mark.UNDEFINED)
_CONTENT = _Value(_Mark.CONTENT, (Content(),))
_START: Mapping[str, _Value] = {
    "messages": _Value(_Mark.MESSAGES),
    "add_generation_prompt": _Value(False),
    **{name: _Value(prints=(Variable(name),)) for name in ROLE_VARIABLES},
}


class _Generation(Extension):
    """``{% generation %}`` of transformers, which only marks what the assistant says."""

    tags = {"generation"}  # noqa: RUF012 (Jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def parse(source: str) -> nodes.Template:
    """The syntax tree, with the tags that transformers knows. Raises TemplateProblem: BrokenTemplate where
    Jinja2 does not parse it.
    """
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    try:
        return environment.parse(source)
    except TemplateSyntaxError as error:
        words = shortened(" ".join(str(error.message).split()), LONGEST_CAUSE)
        raise BrokenTemplate(f"Jinja2 does not parse it: {words} (line {error.lineno})") from None
    except ValueError as error:  # an integer of more digits than Python takes
        raise BrokenTemplate(f"Jinja2 does not parse it: {shortened(str(error), LONGEST_CAUSE)}") from None
    except RecursionError:
        raise TemplateProblem(TOO_DEEP) from None


def printed(tree: nodes.Template) -> tuple[Text | Variable, ...]:
    """Every literal text and role variable that is printed or given to a variable, in order.

    Texts that are only compared, used as a key, or handed to a filter or a method are not printed.
    Raises TemplateProblem.
    """
    try:
        return tuple(_printed(tree))
    except RecursionError:
        raise TemplateProblem(TOO_DEEP) from None


def _printed(tree: nodes.Template) -> Iterator[Text | Variable]:
    makers = {macro.name for macro in tree.find_all(nodes.Macro)} | {"namespace", "dict"}
    for node in _statements(tree):
        if isinstance(node, nodes.Output):
            for child in node.nodes:
                yield from _texts(child, makers)
        elif isinstance(node, nodes.Assign):
            yield from _texts(node.node, makers)


def _statements(node: nodes.Node) -> Iterator[nodes.Node]:
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Stmt):
            yield child
            yield from _statements(child)


def _texts(node: nodes.Node, makers: set[str]) -> Iterator[Text | Variable]:
    """The texts in an expression; ``makers`` are the functions that may print what they are given."""
    match node:
        case nodes.TemplateData(data=text) | nodes.Const(value=str() as text):
            yield Text(text)
        case nodes.Name(name=name) if name in ROLE_VARIABLES:
            yield Variable(name)
        case nodes.CondExpr():
            yield from _texts(node.expr1, makers)
            if node.expr2 is not None:
                yield from _texts(node.expr2, makers)
        case nodes.Filter(node=nodes.Node() as inner) | nodes.Getitem(node=inner):
            yield from _texts(inner, makers)
        case nodes.Call(node=nodes.Getattr(node=inner)):
            yield from _texts(inner, makers)
        case nodes.Call(node=nodes.Name(name=name)) if name in makers:
            for argument in (*node.args, *(keyword.value for keyword in node.kwargs)):
                yield from _texts(argument, makers)
        case nodes.Dict():
            for pair in node.items:
                yield from _texts(pair.value, makers)
        case nodes.Add() | nodes.Concat() | nodes.And() | nodes.Or() | nodes.List() | nodes.Tuple():
            for child in node.iter_child_nodes():
                yield from _texts(child, makers)


def conversation(tree: nodes.Template, *, last: bool) -> Steps:
    """What is printed for a conversation whose messages are plain texts, without tools or documents.

    Inside the loop over the messages the message is the assistant's; ``last`` says whether it is the last
    one. No generation prompt is asked for. Raises TemplateProblem where there is too much to follow.
    """
    try:
        return _Conversation(tree, last=last).steps()
    except RecursionError:
        raise TemplateProblem(TOO_DEEP) from None


def _asked_for_role(tree: nodes.Template) -> frozenset[str]:
    """The variables that are asked for a role: a loop's variable among them is a message."""
    members: list[nodes.Getattr | nodes.Getitem] = [
        *tree.find_all(nodes.Getattr),
        *tree.find_all(nodes.Getitem),
    ]
    return frozenset(
        member.node.name
        for member in members
        if isinstance(member.node, nodes.Name) and _key(member) in ("role", "from")
    )


def _key(node: nodes.Getattr | nodes.Getitem) -> object:
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) else None


def _assistant(tree: nodes.Template) -> str:
    """The word that the template compares with an assistant's role."""
    compared: set[object] = set()
    for compare in tree.find_all(nodes.Compare):
        for side in (compare.expr, *(operand.expr for operand in compare.ops)):
            items = side.items if isinstance(side, (nodes.List, nodes.Tuple)) else [side]
            compared.update(item.value for item in items if isinstance(item, nodes.Const))
    return next((word for word in ASSISTANTS if word in compared), ASSISTANTS[0])


class _Conversation:
    """Follows a template. Methods that take ``names`` read, and statements change, what variables hold."""

    def __init__(self, tree: nodes.Template, *, last: bool) -> None:
        self._tree = tree
        self._last = last
        self._macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
        self._asked_for_role = _asked_for_role(tree)
        self._role = _assistant(tree)
        self._open: list[str] = []  # macros that are being followed
        self._in_turn = False
        self._left = MOST_STEPS

    def steps(self) -> Steps:
        return self._block(self._tree.body, dict(_START))

    def _spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise TemplateProblem("there is too much in it to follow")

    # Statements

    def _block(self, body: list[nodes.Node], names: _Names) -> Steps:
        found: list[Step] = []
        for statement in body:
            steps = self._statement(statement, names)
            self._spend(len(steps))
            found += steps
        return tuple(found)

    def _statement(self, node: nodes.Node, names: _Names) -> Steps:
        self._spend()
        match node:
            case nodes.Output():
                return self._joined(node.nodes, names).prints
            case nodes.If():
                return self._if(node, names)
            case nodes.For():
                return self._for(node, names)
            case nodes.Assign(target=nodes.Name(name=name)):
                names[name] = self._value(node.node, names)
            case nodes.Assign(target=nodes.Tuple(items=items)):
                names.update((item.name, _UNKNOWN) for item in items if isinstance(item, nodes.Name))
            case nodes.AssignBlock(target=nodes.Name(name=name)):
                names[name] = _Value(prints=self._block(node.body, names))
            case nodes.With():
                inner = dict(names)
                for target, value in zip(node.targets, node.values, strict=True):
                    if isinstance(target, nodes.Name):
                        inner[target.name] = self._value(value, names)
                return self._block(node.body, inner)
            case nodes.CallBlock() | nodes.FilterBlock() | nodes.Block() | nodes.Scope():
                return self._block(node.body, names)
            case nodes.Continue() | nodes.Break():
                return (Leave(),)
        return ()

    def _if(self, node: nodes.If, names: _Names) -> Steps:
        tests: list[tuple[nodes.Node | None, list[nodes.Node]]] = [(node.test, node.body)]
        tests += [(other.test, other.body) for other in node.elif_]
        tests.append((None, node.else_))
        branches: list[Steps] = []
        outcomes: list[_Names] = []
        for test, body in tests:
            truth = True if test is None else self._value(test, names).truth
            if truth is False:
                continue
            inner = dict(names)
            branches.append(self._block(body, inner))
            outcomes.append(inner)
            if truth:
                break
        self._merge(outcomes, names)
        return branches[0] if len(branches) == 1 else (Either(tuple(branches)),)

    def _merge(self, outcomes: list[_Names], names: _Names) -> None:
        """Bring the variables of the branches together; one that differs is either of its values."""
        for name in {name for outcome in outcomes for name in outcome}:
            values = [outcome.get(name, _UNDEFINED) for outcome in outcomes]
            self._spend(len(values))
            same = all(value is values[0] for value in values)
            names[name] = values[0] if same else self._either(values)

    def _either(self, values: list[_Value]) -> _Value:
        marks = {value.known for value in values if isinstance(value.known, _Mark)}
        alike = len(marks) == 1 and all(isinstance(value.known, _Mark) for value in values)
        return _Value(marks.pop() if alike else _Mark.UNKNOWN, (Either(tuple(v.prints for v in values)),))

    def _for(self, node: nodes.For, names: _Names) -> Steps:
        iterated = self._value(node.iter, names)
        named = isinstance(node.target, nodes.Name) and node.target.name in self._asked_for_role
        turn = not self._in_turn and (named or iterated.known in (_Mark.MESSAGES, _Mark.INDEXES))
        if iterated.truth is False and not turn:
            return self._block(node.else_, names)
        inner = dict(names)
        inner["loop"] = _Value(_Mark.LOOP) if turn else _UNKNOWN
        for target in node.target.find_all(nodes.Name):
            inner[target.name] = _UNKNOWN
        if isinstance(node.target, nodes.Name):
            inner[node.target.name] = self._item(iterated, turn=turn)
        if node.test is not None and self._value(node.test, inner).truth is False:
            return ()
        outside, self._in_turn = self._in_turn, self._in_turn or turn
        loop = Loop(self._block(node.body, inner), turn)
        self._in_turn = outside
        certain = turn or iterated.known is _Mark.CONTENT
        return (loop,) if certain else (Either(((loop,), self._block(node.else_, names))),)

    def _item(self, iterated: _Value, *, turn: bool) -> _Value:
        """What the loop's variable holds."""
        if turn:
            return _Value(_Mark.INDEX if iterated.known is _Mark.INDEXES else _Mark.MESSAGE)
        return _Value(_Mark.PART, (Content(),)) if iterated.known is _Mark.CONTENT else _UNKNOWN

    # Expressions

    def _value(self, node: nodes.Node, names: _Names) -> _Value:
        self._spend()
        match node:
            case nodes.TemplateData(data=text):
                return _Value(text, (Text(text),))
            case nodes.Const(value=value):
                return _Value(value, (Text(value),) if isinstance(value, str) else ())
            case nodes.Name(name=name):
                return names.get(name, _UNDEFINED)
            case nodes.Add():
                return self._joined([node.left, node.right], names)
            case nodes.Sub():
                left = self._value(node.left, names)
                return left if left.known is _Mark.COUNT else _UNKNOWN
            case nodes.Concat():
                return self._joined(node.nodes, names)
            case nodes.CondExpr():
                return self._choice(node, names)
            case nodes.And() | nodes.Or():
                return self._and_or(node, names)
            case nodes.Not():
                truth = self._value(node.node, names).truth
                return _Value(_Mark.UNKNOWN if truth is None else not truth)
            case nodes.Compare(ops=[nodes.Operand() as operand]):
                left, right = self._value(node.expr, names), self._value(operand.expr, names)
                return _Value(_compared(left.known, operand.op, right.known))
            case nodes.Test():
                return _Value(_tested(self._value(node.node, names).known, node.name))
            case nodes.Filter(node=nodes.Node() as inner, name="default" | "d"):
                return self._or_default(self._value(inner, names), node.args, names)
            case nodes.Filter(node=nodes.Node() as inner):
                return self._filtered(self._value(inner, names), node.name)
            case nodes.Getattr(node=inner, attr=key):
                return self._member(self._value(inner, names), key)
            case nodes.Getitem(node=inner, arg=nodes.Slice()):
                value = self._value(inner, names)
                return value if isinstance(value.known, _Mark) else _UNKNOWN
            case nodes.Getitem(node=inner):
                return self._member(self._value(inner, names), self._value(node.arg, names).known)
            case nodes.Call():
                return self._call(node, names)
            case nodes.List(items=items) | nodes.Tuple(items=items):
                constants = tuple(item.value for item in items if isinstance(item, nodes.Const))
                return _Value(constants) if items and len(constants) == len(items) else _UNKNOWN
        return _UNKNOWN

    def _joined(self, parts: list[nodes.Expr], names: _Names) -> _Value:
        prints: list[Step] = []
        known: object = _Mark.UNKNOWN
        for part in parts:
            value = self._value(part, names)
            self._spend(len(value.prints))
            prints += value.prints
            known = value.known if value.known in (_Mark.CONTENT, _Mark.COUNT) else known
        return _Value(known, tuple(prints))

    def _choice(self, node: nodes.CondExpr, names: _Names) -> _Value:
        truth = self._value(node.test, names).truth
        chosen: list[nodes.Expr | None] = [node.expr1] if truth is not False else []
        chosen += [node.expr2] if truth is not True else []
        values = [_UNDEFINED if branch is None else self._value(branch, names) for branch in chosen]
        return values[0] if len(values) == 1 else self._either(values)

    def _and_or(self, node: nodes.And | nodes.Or, names: _Names) -> _Value:
        left = self._value(node.left, names)
        if left.truth is isinstance(node, nodes.Or):
            return left
        right = self._value(node.right, names)
        if left.truth is not None:
            return right
        if right.truth is isinstance(node, nodes.Or):
            return _Value(right.truth, (Either((left.prints, right.prints)),))
        return self._either([left, right])

    def _or_default(self, value: _Value, arguments: list[nodes.Expr], names: _Names) -> _Value:
        """``value | default(fallback, falsy_too)``."""
        given = [self._value(argument, names) for argument in arguments]
        fallback = given[0] if given else _Value("")
        falsy_too = len(given) > 1 and given[1].truth is not False
        if value.known is _Mark.UNDEFINED or (falsy_too and value.truth is False):
            return fallback
        doubtful = value.known is _Mark.UNKNOWN or (falsy_too and value.truth is None)
        return self._either([value, fallback]) if doubtful else value

    def _filtered(self, value: _Value, name: str) -> _Value:
        if name in _TRIMS or (value.known is _Mark.MESSAGES and name in ("list", "reverse")):
            return value
        if name in ("length", "count"):
            return _Value(_Mark.COUNT) if value.known is _Mark.MESSAGES else _UNKNOWN
        if name in ("lower", "upper", "capitalize", "title") and isinstance(value.known, str):
            text = str(getattr(value.known, name)())
            return _Value(text, (Text(text),))
        return _CONTENT if value.known is _Mark.CONTENT else _UNKNOWN

    def _member(self, value: _Value, key: object) -> _Value:
        """``value.key`` or ``value[key]``."""
        if key is _Mark.UNKNOWN:
            return _CONTENT if value.known is _Mark.CONTENT else _UNKNOWN
        match value.known:
            case _Mark.MESSAGE:
                if key in ("role", "from"):
                    return _Value(self._role, (Text(self._role),))
                return _CONTENT if key in ("content", "value") else _UNDEFINED
            case _Mark.PART:
                if key == "type":
                    return _Value("text")
                return _CONTENT if key in ("text", "content") else _UNDEFINED
            case _Mark.CONTENT:
                return _CONTENT
            case _Mark.MESSAGES:
                return _Value(_Mark.MESSAGE) if key is _Mark.INDEX else _UNKNOWN
            case _Mark.LOOP:
                known = {"last": self._last, "index0": _Mark.INDEX}.get(str(key), _Mark.UNKNOWN)
                return _Value(known)
            case _Mark.UNDEFINED:
                return _UNDEFINED
        return _UNKNOWN

    def _call(self, node: nodes.Call, names: _Names) -> _Value:
        match node.node:
            case nodes.Getattr(node=inner, attr=method):
                return self._method(self._value(inner, names), method, node, names)
            case nodes.Name(name="raise_exception"):
                return _Value(prints=(Fail(),))
            case nodes.Name(name="namespace" | "dict"):
                return _UNKNOWN
            case nodes.Name(name="range"):
                bounds = [self._value(argument, names).known for argument in node.args]
                return _Value(_Mark.INDEXES) if _Mark.COUNT in bounds else _UNKNOWN
            case nodes.Name(name=name) if name in self._macros:
                return self._macro(self._macros[name], node, names)
        given = [self._value(argument, names).known for argument in node.args]
        return _CONTENT if _Mark.CONTENT in given or _Mark.MESSAGE in given else _UNKNOWN

    def _method(self, value: _Value, method: str, node: nodes.Call, names: _Names) -> _Value:
        if value.known in (_Mark.MESSAGE, _Mark.PART) and method == "get":
            arguments = [self._value(argument, names) for argument in node.args]
            found = self._member(value, arguments[0].known) if arguments else _UNKNOWN
            fallback = arguments[1] if len(arguments) > 1 else _Value(None)
            return fallback if found.known is _Mark.UNDEFINED else found
        if method in _TRIMS:
            return value
        if method in ("lower", "upper", "title"):
            return self._filtered(value, method)
        if value.known is _Mark.CONTENT and method not in _ASKS:
            return _CONTENT
        if method == "join" and any(self._value(a, names).known is _Mark.CONTENT for a in node.args):
            return _CONTENT
        return _UNKNOWN

    def _macro(self, macro: nodes.Macro, node: nodes.Call, names: _Names) -> _Value:
        """What a macro prints with these arguments; a macro inside itself prints nothing.

        One that is given the content and collects it where it cannot be followed still prints it.
        """
        if macro.name in self._open:
            return _UNKNOWN
        self._spend(len(macro.args))
        inner = {**_START, **{argument.name: _UNDEFINED for argument in macro.args}}
        defaults = macro.args[len(macro.args) - len(macro.defaults) :]
        for argument, default in zip(defaults, macro.defaults, strict=True):
            inner[argument.name] = self._value(default, inner)
        for argument, value in zip(macro.args, node.args, strict=False):
            inner[argument.name] = self._value(value, names)
        for keyword in node.kwargs:
            inner[keyword.key] = self._value(keyword.value, names)
        given = any(inner[argument.name].known is _Mark.CONTENT for argument in macro.args)
        self._open.append(macro.name)
        prints = self._block(macro.body, inner)
        self._open.pop()
        if given and not self._holds_content(prints):
            prints = (*prints, Content())
        return _Value(prints=prints)

    def _holds_content(self, steps: Steps) -> bool:
        self._spend(len(steps))
        for step in steps:
            inner = step.branches if isinstance(step, Either) else ()
            inner = (step.steps,) if isinstance(step, Loop) else inner
            if isinstance(step, Content) or any(map(self._holds_content, inner)):
                return True
        return False


def _compared(left: object, operator: str, right: object) -> object:
    """The outcome of a comparison, or UNKNOWN."""
    if operator in ("ne", "notin"):
        outcome = _compared(left, "eq" if operator == "ne" else "in", right)
        return not outcome if isinstance(outcome, bool) else outcome
    if operator == "eq":
        return _equal(left, right)
    if operator == "in":
        return _contains(right, left)
    return _Mark.UNKNOWN


def _equal(left: object, right: object) -> object:
    if _Mark.UNKNOWN in (left, right):
        return _Mark.UNKNOWN
    if _Mark.CONTENT in (left, right):
        return False if "" in (left, right) else _Mark.UNKNOWN
    return left == right


def _contains(container: object, item: object) -> object:
    if isinstance(item, _Mark):
        return _Mark.UNKNOWN
    match container:
        case _Mark.MESSAGE:
            return item in ("role", "content")
        case _Mark.PART:
            return item in ("type", "text")
        case _Mark.UNDEFINED:
            return False
        case tuple():
            return item in container
        case str() if isinstance(item, str):
            return item in container
    return _Mark.UNKNOWN


def _tested(value: object, test: str) -> object:
    """The outcome of ``value is test``, or UNKNOWN."""
    if value is _Mark.UNKNOWN:
        return _Mark.UNKNOWN
    text = value is _Mark.CONTENT or isinstance(value, str)
    known: dict[str, object] = {
        "defined": value is not _Mark.UNDEFINED,
        "undefined": value is _Mark.UNDEFINED,
        "none": value is None,
        "string": text,
        "mapping": value in (_Mark.MESSAGE, _Mark.PART),
        "iterable": text or isinstance(value, tuple) or value is _Mark.MESSAGES,
        "sequence": text or isinstance(value, tuple) or value is _Mark.MESSAGES,
        "true": value is True,
        "false": value is False,
        "boolean": isinstance(value, bool),
    }
    return known.get(test, _Mark.UNKNOWN)
