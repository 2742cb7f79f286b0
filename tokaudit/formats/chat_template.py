"""Chat templates: lexed with Jinja2's lexer, never parsed into code and never rendered.

The question is what a template can print: which control tokens, which role variables, and what ends an
assistant turn. The token stream is enough for that: text outside of tags is printed, and so are the strings
of ``{{ ... }}`` and of the values that ``{% set %}`` gives, except strings that are only compared, used as
keys, or handed to a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokaudit.contract import ChatTemplate, Role
from tokaudit.errors import FactMissing
from tokaudit.findings import Location

# "<|im_end|>", DeepSeek's full-width form, and the plain names that families use for their markers.
CONTROL = re.compile(
    r"<\|[^|<>\s]{1,60}\|>"
    r"|<\uff5c[^\uff5c<>\s]{1,60}\uff5c>"
    r"|</?(?:s|bos|eos|start_of_turn|end_of_turn|start_of_role|end_of_role|end_of_text)>"
)
_ENDS = re.compile(r"(?i)(?:^|[^a-z])(?:end|eot|eos|eom|eod|eoa|return|call|stop)|/s>|sep>")
_NO_END = re.compile(r"(?i)header|of_role|image|img|audio|video|vision|think|tool_?call_?begin|^<\|start")

ROLE_VARIABLES = frozenset(f"{role.value}_token" for role in Role)


@dataclass(frozen=True, slots=True)
class _Print:
    """One thing a template prints, in order: a literal text, a role variable, or a message's content."""

    literal: str = ""
    variable: str = ""
    content: bool = False


def lex(source: str, name: str, at: Location, known: Iterable[str]) -> ChatTemplate:
    """Take the facts out of a template. ``known`` are texts of added tokens, which count as control tokens.

    Raises FactMissing where Jinja2 cannot lex it.
    """
    prints = tuple(_prints(source, at))
    known = frozenset(text for text in known if len(text) > 1)
    pattern = _control_pattern(known)
    control = dict.fromkeys(found for step in prints for found in pattern.findall(step.literal))
    return ChatTemplate(
        name=name,
        at=at,
        literals=tuple(dict.fromkeys(step.literal for step in prints if step.literal)),
        control=tuple(control),
        prints=tuple(dict.fromkeys(step.variable for step in prints if step.variable)),
        turn_ends=_turn_ends(prints, pattern),
    )


def _control_pattern(known: frozenset[str]) -> re.Pattern[str]:
    """Longest token first, as the library's own matcher prefers it."""
    words = "|".join(re.escape(text) for text in sorted(known, key=len, reverse=True))
    return re.compile(f"{words}|{CONTROL.pattern}" if words else CONTROL.pattern)


def _turn_ends(prints: tuple[_Print, ...], pattern: re.Pattern[str]) -> tuple[str, ...]:
    """After each print of a message's content: the first marker that reads like an end, else the first."""
    found: dict[str, None] = {}
    for index, step in enumerate(prints):
        if not step.content:
            continue
        following: list[str] = []
        for later in prints[index + 1 :]:
            if later.content and following:
                break
            following += [later.variable] if later.variable else pattern.findall(later.literal)
            if any(_reads_like_an_end(text) for text in following):
                break
        ends = [text for text in following if _reads_like_an_end(text)] or following[:1]
        found.update(dict.fromkeys(ends[:1]))
    return tuple(text for text in found if text not in ROLE_VARIABLES or text == "eos_token")


def _reads_like_an_end(text: str) -> bool:
    return text == "eos_token" or bool(_ENDS.search(text) and not _NO_END.search(text))


def _prints(source: str, at: Location) -> Iterator[_Print]:
    from jinja2 import Environment, TemplateSyntaxError

    try:
        stream = list(Environment().lex(source))
    except TemplateSyntaxError as error:
        raise FactMissing(f"{at} is no Jinja template: {error.message} (line {error.lineno})") from None
    inside: list[tuple[str, str]] | None = None
    for _, kind, value in stream:
        if kind in ("variable_begin", "block_begin"):
            inside = []
        elif kind in ("variable_end", "block_end"):
            yield from _expression_prints(inside or [], block=kind == "block_end")
            inside = None
        elif inside is not None:
            if kind != "whitespace":
                inside.append((kind, value))
        elif kind == "data":
            yield _Print(literal=value)


def _expression_prints(tokens: list[tuple[str, str]], *, block: bool) -> Iterator[_Print]:
    """What ``{{ tokens }}`` prints; of blocks only the value of ``{% set name = value %}`` counts."""
    if block:
        values = [value for _, value in tokens]
        if not values or values[0] != "set" or "=" not in values:
            return
        tokens = tokens[values.index("=") + 1 :]
    calls: list[bool] = []  # for each open bracket: whether it holds a call's arguments
    for index, (kind, value) in enumerate(tokens):
        before = tokens[index - 1] if index else ("", "")
        after = tokens[index + 1] if index + 1 < len(tokens) else ("", "")
        if kind == "operator" and value in "([{":
            calls.append(value == "(" and (before[0] == "name" or before[1] in (")", "]")))
        elif kind == "operator" and value in ")]}":
            if calls:
                calls.pop()
        elif kind == "string":
            text = _unquoted(value)
            if before[1] == "[" and after[1] == "]":
                if text == "content":
                    yield _Print(content=True)
            elif not any(calls) and not _compared(before, after):
                yield _Print(literal=text)
        elif kind == "name" and value in ROLE_VARIABLES:
            if not any(calls):
                yield _Print(variable=value)
        elif kind == "name" and "content" in value:
            yield _Print(content=True)


def _compared(before: tuple[str, str], after: tuple[str, str]) -> bool:
    operators = {"==", "!=", "in", "<", ">", "<=", ">="}
    return before[1] in operators or after[1] in operators


def _unquoted(literal: str) -> str:
    """The text of a Jinja string token, escapes as Jinja reads them."""
    body = literal[1:-1]
    if "\\" not in body:
        return body
    try:
        return body.encode("ascii", "backslashreplace").decode("unicode-escape")
    except UnicodeDecodeError:
        return body
