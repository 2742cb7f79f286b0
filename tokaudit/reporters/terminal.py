"""The report as people read it: the facts, the checks, the findings, the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from tokaudit.contract import TableKind
from tokaudit.findings import Finding, Severity
from tokaudit.report import (
    AdapterFacts,
    DataFacts,
    IdCount,
    Report,
    Summary,
    TableFacts,
    UnusedEntry,
    Verdict,
    worst_verdict,
)
from tokaudit.reporters import View
from tokaudit.reporters._page import COLOURS, Page
from tokaudit.reporters._texts import shortened
from tokaudit.text import counted, named, shown, size

FACT_COLUMN = 21
SAMPLED = 240  # characters of decoded token data
BINS = 24  # of a histogram of norms
LONGEST_PLACE = 240  # characters of a location
UNKNOWN = "unknown"
NONE_FOUND = "none found"
MOST_UNUSED = 10
VERDICT_COLUMN = 14  # cells of a verdict in the table of several models
_VERDICTS = {
    Verdict.PASS: ("✓", "bold green", "pass"),
    Verdict.FINDINGS: ("✗", "bold red", "fail"),
    Verdict.NO_VERDICT: ("?", "bold red", "no verdict"),
}


def render(reports: Sequence[Report], view: View) -> str:
    """One report in full. Of several those that do not pass (``verbose``: all), and a table of verdicts."""
    page = Page(view)
    alone = len(reports) == 1
    for report in reports:
        if alone or view.verbose or view.quiet or report.verdict(view.fail_on) is not Verdict.PASS:
            page.blank()
            _report(page, report, alone=alone)
    if not (alone or view.quiet):
        page.blank()
        _overview(page, reports)
    return page.render()


def _report(page: Page, report: Report, *, alone: bool) -> None:
    if alone and not audited(report):
        return  # the line on standard error says it all
    quiet = page.view.quiet
    if not (quiet and (alone or not report.findings)):
        page.put((report.target, "bold"))
        page.blank()
    if not quiet and audited(report):
        _facts(page, report)
        page.blank()
        _checks(page, report)
        page.blank()
    _findings(page, report)
    _unreadable(page, report)
    if page.view.verbose:
        _skipped(page, report)
        _suppressed(page, report)
    if alone and not quiet:
        page.blank()
        _unused(page, report.unused)
    if not quiet:
        page.blank()
        put_verdict(page, report)


def audited(report: Report) -> bool:
    """Whether there is anything to say but what could not be read."""
    return bool(report.checked or report.skipped or report.findings)


def _facts(page: Page, report: Report) -> None:
    settings = (("settings", report.settings),) if report.settings else ()
    for label, words in (*known_facts(report.summary), *settings):
        look = "dim" if words in (UNKNOWN, NONE_FOUND) else ""
        page.put((f"  {label}", "dim"), text=words, style=look, column=FACT_COLUMN)
    _norms(page, report.summary)


def _norms(page: Page, facts: Summary) -> None:
    """A histogram of the norms of each main table, with `--deep`."""
    labels = {TableKind.INPUT: "input norms", TableKind.OUTPUT: "output norms"}
    for table in facts.values.tables if facts.values else ():
        label = labels.get(table.table.kind)
        if label and table.judged:
            bars = _bars(table.histogram(BINS), page.view.unicode)
            least, most = table.judged[0], table.judged[-1]
            words = f"{least:.3g} {bars} {most:.3g}, median {table.typical_norm:.3g}"
            page.put((f"  {label}", "dim"), text=words, column=FACT_COLUMN)


def _bars(counts: Sequence[int], unicode: bool) -> str:
    """A character for each count; any that is not 0 shows."""
    levels = "\u00b7\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588" if unicode else "_.,-=+*#@"
    top = max(counts)
    return "".join(levels[-(-count * (len(levels) - 1) // top)] for count in counts)


def known_facts(facts: Summary) -> Iterator[tuple[str, str]]:
    """Label and words of each fact."""
    if facts.adapter is not None:
        yield "adapter", _adapter(facts.adapter)
        yield "base", _base(facts.adapter)
    else:
        yield "architecture", _architecture(facts)
    yield "tokenizer", _tokenizer(facts)
    if facts.required_rows is not None:
        yield "required rows", str(facts.required_rows)
    if facts.adapter is None:
        yield "input embeddings", _table(facts.input)
        yield "output embeddings", _output(facts)
    if facts.vocab_size is not None:
        yield "vocab_size", str(facts.vocab_size)
    yield "special tokens", _roles(facts) or UNKNOWN
    if facts.stop_ids:
        yield "stop ids", ", ".join(_stop(id, content, facts) for id, content in facts.stop_ids)
    if facts.parameters is not None:
        yield "parameters", _parameters(facts)
    elif facts.weights_bytes is not None:
        yield "weights", f"{size(facts.weights_bytes)} in {counted(facts.weights_files or 0, 'file')}"
    if facts.data is not None:
        yield from _data(facts.data)


def _stop(id: int, content: str | None, facts: Summary) -> str:
    """Without a tokenizer the id alone: nobody knows whether it has a token."""
    return str(id) if facts.required_rows is None else named(id, content)


def _parameters(facts: Summary) -> str:
    """``7,728 (12,848 without the tie), 30.2 KiB``, of a module in memory."""
    untied = facts.parameters_untied
    without = f" ({untied:,} without the tie)" if untied and untied != facts.parameters else ""
    return f"{facts.parameters or 0:,}{without}, {size(facts.weights_bytes or 0)}"


def _data(facts: DataFacts) -> Iterator[tuple[str, str]]:
    data, statistics = facts.data, facts.data.statistics
    files = len({column.file for column in data.columns})
    dtypes = ", ".join(data.dtypes) or "JSON"
    span = "" if statistics.least is None else f", from {statistics.least} to {statistics.most}"
    yield "data", f"{counted(statistics.items, 'id')} ({dtypes}) in {counted(files, 'file')}{span}"
    roles = _role_counts(facts)
    if roles:
        yield "data, special", roles
    if facts.frequent:
        words = ", ".join(
            f"{named(found.id, found.content)} {_share(found, facts)}" for found in facts.frequent
        )
        yield "data, frequent", words
    yield "data, tokens", f"{facts.visited} of {facts.tokens} visited"
    for decoded in data.texts_or[:1] if isinstance(data.texts_or, tuple) else ():
        yield "data, sample", shown(decoded.text[:SAMPLED], longest=SAMPLED)


def _role_counts(facts: DataFacts) -> str:
    """``bos/eos 2 "</s>" 1.2 %``."""
    by_id: dict[int, list[str]] = {}
    for role, found in facts.roles:
        by_id.setdefault(found.id, []).append(role.value)
    counts = {found.id: found for _, found in facts.roles}
    return ", ".join(
        f"{'/'.join(names)} {named(id, counts[id].content)} {_share(counts[id], facts)}"
        for id, names in by_id.items()
    )


def _share(found: IdCount, facts: DataFacts) -> str:
    return f"{100 * found.count / max(1, facts.data.statistics.items):.2g} %" if found.count else "never"


def _architecture(facts: Summary) -> str:
    name = facts.architecture or facts.model_type
    if name is None:
        return UNKNOWN
    by = facts.tables_found_by
    return name if by is None or name in by else f"{name}, tables found by {by}"


def _adapter(facts: AdapterFacts) -> str:
    """``LORA, a whole table of lm_head (320 rows)``"""
    tables = [
        f"{what} of {module}" + ("" if rows is None else f" ({counted(rows, 'row')})")
        for module, what, rows in facts.tables
    ]
    return ", ".join([facts.method or "of an unknown method", *tables])


def _base(facts: AdapterFacts) -> str:
    if facts.base is None:
        return UNKNOWN
    known = [facts.architecture or "", "" if facts.rows is None else counted(facts.rows, "row")]
    return ", ".join(filter(None, [facts.base, *known, f"named by {facts.named_by}"]))


def _tokenizer(facts: Summary) -> str:
    if facts.required_rows is None:
        return NONE_FOUND if "tokenizer" in facts.absent else facts.tokenizer_kind or UNKNOWN
    counts = ((facts.base_tokens, "base"), (facts.added_tokens or None, "added"))
    known = " + ".join(f"{count} {word}" for count, word in counts if count is not None)
    return f"{facts.tokenizer_kind or 'vocabulary'}, {known} tokens"


def _roles(facts: Summary) -> str:
    """``bos/eos 2 "</s>", pad 0 "<pad>"``."""
    by_token: dict[str, list[str]] = {}
    for role, token in facts.roles:
        by_token.setdefault(named(token.id, token.content), []).append(role.value)
    return ", ".join(f"{'/'.join(roles)} {token}" for token, roles in by_token.items())


def _table(table: TableFacts | None) -> str:
    if table is None:
        return UNKNOWN
    rows = "packed" if table.rows is None else f"{table.rows} rows"
    hidden = "" if table.hidden is None else f" × {table.hidden}"
    return f"{rows}{hidden}, {table.dtype}, {table.name}"


def _output(facts: Summary) -> str:
    if facts.output is None:
        return {True: "tied to the input embeddings", False: "none stored", None: UNKNOWN}[facts.tied]
    tied = {True: ", tied and stored all the same", False: ", not tied", None: ""}[facts.tied]
    return _table(facts.output) + tied


def _checks(page: Page, report: Report) -> None:
    """One line for each area: its outcome, how much was checked, what was found; one for all the others."""
    checked = Counter(ref.area for ref in report.checked)
    skipped = Counter(area for _, area in {(skip.rule.code, skip.rule.area) for skip in report.skipped})
    refs = sorted({*report.checked, *(skip.rule for skip in report.skipped)}, key=lambda ref: ref.code)
    areas = dict.fromkeys(ref.area for ref in refs)
    widest = max((len(area) for area in areas if checked[area]), default=0)
    for area in areas:
        if not checked[area]:
            continue
        codes = {ref.code for ref in refs if ref.area == area}
        found = [finding for finding in report.findings if finding.rule in codes]
        mark, look = _mark(found)
        counts = f" {checked[area]:>3} checked" + (f"  {skipped[area]:>3} skipped" if skipped[area] else "")
        page.put(
            (f"  {mark} ", look),
            (f"{area:<{widest}}", ""),
            (counts, "dim"),
            text=tally(found),
            style=COLOURS[found[0].severity] if found else "",
            column=widest + 32,
        )
    others = [area for area in areas if not checked[area]]
    if others:
        rules = counted(sum(skipped[area] for area in others), "rule")
        page.put(("  – ", "dim"), text=f"{', '.join(others)}: {rules} skipped", style="dim", hang=4)


def _mark(found: Sequence[Finding]) -> tuple[str, str]:
    worst = found[0].severity if found else Severity.NOTE  # findings come the worst first
    if worst is Severity.NOTE:
        return "✓", "bold green"
    return ("✗" if worst is Severity.ERROR else "!"), f"bold {COLOURS[worst]}"


def tally(findings: Sequence[Finding]) -> str:
    """``2 errors, 1 note``."""
    groups = groupby(findings, key=lambda finding: finding.severity)
    return ", ".join(counted(len(list(group)), severity.word) for severity, group in groups)


def _findings(page: Page, report: Report) -> None:
    """Errors and warnings in full; notes as one line each, below them, unless everything is asked for."""
    for finding in report.findings:
        if finding.severity is not Severity.NOTE or page.view.verbose:
            _full(page, finding)
            page.blank()
        else:
            page.put(*_title(finding), (": ", ""), text=finding.message, hang=5)


def _title(finding: Finding) -> list[tuple[str, str]]:
    colour = COLOURS[finding.severity]
    return [(f"{finding.severity.word} {finding.rule}", f"bold {colour}"), (f" {finding.slug}", colour)]


def _full(page: Page, finding: Finding) -> None:
    page.put(*_title(finding))
    page.put(text=finding.message, style="bold", column=2)
    claims = [(shortened(str(claim.at), LONGEST_PLACE), claim.says) for claim in finding.claims]
    page.columns(claims, indent=4, styles=("cyan", ""))
    page.put(("  why  ", "dim"), text=finding.why)
    page.put(("  fix  ", "green"), text=finding.fix)


def _unreadable(page: Page, report: Report) -> None:
    for part in report.unreadable:
        page.blank()
        page.put((f"unreadable {part.file or report.target}", "bold red"), (f" {part.code}", "red"))
        page.put(text=part.message, style="bold", column=2)
        if part.hint:
            page.put(("  fix  ", "green"), text=part.hint)


def _skipped(page: Page, report: Report) -> None:
    if not report.skipped:
        return
    page.blank()
    page.put(("skipped", "bold"))
    rows = [(f"{skip.rule.code} {skip.rule.slug}", skip.reason) for skip in report.skipped]
    page.columns(rows, indent=2, styles=("", "dim"))


def _suppressed(page: Page, report: Report) -> None:
    if not report.suppressed:
        return
    page.blank()
    page.put(("suppressed", "bold"))
    rows = [
        (
            f"{aside.finding.rule} {aside.finding.slug}",
            f"{aside.finding.message} ({aside.by}: {aside.reason})",
        )
        for aside in report.suppressed
    ]
    page.columns(rows, indent=2, styles=("", "dim"))


def _unused(page: Page, entries: Sequence[UnusedEntry]) -> None:
    label = ("note", f"bold {COLOURS[Severity.NOTE]}"), (": ", "")
    for entry in entries[:MOST_UNUSED]:
        page.put(*label, text=f"{entry.by}: {unused_words(entry)}", hang=5)
    if len(entries) > MOST_UNUSED:
        page.put(*label, text=f"{len(entries) - MOST_UNUSED} more such entries set nothing aside", hang=5)


def unused_words(entry: UnusedEntry) -> str:
    """``the entry for TA108 padding-rows, "pad" (REASON) matches no finding``"""
    subject = f", {shown(entry.subject)}" if entry.subject else ""
    reason = f" ({entry.reason})" if entry.reason else ""
    what = f"the entry for {entry.rule} {entry.slug}{subject}{reason}"
    if entry.expired is None:
        return f"{what} matches no finding"
    return f"{what} expired with {entry.expired}: it sets nothing aside any more"


def _overview(page: Page, reports: Sequence[Report]) -> None:
    """A line for each model, and the worst of all verdicts."""
    names = [shortened(report.target, LONGEST_PLACE) for report in reports]
    column = page.column([f"{'':{VERDICT_COLUMN}}{name}" for name in names])
    for name, report in zip(names, reports, strict=True):
        mark, look, word = _VERDICTS[report.verdict(page.view.fail_on)]
        label = (f"{mark} {word}".ljust(VERDICT_COLUMN), look), (name, "")
        page.put(*label, text=outcome(report), style="dim", column=column)
    page.blank()
    _unused(page, list(dict.fromkeys(entry for report in reports for entry in report.unused)))
    for file in dict.fromkeys(report.settings for report in reports if report.settings):
        page.put(("settings  ", "dim"), text=file)
    page.blank()
    verdicts = Counter(report.verdict(page.view.fail_on) for report in reports)
    mark, look, word = _VERDICTS[worst_verdict(reports, page.view.fail_on)]
    counts = [f"{verdicts[verdict]} {_VERDICTS[verdict][2]}" for verdict in Verdict if verdict in verdicts]
    suppressed = sum(len(report.suppressed) for report in reports)
    text = f"{counted(len(reports), 'model')}: {', '.join(counts)} ({suppressed} suppressed)"
    page.put((f"{mark} {word}", look), (": ", ""), text=text, hang=2)


def put_verdict(page: Page, report: Report) -> None:
    """The line on which a report ends: the verdict, and the counts that it rests on."""
    mark, look, word = _VERDICTS[report.verdict(page.view.fail_on)]
    page.put((f"{mark} {word}", look), (": ", ""), text=totals(report), hang=2)


def totals(report: Report) -> str:
    """``2 errors, 1 note (7 checked, 3 skipped, 1 suppressed)``."""
    counts = (
        f"{len(report.checked)} checked, {len(report.skipped)} skipped, {len(report.suppressed)} suppressed"
    )
    return f"{outcome(report)} ({counts})"


def outcome(report: Report) -> str:
    """``1 part unreadable, 2 errors; no tokenizer found``: what was not there could not be found wanting."""
    said = tally(report.findings) or "no findings"
    unread = f"{counted(len(report.unreadable), 'part')} unreadable, " if report.unreadable else ""
    absent = " and ".join(f"no {side}" for side in report.summary.absent)
    return f"{unread}{said}" + (f"; {absent} found" if absent else "")
