"""The rules that `tokaudit data` applies: those about token data, and no other."""

from __future__ import annotations

from tokaudit.audit import select_rules
from tokaudit.rule import Rule

CODES = ("TA901", "TA902", "TA903", "TA904", "TA905", "TA907")


def data_rules() -> tuple[type[Rule], ...]:
    return select_rules(CODES)
