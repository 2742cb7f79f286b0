"""Chat templates: which control tokens and role variables they print, and what ends an assistant's turn.

A template is never rendered; ``template_steps`` reads what it prints off its syntax tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokaudit.contract import ChatTemplate
from tokaudit.contract.special import CONTROL
from tokaudit.findings import Location
from tokaudit.text import pointed

if TYPE_CHECKING:
    from jinja2 import nodes

    from tokaudit.formats.template_steps import Steps

# gpt-oss's format (github.com/openai/harmony): <|end|> ends a message and the turn goes on; only these two,
# which no template needs to print, end a turn.
HARMONY = frozenset({"<|start|>", "<|message|>", "<|end|>"})
HARMONY_TURN_ENDS = ("<|return|>", "<|call|>")
MOST_CHARACTERS = 250_000  # the longest templates in use have some 50,000
LONGEST_MARKER = 100
MOST_MARKERS = 200  # a template prints some ten
MOST_VISITS = 100_000
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # in the text of a file: what ``decoded`` makes of other bytes

Stated = tuple[str, str, Location]  # (name, text, where it stands)


def decoded(data: bytes) -> str:
    """The text of a template's file; a byte that is not UTF-8 becomes a lone surrogate."""
    return data.decode("utf-8", "surrogateescape")


def read_all(stated: Iterable[Stated], known: Set[str]) -> tuple[ChatTemplate, ...]:
    """Take the facts out of each template; together they may have ``MOST_CHARACTERS``.

    ``known`` are texts of added tokens, which count as control tokens. A template about which nothing can be
    said (not UTF-8, no Jinja, too large, nested too deeply) has a ``problem`` and no facts.
    """
    found: list[ChatTemplate] = []
    left = MOST_CHARACTERS
    for name, source, at in stated:
        left -= len(source)
        if left < 0:
            problem = f"the chat templates together have more than {MOST_CHARACTERS:,} characters"
            found.append(ChatTemplate(name, at, problem=problem, text=source))
        else:
            found.append(replace(read(source, name, at, known), text=source))
    return tuple(found)


def read(source: str, name: str, at: Location, known: Set[str]) -> ChatTemplate:
    """Take the facts out of one template, as ``read_all`` does."""
    from tokaudit.formats import template_steps as steps  # Jinja2 is imported only where there is a template

    foreign = None if at.pointer else _NOT_UTF8.search(source)
    if foreign:
        line = source.count("\n", 0, foreign.start()) + 1
        words = f"expected UTF-8, found the byte 0x{ord(foreign[0]) - 0xDC00:02x} in line {line}"
        return ChatTemplate(name, at, problem=f"{pointed(at.file)}: {words}", broken="encoding")
    try:
        tree = steps.parse(source)
        prints = tuple(steps.printed(tree))
    except steps.TemplateProblem as problem:
        reason = f"the {pointed(name)} chat template cannot be followed: {problem}"
        broken = isinstance(problem, steps.BrokenTemplate)
        return ChatTemplate(name, at, problem=reason, broken="syntax" if broken else "")
    literals = tuple(dict.fromkeys(step.text for step in prints if isinstance(step, steps.Text)))
    markers = _Markers("\0".join(literals), known)
    control = tuple(dict.fromkeys(found for text in literals for found in markers.within(text)))
    ends = _turn_ends(tree, markers)
    return ChatTemplate(
        name,
        at,
        control=control,
        prints=tuple(dict.fromkeys(step.name for step in prints if isinstance(step, steps.Variable))),
        turn_ends=HARMONY_TURN_ENDS if ends and set(control) >= HARMONY else ends,
    )


