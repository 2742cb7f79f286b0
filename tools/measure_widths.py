"""Measure, per transformers class, which config field gives each table's width.

    python tools/measure_widths.py FAMILIES.json > tools/widths.tsv

families.json tells rows but not widths. Every class that it lists is built on the meta device from its
default configuration; each integer field that equals the width of a table is then doubled in turn, and the
field that moves the width is the one. The same build tells whether `pad_token_id` becomes the padding index
of the input table (the id is set to 1 first), and `attribute_map` which other name a size may be stated
under. Classes that cannot be built like that (a missing library, a configuration without defaults) are left
out; make_families.py has their widths by hand where the source is plain.

Columns: class, model_type, input width, output width, whether the input table pads, aliases "a=b,...".
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch  # noqa: TID251
import transformers

SIZE_FIELD = re.compile(r"size|dim|embd|embed|model|width|hidden")
PAD = 1


def configs(config: Any) -> Iterator[Any]:
    """The configuration and every one nested in it."""
    yield config
    for member in list(vars(config).values()):
        if isinstance(member, transformers.PreTrainedConfig):
            yield from configs(member)


def section(config: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        config = getattr(config, name)
    return config


def build(record: dict[str, Any], change: Callable[[Any], None], pad: bool) -> tuple[Any, torch.nn.Module]:
    config = getattr(transformers, record["config_class"])()
    if pad:
        for part in configs(config):
            if getattr(part, "vocab_size", None):
                part.pad_token_id = PAD
    change(config)
    quiet = io.StringIO()
    with torch.device("meta"), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        return config, getattr(transformers, record["architecture"])(config)


def width(model: torch.nn.Module, table: dict[str, Any]) -> int | None:
    weights = dict(model.named_parameters(remove_duplicate=False))
    weight = weights.get(table["key"])
    return None if weight is None or weight.ndim != 2 else weight.shape[1 - table["vocab_axis"]]


def width_field(record: dict[str, Any], table: dict[str, Any], pad: bool) -> str:
    """The path of the field that moves the table's width, "" where none or several do."""
    config, model = build(record, lambda config: None, pad)
    wide = width(model, table)
    first = table["rows"].get("config") or table["rows"]["sum"][0]
    moved = []
    for path in dict.fromkeys((first.rpartition(".")[0], "")):
        for name, value in vars(section(config, path)).items():
            if type(value) is int and value == wide and SIZE_FIELD.search(name):

                def double(config: Any, path: str = path, name: str = name) -> None:
                    setattr(section(config, path), name, 2 * wide)

                with contextlib.suppress(Exception):
                    if width(build(record, double, pad)[1], table) == 2 * wide:
                        moved.append(f"{path}.{name}" if path else name)
    return moved[0] if len(moved) == 1 else ""


def pads(record: dict[str, Any], table: dict[str, Any]) -> bool:
    _, model = build(record, lambda config: None, True)
    module = model.get_submodule(table["key"].rpartition(".")[0])
    return getattr(module, "padding_idx", None) == PAD


def aliases(record: dict[str, Any]) -> str:
    names = getattr(transformers, record["config_class"]).attribute_map
    return ",".join(f"{name}={field}" for name, field in sorted(names.items()) if field == "vocab_size")


def one_table(table: dict[str, Any] | None) -> dict[str, Any] | None:
    if table and "list" in table:
        table = table["list"][0]
    return table if table and "rows" in table else None


def measure(record: dict[str, Any]) -> str:
    given, out = one_table(record["input"]), one_table(record["head"])
    found = {"input": "", "output": "", "pads": "", "aliases": ""}
    for pad in (True, False):
        with contextlib.suppress(Exception):
            found["aliases"] = aliases(record)
            found["input"] = width_field(record, given, pad) if given else ""
            found["output"] = width_field(record, out, pad) if out else ""
            found["pads"] = "pads" if given and pad and pads(record, given) else ""
            break
    return "\t".join((record["architecture"], record["model_type"], *found.values()))


def main(path: str) -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    with open(path, encoding="utf-8") as file:
        families = json.load(file)["families"]
    for record in families:
        if record["transformers"] == transformers.__version__:
            line = measure(record)
            if line.rstrip("\t").count("\t") > 1:
                print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
