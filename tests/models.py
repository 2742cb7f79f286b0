"""Model directories for tests, built from the descriptions under fixtures/."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"

_spec = importlib.util.spec_from_file_location("build_case", FIXTURES / "build_case.py")
assert _spec is not None
assert _spec.loader is not None
_builder = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_builder)

Description = dict[str, Any]


def base(name: str) -> Description:
    """A complete small model, as a description that may be changed."""
    description: Description = json.loads((FIXTURES / "bases" / f"{name}.json").read_text(encoding="utf-8"))
    return description


def changed(description: Description, change: Description, remove: tuple[str, ...] = ()) -> Description:
    """The description with a JSON merge patch applied and paths ("json/config.json/pad_token_id") removed."""
    result = _merged(copy.deepcopy(description), change)
    for path in remove:
        *steps, last = path.split("/")
        here = result
        for step in steps:
            here = here[step]
        del here[last]
    return result


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def build(description: Description, out: Path) -> Path:
    """Write the described directory."""
    _builder.build_dir(description, out)
    return out


def build_case(case: Description, out: Path) -> dict[str, Path]:
    """Write every directory of a case; the paths by name."""
    return {name: build(description, out / name) for name, description in case["dirs"].items()}


def save_optimizer(shapes: dict[str, dict[str, list[int]]], path: Path) -> Path:
    """The state of an optimizer as torch saves it; names of digits become the numbers of parameters."""
    import torch

    state = {
        int(name) if name.isdecimal() else name: {
            "step": torch.tensor(1.0),
            **{tensor: torch.zeros(shape) for tensor, shape in tensors.items()},
        }
        for name, tensors in shapes.items()
    }
    torch.save({"state": state, "param_groups": [{"lr": 1e-4, "params": list(state)}]}, path)
    return path
