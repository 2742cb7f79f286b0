"""Rebuild tokaudit/families/data/tokenizer_classes.json from a measurement of transformers' classes.

usage: make_tokenizer_classes.py MEASURED.json

The measurement lists, for transformers 5 and 4, every tokenizer class with the special tokens that its
constructor fills in. Kept are the class names per generation and the defaults that are texts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "tokaudit/families/data/tokenizer_classes.json"


def main(measured: str) -> None:
    source = json.loads(Path(measured).read_text(encoding="utf-8"))
    classes: dict[str, dict[str, object]] = {}
    for generation in ("v4", "v5"):
        for name, facts in source[generation]["classes"].items():
            entry = classes.setdefault(name, {"generations": []})
            entry["generations"] = [*entry["generations"], int(generation[1])]  # type: ignore[misc]
            defaults = facts.get("defaults", {})
            entry["defaults"] = {field: text for field, text in defaults.items() if isinstance(text, str)}
    versions = {generation: source[generation]["transformers"] for generation in ("v4", "v5")}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}"
        for name, entry in sorted(classes.items())
    ]
    TARGET.write_text(
        '{"transformers": ' + json.dumps(versions) + ',\n"classes": {\n' + ",\n".join(lines) + "\n}}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
