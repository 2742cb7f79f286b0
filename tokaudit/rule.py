"""The base class of all rules, and how they are found.

A rule is one file under ``tokaudit/rules/``: a class whose docstring is its documentation page and whose
``check`` yields findings. Rules are discovered, never listed.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from tokaudit.errors import UsageError
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.text import closest, shortened

if TYPE_CHECKING:
    from tokaudit.contract import Contract

LONGEST_LINE = 1000  # characters; rules list a few of many, and then need some 300
MOST_CLAIMS = 20


class Rule:
    """One thing that can be wrong.

    The docstring holds a one-line summary and three sections: ``## What it finds``,
    ``## Why it matters`` and ``## How to fix it``. ``check`` never tests whether a fact is there: it asks
    for it, and the ``FactMissing`` that a missing one raises becomes "skipped: reason".

    A ``live`` rule is about what is in memory (a module, a batch, a run): no file states its facts, and the
    audit of a directory applies it only where it is named.
    """

    code: ClassVar[str]
    severity: ClassVar[Severity]
    slug: ClassVar[str]
    live: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not re.fullmatch(r"TA\d{3}", getattr(cls, "code", "")):
            raise TypeError(f"{cls.__name__}: `code` must be TA and three digits")
        cls.slug = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def check(self, contract: Contract) -> Iterator[Finding]:
        """Yield a finding for each breach. Raises FactMissing when the files do not say enough."""
        raise NotImplementedError

    def finding(
        self,
        message: str,
        claims: Iterable[Claim],
        *,
        why: str,
        fix: str,
        severity: Severity | None = None,
        subject: str = "",
    ) -> Finding:
        """A finding of this rule; ``severity`` defaults to the rule's own.

        Its size is bounded, whatever the names in a model: lines are cut in the middle, claims at the end.
        """
        return Finding(
            rule=self.code,
            slug=self.slug,
            severity=self.severity if severity is None else severity,
            message=shortened(message, LONGEST_LINE),
            claims=tuple(
                Claim(claim.at, shortened(claim.says, LONGEST_LINE)) for claim in islice(claims, MOST_CLAIMS)
            ),
            why=shortened(why, LONGEST_LINE),
            fix=shortened(fix, LONGEST_LINE),
            subject=shortened(subject, LONGEST_LINE),
        )

    @classmethod
    def summary(cls) -> str:
        """The first line of the docstring: what the rule is about."""
        return (inspect.getdoc(cls) or cls.slug).splitlines()[0]

    @classmethod
    def area(cls) -> str:
        """The folder the rule lives in: rows, tie, special, vocabulary, storage ..."""
        return cls.__module__.split(".")[-2]


@cache
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule, by code."""
    package = importlib.import_module("tokaudit.rules")
    found: list[type[Rule]] = []
    for folder in pkgutil.iter_modules(package.__path__, "tokaudit.rules."):
        if not folder.ispkg:
            continue
        for module in pkgutil.iter_modules(importlib.import_module(folder.name).__path__, folder.name + "."):
            members = vars(importlib.import_module(module.name)).values()
            found += [
                member
                for member in members
                if isinstance(member, type)
                and issubclass(member, Rule)
                and member is not Rule
                and member.__module__ == module.name
            ]
    return tuple(sorted(found, key=lambda rule: rule.code))


def find_rule(name: str) -> type[Rule] | None:
    """The rule with this code or slug, in any case."""
    wanted = name.strip().lower()
    return next((rule for rule in all_rules() if wanted in (rule.code.lower(), rule.slug)), None)


def unknown_rule(name: str) -> UsageError:
    """The error about a name that no rule has. Codes that look alike have nothing to do with each other."""
    rules = all_rules()
    digits = "".join(filter(str.isdecimal, name))
    guess = next((rule.code for rule in rules if rule.code[2:] == digits), None)
    guess = guess or closest(name.lower(), [rule.slug for rule in rules])
    hint = f"did you mean {guess}?" if guess else "`tokaudit rules` lists them"
    return UsageError(f"no rule is called {name!r}", hint=hint)