class _Markers:
    """Finds the control tokens in what a template prints, ``text`` being all of it.

    Added tokens of one character or of blanks are text that happens to be one token, and no markers.
    """

    def __init__(self, text: str, known: Set[str]) -> None:
        lengths: dict[str, set[int]] = {}
        for token in known:
            if len(token) <= LONGEST_MARKER and len(token.strip()) > 1:
                lengths.setdefault(token[:2], set()).add(len(token))
        present = {
            text[start : start + length]
            for start in range(len(text))
            for length in lengths.get(text[start : start + 2], ())
        } & known
        # Longest first, as the library's own matcher prefers them.
        words = [re.escape(token) for token in sorted(present, key=len, reverse=True)[:MOST_MARKERS]]
        self._pattern = re.compile("|".join([*words, CONTROL.pattern]))
        self._found: dict[str, tuple[str, ...]] = {}

    def within(self, text: str) -> tuple[str, ...]:
        """The different markers in a text, in order."""
        if text not in self._found:
            self._found[text] = tuple(dict.fromkeys(self._pattern.findall(text)))
        return self._found[text]

    def in_front(self, text: str) -> tuple[tuple[str, ...], bool]:
        """The markers that a text begins with, blanks aside, and whether it goes on with something else."""
        found: dict[str, None] = {}
        at = 0
        for match in self._pattern.finditer(text):
            if text[at : match.start()].strip():
                return tuple(found), True
            found[match[0]] = None
            at = match.end()
        return tuple(found), bool(text[at:].strip())


def _turn_ends(tree: nodes.Template, markers: _Markers) -> tuple[str, ...]:
    """What follows an assistant's text: as the last message, else (where nothing does) in between.

    Templates that leave the last message open, for the model to continue it, close only those before it.
    Empty where nothing follows, or where the template is too much to follow.
    """
    from tokaudit.formats import template_steps as steps

    with suppress(steps.TemplateProblem, RecursionError):
        for last in (True, False):
            ends = _Ends(markers).after_content(steps.conversation(tree, last=last))
            if ends:
                return ends
    return ()


@dataclass(frozen=True, slots=True)
class _Path:
    """Where a conversation can be: before the message's text, and (``after``) past it.

    ``after`` holds what may have been printed since the text, None where it was not printed yet. Once
    anything but markers and blanks was printed (``left``), the turn is over: what follows a conversation that
    is quoted in a prompt, as Llama Guard 2 does, ends no answer.
    """

    before: bool
    after: tuple[str, ...] | None
    left: bool = False

    def print(self, markers: tuple[str, ...], *, more: bool = False) -> _Path:
        if self.after is None or self.left:
            return self
        return _Path(self.before, tuple(dict.fromkeys(self.after + markers)), more)

    def join(self, other: _Path) -> _Path:
        before = self.before or other.before
        if self.after is None or other.after is None:
            known = other if self.after is None else self
            return _Path(before, known.after, known.left)
        after = tuple(dict.fromkeys(self.after + other.after))
        return _Path(before, after, self.left and other.left)


_NOWHERE = _Path(False, None)
_PRINTED = _Path(False, ())


class _Ends:
    """Follows the steps of a template to what is printed after an assistant's text."""

    def __init__(self, markers: _Markers) -> None:
        self._markers = markers
        self._in_turns: dict[str, None] = {}
        self._visits = 0

    def after_content(self, steps: Steps) -> tuple[str, ...]:
        """The markers and role variables within the turn; where it has none, those after the last turn."""
        path, _ = self._follow(steps, _Path(True, None))
        return tuple(self._in_turns) or path.after or ()

    def _follow(self, steps: Steps, path: _Path) -> tuple[_Path, _Path]:
        """The path after the steps, and the one that leaves the loop around them."""
        from tokaudit.formats.template_steps import Content, Either, Fail, Leave, Loop, TemplateProblem, Text

        left = _NOWHERE
        for step in steps:
            self._visits += 1 + len(path.after or ())
            if self._visits > MOST_VISITS:
                raise TemplateProblem("there is too much in it to follow")
            match step:
                case Text(text=text):
                    if path.after is not None:
                        markers, more = self._markers.in_front(text)
                        path = path.print(markers, more=more)
                case Content():
                    path = _PRINTED if path != _NOWHERE else path
                case Fail():
                    path = _NOWHERE
                case Leave():
                    left, path = left.join(path), _NOWHERE
                case Either(branches=branches):
                    joined = _NOWHERE
                    for branch in branches:
                        there, gone = self._follow(branch, path)
                        joined, left = joined.join(there), left.join(gone)
                    path = joined
                case Loop(steps=body, turn=turn):
                    path = self._loop(body, path, turn=turn)
                case _:
                    path = path.print((step.name,)) if step.name != "bos_token" else path
        return path, left

    def _loop(self, body: Steps, path: _Path, *, turn: bool) -> _Path:
        there, gone = self._follow(body, _Path(True, None) if turn else path)
        past = there.join(gone)
        if not turn:
            return past
        self._in_turns.update(dict.fromkeys(past.after or ()))
        return path if past.after is None else past
