"""What is known of transformers' tokenizer classes: which exist, and the special tokens they fill in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _classes() -> Mapping[str, Mapping[str, Any]]:
    data = files("tokaudit.families").joinpath("data/tokenizer_classes.json").read_bytes()
    classes: Mapping[str, Mapping[str, Any]] = json.loads(data)["classes"]
    return classes


def class_defaults(name: str) -> Mapping[str, str]:
    """Special tokens (by field name, "bos_token") that the class's constructor fills in; empty if unknown."""
    entry = _classes().get(name)
    return entry["defaults"] if entry else {}


def generations(name: str) -> tuple[int, ...]:
    """The major versions of transformers that have this class; empty for an unknown one."""
    entry = _classes().get(name)
    return tuple(entry["generations"]) if entry else ()


def known_classes() -> frozenset[str]:
    return frozenset(_classes())
