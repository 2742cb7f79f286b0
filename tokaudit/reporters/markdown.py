"""Markdown for a comment, a job summary or a wiki page, in the dialect of GitHub and GitLab.

Texts are inert twice: nothing in them acts on a log, and nothing in them is markup. Every character that
Markdown or HTML knows is an entity, which no dialect takes for structure, and what sites make links of in
plain text (addresses, mentions, numbers of issues) is broken by an escape. What stands in quotes or in
backticks, token texts and commands, is set as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tokaudit.errors import Unreadable
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report, Suppressed, Verdict
from tokaudit.reporters import View
from tokaudit.reporters._texts import plain_text, shortened, spans
from tokaudit.reporters.terminal import LONGEST_PLACE, known_facts, outcome, totals, unused_words
from tokaudit.text import counted

# A check mark, a cross and a question mark, in ASCII.
_VERDICTS = {
    Verdict.PASS: "&#9989; pass",
    Verdict.FINDINGS: "&#10060; fail",
    Verdict.NO_VERDICT: "&#10068; no verdict",
}
_CUT = "The report is longer than a summary may be: the rest is in the log.\n"
# An underscore within a word is no markup.
_MARKUP = re.compile(r"[^\w\s.,;:?!%()/+=^'\"-]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", re.ASCII)
# https://, www.; mentions, labels, issues, merge requests, milestones; emoji
_LINKED = re.compile(
    r"(?<=:)/(?=/)|(?<=\bwww)\.|[@#!~&$](?=\w)|%(?=\d)|(?<=\bGH)-(?=\d)|:(?=[\w+-]+:)", re.IGNORECASE
)


def render(reports: Sequence[Report], view: View) -> str:
    return "\n".join(_blocks(reports, view))


def summary(reports: Sequence[Report], view: View, most_bytes: int) -> str:
    """The same in at most so many bytes of UTF-8: what does not fit is left out from the end."""
    kept: list[str] = []
    room = most_bytes - len(_CUT)
    for block in _blocks(reports, view):
        room -= len(block.encode()) + 1
        if room < 0:
            return "\n".join([*kept, _CUT]) if len(_CUT) <= most_bytes else ""
        kept.append(block)
    return "\n".join(kept)


def _blocks(reports: Sequence[Report], view: View) -> Iterator[str]:
    """Pieces that are whole on their own, each ending in a line break."""
    if len(reports) > 1:
        yield _overview(reports, view)
    for report in reports:
        yield f"## {_VERDICTS[report.verdict(view.fail_on)]}: {_code(report.target, view)}\n"
        yield f"{_text(totals(report), view)}\n"
        yield from (_unreadable(part, report, view) for part in report.unreadable)
        yield from (_full(finding, view) for finding in report.findings if not _is_note(finding))
        notes = [_item(finding, view) for finding in report.findings if _is_note(finding)]
        yield from _folded("note", notes)
        if not view.quiet:
            skipped = [(f"{skip.rule.code} {skip.rule.slug}", skip.reason) for skip in report.skipped]
            yield from _folded("skipped rule", [_pair(*pair, view) for pair in skipped])
            suppressed = [_suppressed(aside, view) for aside in report.suppressed]
            yield from _folded("suppressed finding", suppressed)
            unused = [_pair(entry.by, unused_words(entry), view) for entry in report.unused]
            yield from _folded("unused entry", unused, plural="unused entries")
            yield from _folded("fact", [_pair(*fact, view) for fact in known_facts(report.summary)])


def _overview(reports: Sequence[Report], view: View) -> str:
    rows = [
        (
            _code(report.target, view),
            _VERDICTS[report.verdict(view.fail_on)],
            _text(outcome(report), view),
        )
        for report in reports
    ]
    return _table(("model", "verdict", "findings"), rows)


def _is_note(finding: Finding) -> bool:
    return finding.severity is Severity.NOTE


def _full(finding: Finding, view: View) -> str:
    claims = [
        (_code(shortened(str(claim.at), LONGEST_PLACE), view), _text(claim.says, view))
        for claim in finding.claims
    ]
    return "\n".join(
        (
            f"### {finding.severity.word} {finding.rule} {finding.slug}\n",
            f"**{_text(finding.message, view)}**\n",
            _table(("where", "what stands there"), claims),
            f"**Why:** {_text(finding.why, view)}\n",
            f"**Fix:** {_text(finding.fix, view)}\n",
        )
    )


def _unreadable(part: Unreadable, report: Report, view: View) -> str:
    lines = [
        f"### unreadable {_code(part.file or report.target, view)}\n",
        f"**{_text(f'{part.code}: {part.message}', view)}**\n",
    ]
    if part.hint:
        lines.append(f"**Fix:** {_text(part.hint, view)}\n")
    return "\n".join(lines)


def _item(finding: Finding, view: View) -> str:
    return _pair(f"{finding.rule} {finding.slug}", finding.message, view)


def _suppressed(suppressed: Suppressed, view: View) -> str:
    return f"{_item(suppressed.finding, view)} ({_text(f'{suppressed.by}: {suppressed.reason}', view)})"


def _pair(label: str, words: str, view: View) -> str:
    return f"- {_text(label, view)}: {_text(words, view)}"


def _folded(noun: str, items: Sequence[str], plural: str = "") -> Iterator[str]:
    if items:
        title = counted(len(items), noun, plural)
        yield "\n".join((f"<details><summary>{title}</summary>\n", *items, "\n</details>\n"))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _text(text: str, view: View) -> str:
    """A sentence: what stands in quotes or backticks is set as code, the rest as text."""
    pieces = spans(plain_text(text, view))
    return "".join(_as_code(piece) if is_code else _prose(piece) for piece, is_code in pieces)


def _code(text: str, view: View) -> str:
    return _as_code(plain_text(text, view))


def _as_code(text: str) -> str:
    """Sites make no links of what is set as code. ``<code>`` and not backticks, which end at a backtick."""
    return f"<code>{_entities(text)}</code>"


def _prose(text: str) -> str:
    return _entities(_LINKED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _entities(text: str) -> str:
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};" if found[0].isascii() else found[0], text)
