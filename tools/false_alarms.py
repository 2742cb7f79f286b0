"""Audit what works and only looks odd, and write what is said about it to docs/false-alarms.md.

    python tools/false_alarms.py              write the table
    python tools/false_alarms.py --print      print it and write nothing

That are the files that others published (../shared/real, where it is there), the releases of
fixtures/releases.json, and every case of fixtures/cases that is a trap. The script exits with 1, and writes
nothing, for an error, and for a warning that has no reason here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from models import build  # noqa: E402
from releases import RELEASES, build_release  # noqa: E402

import tokaudit  # noqa: E402
from tokaudit.findings import Severity  # noqa: E402
from tokaudit.text import inert  # noqa: E402

PAGE = PROJECT / "docs" / "false-alarms.md"
REAL = PROJECT.parent / "shared" / "real"
MARK = "<!-- begin figures: tools/false_alarms.py -->", "<!-- end figures -->"

# Why a warning is right, by rule, and where that says too little by (what was audited, rule).
REASONS: dict[str, str] = {
    "TA102": "a text that holds the token reads past the table; nothing in the release makes one",
    "TA303": "collators mask the labels of pad tokens, so who fine-tunes it as it is unlearns to stop",
    "TA305": "who asks the configuration and who asks the tokenizer get two different tokens",
    "TA308": "the configuration's bos token is the tokenizer's eos token: generation starts with an end",
    "TA311": "the text in the template is no token: it reaches the model in pieces",
    "TA312": "a chat made with the template does not stop at the end of a turn",
    "TA408": "a text with one of these bytes cannot be spelt",
}
SPECIAL: dict[tuple[str, str], str] = {
    (
        "model2vec-float16",
        "TA310",
    ): "encoding with special tokens gives ids of the model that it was made of; "
    "static models do not ask for them",
    ("mixtral-dolphin-2.5_cfg", "TA419"): "what was published is a part of it, without tokenizer.model",
    ("gpt-oss", "TA419"): "what was published is a part of it, without tokenizer.json",
    ("qwen3", "TA419"): "what was published is one file of the tokenizer",
    ("smollm3", "TA419"): "what was published is a part of it, without tokenizer.json",
    ("R179", "TA401"): "a loader that reads tokenizer.json alone does not know the seven tokens",
    ("R218", "TA406"): "the tokenizer cuts at half of what the model can read",
}
# Alarms about what was published, not about a model that works.
FAULTS: dict[tuple[str, str], str] = {
    ("granite-3.1-1b", "TA705"): "the repository holds a Git LFS pointer in the place of the weights",
}


@dataclass(frozen=True)
class Alarm:
    where: str
    rule: str
    level: Severity
    says: str


def targets(work: Path) -> Iterator[tuple[str, str, Path, bool]]:
    """(group, name, directory, whether its rows are read)."""
    if REAL.is_dir():
        for folder in sorted(path for path in REAL.iterdir() if any(path.glob("*.json"))):
            yield "as published", folder.name, folder, True
    for release in RELEASES:
        place = work / "releases" / release["name"].replace("/", "_")
        yield "releases", release["name"], build_release(release, place), False
    for file in sorted((PROJECT / "fixtures" / "cases").glob("R*.json")):
        case = json.loads(file.read_text(encoding="utf-8"))
        if case["kind"] == "trap" and case["run"][:2] == ["check", "{model}"]:
            yield (
                "traps",
                case["id"],
                build(case["dirs"]["model"], work / case["id"]),
                "--deep" in case["run"],
            )


def alarms(name: str, folder: Path, deep: bool) -> Iterator[Alarm]:
    report = tokaudit.check(folder, deep=deep)
    for part in report.unreadable:
        yield Alarm(name, "unreadable", Severity.ERROR, part.message)
    for finding in report.findings:
        if finding.severity >= Severity.WARNING:
            yield Alarm(name, finding.rule, finding.severity, finding.message)


def reason(alarm: Alarm) -> str | None:
    key = alarm.where, alarm.rule
    if alarm.level is Severity.ERROR:
        return FAULTS.get(key)
    return SPECIAL.get(key) or REASONS.get(alarm.rule)


def table(counts: dict[str, int], found: Sequence[Alarm]) -> str:
    errors = sum(alarm.level is Severity.ERROR for alarm in found if not reason(alarm))
    lines = [
        "| audited | directories |",
        "| --- | ---: |",
        *(f"| {group} | {count} |" for group, count in counts.items()),
        "",
        f"Errors: {errors}. Warnings: {sum(alarm.level is Severity.WARNING for alarm in found)}.",
        "",
        "| | rule | it says | it is right, for |",
        "| --- | --- | --- | --- |",
    ]
    for alarm in found:
        words = inert(alarm.says).replace("|", "\\|").replace("<", "&lt;")
        level = " (error)" if alarm.level is Severity.ERROR else ""
        lines.append(f"| {alarm.where} | {alarm.rule}{level} | {words} | {reason(alarm)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Audit what works and only looks odd.")
    parser.add_argument("--print", action="store_true", help="print the table; write nothing")
    call = parser.parse_args()
    counts: dict[str, int] = {}
    found: list[Alarm] = []
    with tempfile.TemporaryDirectory(prefix="tokaudit-false-alarms-") as folder:
        for group, name, directory, deep in targets(Path(folder)):
            counts[group] = counts.get(group, 0) + 1
            found += alarms(name, directory, deep)
    wrong = [alarm for alarm in found if reason(alarm) is None]
    for alarm in wrong:
        print(f"{alarm.where}: {alarm.rule} {alarm.level.word}: {inert(alarm.says)}", file=sys.stderr)
    if call.print or wrong:
        print(table(counts, found))
        return 1 if wrong else 0
    if "as published" not in counts:
        print("../shared/real is not here: the table would lack what others published", file=sys.stderr)
        return 1
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(MARK[0])
    tail = rest.partition(MARK[1])[2]
    PAGE.write_text(f"{head}{MARK[0]}\n\n{table(counts, found)}\n\n{MARK[1]}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
