"""The result of an audit: what was found, what was checked, what was skipped and why."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokaudit.contract import Role, TableKind, Token, Values
from tokaudit.errors import Unreadable
from tokaudit.findings import Finding, Severity

if TYPE_CHECKING:
    import datetime

    from tokaudit.contract.data import TokenData


@dataclass(frozen=True, slots=True)
class RuleRef:
    """A rule by its stable names, for reporters that need no rule class."""

    code: str
    slug: str
    area: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not be decided, wholly or in part, and why."""

    rule: RuleRef
    reason: str


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A finding that was set aside: ``by`` names the file that says so, ``reason`` is what it gives."""

    finding: Finding
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnusedEntry:
    """An entry of the settings or of a baseline, in the file ``by``, that sets no finding aside.

    ``expired`` is the last day on which it did; None for one that no finding matches.
    """

    by: str
    rule: str
    slug: str
    subject: str
    reason: str
    expired: datetime.date | None = None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table of token rows at a glance. ``rows`` is None where a packed table does not tell."""

    name: str
    rows: int | None
    hidden: int | None
    dtype: str
    file: str
    nbytes: int = 0
    kind: TableKind = TableKind.INPUT


@dataclass(frozen=True, slots=True)
class Tokens:
    """Every token of a model by its declared id, for reports that show them all (``Options.tokens``).

    ``added`` are the ids of added tokens that are not in the base vocabulary, ``reserved`` those of tokens
    whose text says that they keep a place and that nothing refers to, ``special`` those of others that a file
    marks as special or gives a role. ``referred_by`` says what names an id outside the vocabulary.
    """

    texts: Mapping[int, str]
    added: frozenset[int]
    special: frozenset[int]
    reserved: frozenset[int]
    referred_by: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """An adapter and its base at a glance.

    ``method`` is PEFT's ("LORA"). ``base`` is the directory of the base, None where it was not found;
    ``named_by`` says by whom it is named, "--base" or where in the adapter's files. ``architecture`` and
    ``rows`` are the base's. ``tables`` are what the adapter holds of its tables: the module's name, what
    of it, and its rows, where a tensor tells.
    """

    method: str
    base: str | None
    named_by: str | None
    architecture: str | None
    rows: int | None
    tables: tuple[tuple[str, str, int | None], ...]


@dataclass(frozen=True, slots=True)
class IdCount:
    """How often an id occurs; ``content`` is the text of its token, None where there is none."""

    id: int
    content: str | None
    count: int


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Token data at a glance: the ids of roles and the most ``frequent`` ones, and how often they occur.

    Of ``tokens`` tokens of the tokenizer ``visited`` occur.
    """

    data: TokenData
    roles: tuple[tuple[Role, IdCount], ...]
    frequent: tuple[IdCount, ...]
    visited: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts at a glance; None (or empty) where the files do not say.

    ``tied`` is how the newest loader reads the flags; of a live module, whether the two are one in memory,
    and ``parameters`` counts its parameters as they are, ``parameters_untied`` with a table for each side.
    ``base_tokens`` and ``added_tokens`` count tokens, ``required_rows`` is the largest id + 1. ``input_rows``
    counts those of the input table and of tables that continue it, ``tables`` are all that were found.
    ``values`` is what `--deep` read of the tables, ``tokens`` are there where they were asked for.
    ``adapter`` is there for an adapter, ``data`` where token data was given. ``absent`` are the sides of a
    model that its directory does not hold: "tokenizer", "weights", "config.json".
    """

    architecture: str | None = None
    model_type: str | None = None
    tables_found_by: str | None = None
    tokenizer_kind: str | None = None
    base_tokens: int | None = None
    added_tokens: int | None = None
    required_rows: int | None = None
    vocab_size: int | None = None
    input: TableFacts | None = None
    output: TableFacts | None = None
    tied: bool | None = None
    weights_bytes: int | None = None
    weights_files: int | None = None
    parameters: int | None = None
    parameters_untied: int | None = None
    roles: tuple[tuple[Role, Token], ...] = ()
    stop_ids: tuple[tuple[int, str | None], ...] = ()
    values: Values | None = None
    input_rows: int | None = None
    tables: tuple[TableFacts, ...] = ()
    tokens: Tokens | None = None
    adapter: AdapterFacts | None = None
    data: DataFacts | None = None
    absent: tuple[str, ...] = ()


class Verdict(enum.Enum):
    """``PASS`` no finding at or above the threshold; ``FINDINGS`` some; ``NO_VERDICT`` unreadable parts.

    The mildest first.
    """

    PASS = "pass"
    FINDINGS = "findings"
    NO_VERDICT = "no-verdict"


@dataclass(frozen=True, slots=True)
class Report:
    """What an audit of one target says. Findings are ordered by severity, the worst first, then by code.

    ``checked`` are the rules that were decided, ``skipped`` those that were not; a rule that was decided in
    part stands in both. ``suppressed`` were found and set aside, ``unused`` would set aside what was not
    found. ``unreadable`` are the parts of the input that could not be read: with any there is no verdict.
    ``settings`` is the file that the settings of the audit come from ("" for none).
    """

    target: str
    summary: Summary
    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...]
    checked: tuple[RuleRef, ...]
    skipped: tuple[Skipped, ...]
    unreadable: tuple[Unreadable, ...]
    unused: tuple[UnusedEntry, ...] = ()
    settings: str = ""

    @property
    def worst(self) -> Severity | None:
        return max((finding.severity for finding in self.findings), default=None)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def verdict(self, fail_on: Severity = Severity.ERROR) -> Verdict:
        if self.unreadable:
            return Verdict.NO_VERDICT
        if any(finding.severity >= fail_on for finding in self.findings):
            return Verdict.FINDINGS
        return Verdict.PASS


def worst_verdict(reports: Iterable[Report], fail_on: Severity) -> Verdict:
    """That of several reports together."""
    mildest_first = list(Verdict)
    return max((report.verdict(fail_on) for report in reports), key=mildest_first.index)
