"""The report as JSON, for programs. Its structures are versioned and described in report.schema.json.

They are written down here and not derived from the classes of the report, which may change. A field that
is added raises the minor version, one that is removed or changes its meaning the major one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tokaudit import __version__
from tokaudit.contract import TableValues, Values
from tokaudit.errors import Unreadable
from tokaudit.findings import Claim, Finding, Severity, fingerprint
from tokaudit.report import (
    AdapterFacts,
    DataFacts,
    IdCount,
    Report,
    RuleRef,
    Skipped,
    Summary,
    Suppressed,
    TableFacts,
    UnusedEntry,
    worst_verdict,
)
from tokaudit.reporters import View

if TYPE_CHECKING:
    from tokaudit.contract.data import LabelStatistics

SCHEMA_VERSION = "1.3"
SAMPLED = 64  # ids of a sample of token data
QUANTILES = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)

Json = Mapping[str, object]


def render(reports: Sequence[Report], view: View) -> str:
    """One report is a document; several are the list of what each would be alone, in an envelope."""
    documents = [_report(report, view.fail_on) for report in reports]
    return dump(documents[0] if len(documents) == 1 else _envelope(reports, documents, view.fail_on))


def dump(document: Json | Sequence[Json]) -> str:
    """ASCII only, and without what the log of a CI system would act on.

    ``##[`` and ``::`` occur only within strings, where each character may as well be an escape.
    """
    text = json.dumps(document, indent=2, ensure_ascii=True)
    return text.replace("##[", "##\\u005b").replace("::", ":\\u003a") + "\n"


def tool() -> Json:
    return {"name": "tokaudit", "version": __version__}


def _envelope(reports: Sequence[Report], documents: Sequence[Json], fail_on: Severity) -> Json:
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool(),
        "verdict": worst_verdict(reports, fail_on).value,
        "reports": documents,
    }


def _report(report: Report, fail_on: Severity) -> Json:
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": tool(),
        "target": report.target,
        "verdict": report.verdict(fail_on).value,
        "fail_on": fail_on.word,
        "settings": report.settings or None,
        "summary": {
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "notes": report.count(Severity.NOTE),
            "suppressed": len(report.suppressed),
            "checked": len(report.checked),
            "skipped": len(report.skipped),
            "unreadable": len(report.unreadable),
        },
        "facts": _facts(report.summary),
        "findings": [_finding(finding) for finding in report.findings],
        "suppressed": [_suppressed(suppressed) for suppressed in report.suppressed],
        "unused": [_unused(entry) for entry in report.unused],
        "checked": [_rule(rule) for rule in report.checked],
        "skipped": [_skipped(skipped) for skipped in report.skipped],
        "errors": [unreadable_part(part) for part in report.unreadable],
    }


def _facts(facts: Summary) -> Json:
    return {
        "architecture": facts.architecture,
        "model_type": facts.model_type,
        "tables_found_by": facts.tables_found_by,
        "tokenizer_kind": facts.tokenizer_kind,
        "base_tokens": facts.base_tokens,
        "added_tokens": facts.added_tokens,
        "required_rows": facts.required_rows,
        "vocab_size": facts.vocab_size,
        "input": _table(facts.input),
        "output": _table(facts.output),
        "tied": facts.tied,
        "weights_bytes": facts.weights_bytes,
        "weights_files": facts.weights_files,
        "parameters": facts.parameters,
        "parameters_untied": facts.parameters_untied,
        "roles": [
            {"role": role.value, "id": token.id, "content": token.content} for role, token in facts.roles
        ],
        "stop_ids": [{"id": id, "content": content} for id, content in facts.stop_ids],
        "values": None if facts.values is None else _values(facts.values),
        "data": None if facts.data is None else _data(facts.data),
        "adapter": None if facts.adapter is None else _adapter(facts.adapter),
    }


def _adapter(facts: AdapterFacts) -> Json:
    return {
        "method": facts.method or None,
        "base": facts.base,
        "named_by": facts.named_by,
        "base_architecture": facts.architecture,
        "base_rows": facts.rows,
        "tables": [{"module": module, "holds": what, "rows": rows} for module, what, rows in facts.tables],
    }


def _data(facts: DataFacts) -> Json:
    """``counts`` has the ids that occur."""
    data, statistics = facts.data, facts.data.statistics
    texts = data.texts_or if isinstance(data.texts_or, tuple) else ()
    return {
        "columns": [
            {
                "file": column.file,
                "column": column.column or None,
                "dtype": column.dtype or None,
                "deduced": column.deduced,
                "labels": column.labels or None,
            }
            for column in data.columns
        ],
        "complete": data.complete,
        "ids": statistics.items,
        "least": statistics.least,
        "most": statistics.most,
        "rows": data.rows,
        "without_row": statistics.without_row(data.rows),
        "tokens": facts.tokens,
        "visited": facts.visited,
        "roles": [{"role": role.value, **_id_count(found)} for role, found in facts.roles],
        "frequent": [_id_count(found) for found in facts.frequent],
        "counts": {str(id): count for id, count in enumerate(statistics.counts) if count},
        "labels": _labels(statistics.labels),
        "samples": [
            {
                "file": decoded.sample.file,
                "column": decoded.sample.column or None,
                "ids": list(decoded.sample.ids[:SAMPLED]),
                "text": decoded.text,
            }
            for decoded in texts
        ],
    }


def _id_count(found: IdCount) -> Json:
    return {"id": found.id, "content": found.content, "count": found.count}


def _labels(labels: LabelStatistics) -> Json | None:
    if not labels.items and not labels.unaligned:
        return None
    return {
        "labels": labels.items,
        "trained": labels.trained,
        "same": labels.same,
        "shifted": labels.shifted,
        "without_row": labels.negative + labels.beyond,
        "pads": labels.pads,
        "pads_trained": labels.pads_trained,
        "ends": labels.ends,
        "ends_masked": labels.ends_masked,
        "unaligned_rows": labels.unaligned,
    }


def _values(values: Values) -> Json:
    return {
        "tables": [_table_values(table) for table in values.tables],
        "unread": [{"tensor": name, "reason": reason} for name, reason in values.unread.items()],
    }


def _table_values(table: TableValues) -> Json:
    """The norms are those of finite rows in use that are not zero, at the shares in QUANTILES."""
    return {
        "tensor": table.table.name,
        "file": table.table.at.file,
        "rows": len(table.norms),
        "norms": {
            f"{share:g}": norm for share, norm in zip(QUANTILES, table.quantiles(QUANTILES), strict=False)
        },
        "classes": {member.slug: count for member, count in table.counts.items()},
    }


def _table(table: TableFacts | None) -> Json | None:
    if table is None:
        return None
    return {
        "tensor": table.name,
        "file": table.file,
        "rows": table.rows,
        "hidden": table.hidden,
        "dtype": table.dtype,
    }


def _finding(finding: Finding) -> Json:
    return {
        "rule": finding.rule,
        "slug": finding.slug,
        "level": finding.severity.word,
        "message": finding.message,
        "claims": [_claim(claim) for claim in finding.claims],
        "why": finding.why,
        "fix": finding.fix,
        "subject": finding.subject,
        "fingerprint": fingerprint(finding),
    }


def _suppressed(suppressed: Suppressed) -> Json:
    return {**_finding(suppressed.finding), "by": suppressed.by, "reason": suppressed.reason}


def _unused(entry: UnusedEntry) -> Json:
    return {
        "rule": entry.rule,
        "slug": entry.slug,
        "subject": entry.subject,
        "by": entry.by,
        "reason": entry.reason,
        "expired": None if entry.expired is None else entry.expired.isoformat(),
    }


def _claim(claim: Claim) -> Json:
    at = claim.at
    return {
        "file": at.file,
        "pointer": None if at.tensor else at.pointer,
        "tensor": at.tensor or None,
        "rows": None if at.rows is None else list(at.rows),
        "outside": at.outside,
        "says": claim.says,
    }


def _rule(rule: RuleRef) -> Json:
    return {"rule": rule.code, "slug": rule.slug, "area": rule.area}


def _skipped(skipped: Skipped) -> Json:
    return {**_rule(skipped.rule), "reason": skipped.reason}


def unreadable_part(part: Unreadable) -> Json:
    return {"code": part.code, "file": part.file, "message": part.message, "hint": part.hint}
