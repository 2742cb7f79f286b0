"""Where a tokenizer keeps its chat templates, and in which order loaders look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tokaudit.contract import Document, Missing
from tokaudit.findings import Location

FILE = "chat_template.jinja"
FOLDER = "additional_chat_templates/"
PROCESSOR_FILE = "chat_template.json"


def template_files(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, file) of each template that is a file of its own; the default one first."""
    if FILE in names:
        yield "default", FILE
    for name in sorted(names):
        if name.startswith(FOLDER) and name.endswith(".jinja"):
            yield name[len(FOLDER) : -len(".jinja")], name


def stated_templates(document: Document | Missing) -> Iterator[tuple[str, str, Location]]:
    """(name, source, where) of the templates inside a JSON file: a text, or a list of named ones."""
    if isinstance(document, Missing):
        return
    stated = document.data.get("chat_template")
    at = document.at.child("chat_template")
    if isinstance(stated, str):
        yield "default", stated, at
    elif isinstance(stated, list):
        for index, entry in enumerate(stated):
            if isinstance(entry, dict) and isinstance(entry.get("template"), str):
                yield str(entry.get("name", index)), entry["template"], at.child(index, "template")
