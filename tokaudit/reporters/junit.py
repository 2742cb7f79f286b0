"""JUnit XML as Jenkins, GitLab and pytest understand it: a suite for each model, a case for each rule.

A finding at or above the threshold is a failure; what could not be read is an error; a rule that could not be
decided, or whose findings are all suppressed, is skipped; other findings stand in the output of a case that
passes. There are no times, so equal audits give equal files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from tokaudit.errors import Unreadable
from tokaudit.findings import Finding
from tokaudit.report import Report, RuleRef
from tokaudit.reporters import View
from tokaudit.reporters._texts import plain_text

READING = "input-readable"  # the case whose error says that there is no verdict
_OUTCOMES = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def render(reports: Sequence[Report], view: View) -> str:
    suites = [_Suite(report, view).element() for report in reports]
    root = ElementTree.Element("testsuites", {"name": "tokaudit", **_sums(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    declaration = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{declaration}\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _sums(suites: Iterable[ElementTree.Element]) -> dict[str, str]:
    suites = list(suites)
    return {
        count: str(sum(int(suite.attrib[count]) for suite in suites))
        for count in ("tests", *_OUTCOMES.values())
    }


class _Suite:
    """The cases of one report. Whatever is put into them is made inert, which leaves only what XML takes."""

    def __init__(self, report: Report, view: View) -> None:
        self.report = report
        self.view = view
        self.name = self.shown(report.target)
        self.cases: list[ElementTree.Element] = []

    def element(self) -> ElementTree.Element:
        self._reading()
        refs = {*self.report.checked, *(skip.rule for skip in self.report.skipped)}
        for ref in sorted(refs, key=lambda ref: ref.code):
            self._rule(ref)
        outcomes = Counter(child.tag for case in self.cases for child in case)
        counts = {count: str(outcomes[outcome]) for outcome, count in _OUTCOMES.items()}
        suite = ElementTree.Element("testsuite", {"name": self.name, "tests": str(len(self.cases)), **counts})
        suite.extend(self.cases)
        return suite

    def _reading(self) -> None:
        case = self._case(READING)
        parts = self.report.unreadable
        if parts:
            self._add(case, "error", _first_of(parts), parts[0].code, map(self._part, parts))

    def _rule(self, ref: RuleRef) -> None:
        case = self._case(f"{ref.code} {ref.slug}")
        found = [finding for finding in self.report.findings if finding.rule == ref.code]
        failing = [finding for finding in found if finding.severity >= self.view.fail_on]
        suppressed = [aside for aside in self.report.suppressed if aside.finding.rule == ref.code]
        reasons = [skip.reason for skip in self.report.skipped if skip.rule == ref]
        if failing:
            self._add(case, "failure", _first_of(failing), failing[0].severity.word, map(self._full, failing))
        elif not found and ref not in self.report.checked:
            self._add(case, "skipped", "; ".join(reasons))
        elif not found and suppressed:
            said = _first_of([aside.finding for aside in suppressed])
            self._add(case, "skipped", f"suppressed: {said} ({suppressed[0].reason})")
        passed = [self._full(finding) for finding in found if finding not in failing]
        partly = [self.shown(f"partly skipped: {reason}") for reason in reasons if ref in self.report.checked]
        if passed or partly:
            ElementTree.SubElement(case, "system-out").text = "\n\n".join([*passed, *partly])

    def _case(self, name: str) -> ElementTree.Element:
        """The class name has one dot: Jenkins takes what stands before the last one for a package."""
        case = ElementTree.Element(
            "testcase", {"classname": f"tokaudit.{self.name.replace('.', '_')}", "name": name}
        )
        self.cases.append(case)
        return case

    def _add(
        self,
        case: ElementTree.Element,
        outcome: str,
        message: str,
        type: str = "",
        paragraphs: Iterable[str] = (),
    ) -> None:
        attributes = {"message": self.shown(message), **({"type": self.shown(type)} if type else {})}
        element = ElementTree.SubElement(case, outcome, attributes)
        element.text = "\n\n".join(paragraphs) or None

    def _full(self, finding: Finding) -> str:
        lines = [f"{finding.severity.word} {finding.rule} {finding.slug}: {finding.message}"]
        lines += [f"  {claim.at}  {claim.says}" for claim in finding.claims]
        lines += [f"  why  {finding.why}", f"  fix  {finding.fix}"]
        return "\n".join(map(self.shown, lines))

    def _part(self, part: Unreadable) -> str:
        lines = [f"{part.file or self.report.target}: {part.message}"]
        lines += [f"  fix  {part.hint}"] if part.hint else []
        return "\n".join(map(self.shown, lines))

    def shown(self, text: str) -> str:
        return plain_text(text, self.view)


def _first_of(items: Sequence[Finding] | Sequence[Unreadable]) -> str:
    """The first message, and how many there are beside it."""
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    return items[0].message + more
