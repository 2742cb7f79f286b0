"""A diff as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Lock, TableKind
from tokaudit.diffs.comparison import TITLES, Comparison
from tokaudit.diffs.difference import Difference
from tokaudit.diffs.run import Answer, Diff
from tokaudit.diffs.tables import describe, place
from tokaudit.diffs.uses import Use
from tokaudit.reporters import View
from tokaudit.reporters._page import Page
from tokaudit.reporters._texts import shortened
from tokaudit.text import counted, shown

FACT_COLUMN = 21
MOST_LINES = 12  # of one section
LONGEST_PLACE = 60  # characters that say what differs
LONGEST_PAIR = 30  # characters of both sides on one line
MOST_PROBES = 5
UNKNOWN = "unknown"
GROUPS = ("pipeline", "templates", "special", "tables")
ANSWERS = {
    Use.DROP_IN: ("{right} can take the place of {left}", "{right} is no drop-in for {left}"),
    Use.SPECULATIVE: ("{right} can draft for {left}", "{right} cannot draft for {left} as it is"),
    Use.MERGE: ("{left} and {right} can be merged", "{left} and {right} cannot be merged as they are"),
}


def as_text(diff: Diff, view: View) -> str:
    """Both sides at a glance, what differs, and the verdict with its reasons."""
    page = Page(view)
    found = diff.comparison
    page.put((found.left.name, "bold"), (" -> ", "dim"), (found.right.name, "bold"))
    page.blank()
    _facts(page, found)
    page.blank()
    if not _changes(page, found):
        page.put(("  the same", "dim"), text=", ".join(_compared(found)), column=FACT_COLUMN)
    _unreadable(page, diff)
    page.blank()
    _verdict(page, diff)
    return page.render()


def changes_as_text(found: Comparison, view: View) -> str:
    """What differs between a lock and the files that it should be of."""
    page = Page(view)
    page.put((found.left.name, "bold"), (" is not up to date with ", ""), (found.right.name, "bold"))
    page.blank()
    if not _changes(page, found):
        page.put(text="  no layer differs, but this is not what `tokaudit lock` writes now", hang=2)
    page.blank()
    page.put(
        ("  fix  ", "green"), text="review this, then make the lock again: `tokaudit lock`, without --check"
    )
    return page.render()


def _facts(page: Page, found: Comparison) -> None:
    for (label, left), (_, right) in zip(_known(found.left.lock), _known(found.right.lock), strict=True):
        text = left if left == right else f"{left} -> {right}"
        look = "dim" if text == UNKNOWN else ""
        page.put((f"  {label}", "dim"), text=text, style=look, column=FACT_COLUMN)


def _known(lock: Lock) -> Iterator[tuple[str, str]]:
    model = (lock.parts or {}).get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    tokens = None if lock.mapping is None else counted(lock.mapping.count, "token")
    yield "tokenizer", ", ".join(str(word) for word in (kind, tokens) if word) or UNKNOWN
    yield "required rows", UNKNOWN if lock.mapping is None else str(lock.mapping.end)
    yield "input embeddings", _table(lock, TableKind.INPUT)
    yield "output embeddings", _table(lock, TableKind.OUTPUT)


def _table(lock: Lock, kind: TableKind) -> str:
    if lock.tables is None:
        return UNKNOWN
    tables = {place(table): table for table in lock.tables}
    if kind.value in tables:
        return describe(tables[kind.value])
    return "tied to the input embeddings" if kind is TableKind.OUTPUT and lock.tied else "none"


def _changes(page: Page, found: Comparison) -> bool:
    """One section for each group that differs; False where none does."""
    before = len(page.lines)
    if found.mapping is not None:
        _section(page, TITLES["mapping"], [_split(sentence) for sentence in found.mapping.sentences()])
    for group in GROUPS:
        _section(page, TITLES[group], [row for change in found.group(group) for row in _rows(change)])
    _section(page, "rows", [_split(str(rows)) for rows in found.rows])
    if found.probes is not None and found.probes.different:
        title = f"probes, {len(found.probes.different)} of {found.probes.compared} encode differently"
        rows = [
            (shown(probe.text), f"token {probe.first}: {probe.left} -> {probe.right}")
            for probe in found.probes.different
        ]
        _section(page, title, rows, most=MOST_PROBES)
    changed = len(page.lines) > before
    _section(
        page, "not compared", [(TITLES.get(name, name), why) for name, why in found.not_compared.items()]
    )
    return changed


def _compared(found: Comparison) -> Iterator[str]:
    """What was compared, where nothing of it differs."""
    for group, title in TITLES.items():
        if group not in found.not_compared and group != "probes":
            yield title
    if found.probes is not None:
        yield counted(found.probes.compared, "probe")
    if found.rows:
        yield "rows"


def _section(page: Page, title: str, rows: Sequence[tuple[str, str]], *, most: int = MOST_LINES) -> None:
    if not rows:
        return
    page.blank()
    page.put((title, "bold"))
    page.columns(rows[:most], indent=2, styles=("cyan", ""))
    if len(rows) > most:
        page.put((f"  and {len(rows) - most} more", "dim"))


def _rows(change: Difference) -> list[tuple[str, str]]:
    """One row, or two where both sides are long."""
    what = shortened(change.what, LONGEST_PLACE)
    if len(change.left) + len(change.right) <= LONGEST_PAIR:
        return [(what, f"{change.left} -> {change.right}")]
    return [(what, change.left), ("", f"-> {change.right}")]


def _split(sentence: str) -> tuple[str, str]:
    """``7 added: 320 "[PAD]"`` in two columns."""
    what, _, rest = sentence.partition(": ")
    return (what, rest) if rest else ("", what)


def _unreadable(page: Page, diff: Diff) -> None:
    for part in diff.unreadable:
        page.blank()
        page.put((f"unreadable {part.file}", "bold red"), (f" {part.code}", "red"))
        page.put(text=part.message, style="bold", column=2)


def _verdict(page: Page, diff: Diff) -> None:
    same, differs = ANSWERS[diff.use]
    names = {"left": diff.comparison.left.name, "right": diff.comparison.right.name}
    mark, look, words = {
        Answer.SAME: ("✓ same", "bold green", same.format_map(names)),
        Answer.DIFFERS: ("✗ differs", "bold red", differs.format_map(names)),
        Answer.NO_VERDICT: ("? no verdict", "bold red", _why_none(diff)),
    }[diff.answer]
    page.put((mark, look), (f", {diff.use.value}: ", ""), text=words, hang=2)
    if diff.use is not Use.DROP_IN:  # for which every change above is a reason
        for reason in diff.reasons:
            page.put(("  because  ", "red"), text=reason)
    for remark in diff.remarks:
        page.put(("  note     ", "blue"), text=remark)


def _why_none(diff: Diff) -> str:
    if diff.unreadable:
        return f"{counted(len(diff.unreadable), 'part')} unreadable"
    return "; ".join(diff.undecided)
