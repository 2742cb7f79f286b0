"""Write what the documentation takes from the code.

    python tools/make_docs.py            write it; names each file that changed
    python tools/make_docs.py --check    write nothing; exit 1 if a file is out of date

That is docs/rules/ (the page of each rule is what `tokaudit explain` prints), the table of rules between the
marks in README.md, and the output of the commands in blocks marked `console`, in README.md and docs/*.md.
Commands run one after the other in a directory that holds nothing but a copy of fixtures/tinylm; the blocks
of one document share it. A command that fails stops the tool: put `; echo "exit code $?"` behind one that is
meant to.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tokaudit.cli.explain import _page
from tokaudit.rule import Rule, all_rules

PROJECT = Path(__file__).resolve().parents[1]
RULES = PROJECT / "docs" / "rules"

AREAS = {
    "rows": "Ids, rows and sizes",
    "tie": "Tied embeddings",
    "special": "Special tokens and their ids",
    "vocabulary": "The tokenizer's own files",
    "lock": "The lock",
    "values": "The values of the rows (`--deep`)",
    "storage": "Storage",
    "adapter": "Adapters (`check ADAPTER --base BASE`)",
    "training": "Training: data, live modules, batches and state",
}
INDEX_HEAD = """# Rules

One page for each rule; `tokaudit explain CODE` prints the same text, `tokaudit rules` this list.

- **error**: some loader will crash on it, or will silently use wrong tokens, wrong rows or random weights.
- **warning**: it works in one common use and misbehaves in another, or is very likely a mistake.
- **note**: worth knowing, and normal in released models.

The severity in the tables is that of an ordinary breach; a rule's page says when it is another one. Codes
never change their meaning and are never used again.
"""
MARKED = re.compile(r"(<!-- begin rules[^>]*-->\n).*?(<!-- end rules -->)", re.DOTALL)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def documents() -> Mapping[Path, str]:
    """Every document with generated parts, by its path: the text that it should have."""
    found = {RULES / f"{rule.code}.md": rule_page(rule) for rule in all_rules()}
    found[RULES / "README.md"] = INDEX_HEAD + "".join(index_sections())
    for path in (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        found[path] = with_output(with_rules(text))
    return found


def rule_page(rule: type[Rule]) -> str:
    return _page(rule) + "\n[All rules](README.md)\n"


def index_sections() -> Iterator[str]:
    for area, rules in groupby(all_rules(), key=lambda rule: rule.area()):
        yield f"\n## {AREAS.get(area, area)}\n\n{rule_table(list(rules), folder='')}"


def rule_table(rules: Sequence[type[Rule]], folder: str) -> str:
    """A Markdown table with a link to each rule's page."""
    rows = ["| code | rule | default | breach |", "| --- | --- | --- | --- |"]
    for rule in rules:
        link = f"[{rule.code}]({folder}{rule.code}.md)"
        breach = rule.summary().replace("|", "\\|")
        rows.append(f"| {link} | {rule.slug} | {rule.severity.word} | {breach} |")
    return "\n".join(rows) + "\n"


def with_rules(text: str) -> str:
    """The document with the table of all rules between its marks."""
    table = rule_table(all_rules(), folder="docs/rules/")
    return MARKED.sub(lambda marks: f"{marks[1]}\n{table}\n{marks[2]}", text)


def with_output(text: str) -> str:
    """The document with what its commands print now."""
    if not BLOCK.search(text):
        return text
    with tempfile.TemporaryDirectory() as scratch:
        return BLOCK.sub(lambda block: f"```console\n{_replayed(block[1], Path(scratch))}```", text)


def _replayed(block: str, scratch: Path) -> str:
    """The commands of a block, each followed by its output."""
    return "".join(f"$ {command}\n{_output(command, scratch)}" for command in commands(block))


def commands(block: str) -> list[str]:
    """The commands of a `console` block: lines behind a ``$``, continued after a backslash."""
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)


def _output(command: str, scratch: Path) -> str:
    """What the command prints on a terminal of 80 columns without colours, both streams together."""
    shims, work = scratch / "bin", scratch / "work"
    if not work.exists():
        shims.mkdir()
        shim = shims / "tokaudit"
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tokaudit "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        shutil.copytree(PROJECT / "fixtures" / "tinylm", work / "fixtures" / "tinylm")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(shims), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(PROJECT),
        "COLUMNS": "80",
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
    }
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if result.returncode:
        sys.exit(f"$ {command}\n{result.stdout}exit code {result.returncode}: no example for a document")
    return result.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {
        path: text
        for path, text in documents().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(path.relative_to(PROJECT))
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
