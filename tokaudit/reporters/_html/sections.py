"""The sections of the page about one report, as far as they need no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tokaudit.contract import TableKind, TableValues
from tokaudit.errors import Unreadable
from tokaudit.findings import Finding, Severity
from tokaudit.report import Report, Summary, Verdict
from tokaudit.reporters import View
from tokaudit.reporters._html.elements import Markup, breakable, element, joined, sentence
from tokaudit.reporters._html.packed import drawn, drawn_ids, packed
from tokaudit.reporters._texts import shortened
from tokaudit.reporters.terminal import LONGEST_PLACE, audited, known_facts, outcome, totals, unused_words
from tokaudit.text import counted, shown, size

VERDICTS = {
    Verdict.PASS: ("pass", "\u2713 pass"),
    Verdict.FINDINGS: ("fail", "\u2717 fail"),
    Verdict.NO_VERDICT: ("none", "? no verdict"),
}
_OPEN_ROWS = 8  # more are folded
_HOW = "Drag across a picture to zoom in, double-click to zoom out. Click on a token to mark it everywhere."


def badge(report: Report, view: View) -> Markup:
    kind, words = VERDICTS[report.verdict(view.fail_on)]
    return element("span", words, class_=f"verdict {kind}")


def overview(reports: Sequence[Report], view: View) -> Markup:
    """A line for each of several models, which leads to its part of the page."""
    rows = [
        element(
            "tr",
            element("td", badge(report, view)),
            element("td", element("a", _target(report), href=f"#model-{place}")),
            element("td", outcome(report)),
        )
        for place, report in enumerate(reports)
    ]
    head = element("tr", *(element("th", word, scope="col") for word in ("verdict", "model", "findings")))
    return element("table", element("thead", head), element("tbody", *rows), class_="overview")


def article(report: Report, view: View, place: int) -> Markup:
    """Everything about one report."""
    facts = report.summary
    title = element("h2", _target(report), " ", badge(report, view))
    parts = [
        element("header", title, element("p", totals(report), class_="totals")),
        *_findings(report),
        *_facts(report),
        *_pictures(report),
        *_skipped(report),
        *_aside(report),
    ]
    data = element("script", Markup(packed(facts)), type="text/plain", class_="packed")
    pictured = [element("div", class_="chosen", aria_live="polite"), data] if _has_pictures(facts) else []
    return element("article", *parts, *pictured, id=f"model-{place}")


def _target(report: Report) -> Markup:
    return element("bdi", report.target)


def _section(title: str, *parts: str, class_: str = "plain") -> Markup:
    return element("section", element("h3", title), *parts, class_=class_)


def _findings(report: Report) -> Iterator[Markup]:
    """What could not be read, then errors and warnings in full, then notes, of which a line stands open."""
    cards = [_unreadable(part, report) for part in report.unreadable]
    cards += [_card(finding) for finding in report.findings]
    if cards:
        yield _section("Findings", *cards)
    elif report.checked:
        yield _section("Findings", element("p", "None.", class_="caption"))


def _card(finding: Finding) -> Markup:
    word = finding.severity.word
    title = (
        element("span", word, class_="severity"),
        " ",
        element("span", f"{finding.rule} {finding.slug}", class_="rule"),
    )
    claims = [
        element(
            "div",
            element("dt", breakable(shortened(str(claim.at), LONGEST_PLACE))),
            element("dd", sentence(claim.says)),
        )
        for claim in finding.claims
    ]
    message = sentence(finding.message)
    rest = (
        element("dl", *claims, class_="claims"),
        *_labelled("why", finding.why),
        *_labelled("fix", finding.fix),
    )
    if finding.severity is Severity.NOTE:
        line = element("summary", *title, element("span", message, class_="message"))
        return element("details", line, *rest, class_=f"finding {word}")
    title_line = element("h4", *title)
    return element(
        "div", title_line, element("p", message, class_="message"), *rest, class_=f"finding {word}"
    )


def _labelled(label: str, words: str) -> Iterator[Markup]:
    if words:
        yield element("p", element("span", label, class_="label"), " ", sentence(words), class_=label)


def _unreadable(part: Unreadable, report: Report) -> Markup:
    title = element(
        "h4",
        element("span", "unreadable", class_="severity"),
        " ",
        element("span", f"{part.file or report.target}: {part.code}", class_="rule"),
    )
    message = element("p", sentence(part.message), class_="message")
    return element("div", title, message, *_labelled("fix", part.hint), class_="finding error")


def _facts(report: Report) -> Iterator[Markup]:
    if not audited(report):
        return
    settings = (("settings", report.settings),) if report.settings else ()
    pairs = [
        element("div", element("dt", label), element("dd", sentence(words)))
        for label, words in (*known_facts(report.summary), *settings)
    ]
    yield _section("Facts", element("dl", *pairs, class_="facts"))


def _has_pictures(facts: Summary) -> bool:
    return drawn_ids(facts) > 0


def _pictures(report: Report) -> Iterator[Markup]:
    facts = report.summary
    if _has_pictures(facts):
        yield _ids(facts)
    yield from _sizes(facts)
    yield from _rows(report)


def _ids(facts: Summary) -> Markup:
    """The map of the id space, and the search: what needs no row."""
    span = drawn_ids(facts)
    largest = max(facts.required_rows or 0, facts.input_rows or 0)
    beyond = f" Only ids below {span:,} are drawn, of {largest:,}." if largest > span else ""
    find = element(
        "label",
        "Find a token ",
        element("input", type="search", class_="find", placeholder="text or id", autocomplete="off"),
    )
    return _section(
        "Token ids",
        element("p", _space(facts) + beyond, class_="caption"),
        element("div", find, element("ul", class_="hits"), class_="search"),
        _chart("map", "Map of the token ids"),
        element("p", _HOW, class_="caption how"),
        element("noscript", element("p", "The pictures need JavaScript.", class_="caption")),
        class_="ids",
    )


def _space(facts: Summary) -> str:
    """How the ids are laid out, in words."""
    known = []
    if facts.required_rows is not None:
        known.append(f"The tokenizer needs {facts.required_rows:,} rows")
    if facts.input_rows is not None:
        word = "the input embeddings have" if known else "The input embeddings have"
        known.append(f"{word} {facts.input_rows:,}")
    unread = facts.required_rows is not None and facts.base_tokens is None
    return "; ".join(known) + "." + (" No file states the base vocabulary." if unread else "")


def _sizes(facts: Summary) -> Iterator[Markup]:
    """Bytes of each table, and its share of the weights."""
    total = facts.weights_bytes or 0
    if not (facts.tables and total):
        return
    rows = [
        _size_row(
            table.kind.value, table.name, _shape(table.rows, table.hidden, table.dtype), table.nbytes, total
        )
        for table in facts.tables
    ]
    rest = total - sum(table.nbytes for table in facts.tables)
    rows.append(_size_row("everything else", "", "", max(0, rest), total))
    head = [
        element("th", word, scope="col", class_=class_)
        for word, class_ in (("table", ""), ("shape", "wide"), ("bytes", "number"), ("share", "share"))
    ]
    tied = {True: " The output embeddings are the input embeddings: they are stored once."}
    note = tied.get(bool(facts.tied and facts.output is None), "")
    yield _section(
        "Size of the tables",
        element(
            "p",
            f"{size(total)} of weights in {counted(facts.weights_files or 0, 'file')}.{note}",
            class_="caption",
        ),
        element("table", element("thead", element("tr", *head)), element("tbody", *rows), class_="sizes"),
    )


def _size_row(kind: str, name: str, shape: str, nbytes: int, total: int) -> Markup:
    share = nbytes / total
    named = [element("span", breakable(name), class_="tensor")] if name else []
    meter = element("meter", min="0", max="1", value=f"{share:.4f}")
    return element(
        "tr",
        element("td", kind, *named),
        element("td", shape, class_="wide"),
        element("td", size(nbytes), class_="number"),
        element("td", meter, element("span", f"{100 * share:.1f} %"), class_="share"),
    )


def _shape(rows: int | None, hidden: int | None, dtype: str) -> str:
    sides = " \u00d7 ".join(f"{side:,}" for side in (rows, hidden) if side is not None)
    return f"{sides or 'packed'} {dtype}"


def _rows(report: Report) -> Iterator[Markup]:
    """What `--deep` read: places for the pictures of each table, and the new tokens."""
    values = report.summary.values
    if values is None:
        if report.checked:
            yield _section(
                "Rows",
                element(
                    "p",
                    sentence(
                        "Not read. `tokaudit check --deep` reads them and adds pictures of their norms, "
                        "and the new tokens with their neighbours."
                    ),
                    class_="caption",
                ),
            )
        return
    shown_tables = drawn(report.summary)
    for place, table in enumerate(shown_tables):
        yield _table(table, report.summary, place)
    others = [table.table for table in values.tables if table not in shown_tables]
    unread = [f"{name} was not read: {reason}." for name, reason in values.unread.items()]
    if others:
        names = ", ".join(table.name for table in others)
        unread.append(f"Read and not drawn: {names}. `tokaudit rows` shows them.")
    if unread:
        yield _section("Other tables", *(element("p", sentence(line), class_="caption") for line in unread))


def _table(table: TableValues, facts: Summary, place: int) -> Markup:
    kind = table.table.kind
    tied = kind is TableKind.INPUT and facts.tied and facts.output is None
    title = f"Rows of the {kind.value}"
    caption = (
        f"{table.table.name}: {len(table.norms):,} rows, typical norm {table.typical_norm:.3g}"
        f"{', used for input and output' if tied else ''}."
    )
    return _section(
        title,
        element("p", caption, class_="caption"),
        element("h4", "Distribution of the norms", class_="norms-title"),
        element(
            "p", "Bars count rows in use; below, a line for each row of the other classes.", class_="caption"
        ),
        _chart("norms", f"Histogram of the norms of {table.table.name}"),
        element("h4", "Norm of each row, by token id", class_="scatter-title"),
        element("div", class_="legend"),
        _chart("scatter", f"Norm of each row of {table.table.name} by token id"),
        *_new(table, facts),
        class_="rows",
    )


def _chart(kind: str, words: str) -> Markup:
    """The place of a picture, which ``words`` stand for where it cannot be seen."""
    return element("div", class_=f"chart {kind}", role="img", aria_label=words)


def _new(table: TableValues, facts: Summary) -> Iterator[Markup]:
    """Added tokens with the tokens that their rows point nearest to."""
    if not table.new:
        return
    rows = [_new_row(table, facts, id) for id in table.new]
    more = rows[_OPEN_ROWS:]
    yield element("h4", "New tokens and their nearest neighbours")
    yield element(
        "p",
        "Added tokens by id; beside each the tokens in use whose rows point the same way, with the cosine.",
        class_="caption",
    )
    yield _new_rows(rows[:_OPEN_ROWS])
    if more:
        yield _folded(f"{len(more)} more", _new_rows(more))


def _new_rows(rows: Sequence[Markup]) -> Markup:
    words = (("token", ""), ("norm", "number"), ("percentile", "number"), ("nearest tokens in use", ""))
    head = element("tr", *(element("th", word, scope="col", class_=class_) for word, class_ in words))
    return element(
        "div",
        element("table", element("thead", head), element("tbody", *rows), class_="new"),
        class_="scroll",
    )


def _new_row(table: TableValues, facts: Summary, id: int) -> Markup:
    sign = table.signs.get(id)
    percentile = table.percentile(id)
    near = [
        element(
            "span",
            _token(facts, other.id),
            element("span", f"{other.cosine:.2f}", class_="number"),
            element("meter", min="0", max="1", value=f"{max(0.0, other.cosine):.3f}"),
            class_="near",
        )
        for other in table.new[id]
    ]
    signs = [element("span", sign, class_="sign")] if sign else []
    return element(
        "tr",
        element("td", _token(facts, id), *signs),
        element("td", f"{table.norm(id):.3g}", class_="number", data_label="norm "),
        element("td", f"{percentile:.0f}", class_="number", data_label="percentile "),
        element("td", element("div", *near, class_="nearest")),
    )


def _token(facts: Summary, id: int) -> Markup:
    """A token that the script marks in the pictures when it is clicked."""
    content = facts.tokens.texts.get(id) if facts.tokens is not None else None
    words = shown(content)[1:-1] if content is not None else "(no token)"
    inner = (element("span", str(id), class_="id"), " ", element("code", words))
    return element("button", *inner, type="button", class_="token", data_id=str(id))


def _skipped(report: Report) -> Iterator[Markup]:
    if report.skipped:
        rows = [(f"{skip.rule.code} {skip.rule.slug}", skip.reason) for skip in report.skipped]
        yield _section("Skipped", _folded(counted(len(rows), "skipped rule"), _pairs(rows)))


def _aside(report: Report) -> Iterator[Markup]:
    """Findings that were set aside, and entries that set none aside."""
    suppressed = [
        (
            f"{aside.finding.rule} {aside.finding.slug}",
            f"{aside.finding.message} ({aside.by}: {aside.reason})",
        )
        for aside in report.suppressed
    ]
    unused = [(entry.by, unused_words(entry)) for entry in report.unused]
    if suppressed:
        yield _section(
            "Suppressed", _folded(counted(len(suppressed), "suppressed finding"), _pairs(suppressed))
        )
    if unused:
        title = counted(len(unused), "unused entry", "unused entries")
        yield _section("Unused", _folded(title, _pairs(unused)))


def _folded(title: str, *parts: str) -> Markup:
    return element("details", element("summary", title), *parts)


def _pairs(rows: Iterable[tuple[str, str]]) -> Markup:
    pairs = [element("div", element("dt", left), element("dd", sentence(right))) for left, right in rows]
    return element("dl", *pairs, class_="facts")


def footer(version: str) -> Markup:
    words = joined("Made by tokaudit ", version, ". ", sentence("`tokaudit explain CODE` explains a rule."))
    return element("footer", element("p", words))
