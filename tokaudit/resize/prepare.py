"""`plan_resize`: read both sides, ask the old tokenizer for the pieces, make the plan. No torch here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tokaudit import audit
from tokaudit.contract import AddedToken, Contract, Options
from tokaudit.errors import FactMissing, UsageError
from tokaudit.load import load
from tokaudit.resize.make import make_plan
from tokaudit.resize.pieces import decompose
from tokaudit.resize.plan import Plan
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.tokens import tokens_of_target, tokens_to_add


@dataclass(frozen=True)
class Prepared:
    contract: Contract
    target: Contract | None
    plan: Plan


def plan_resize(
    source: str | os.PathLike[str],
    request: Request,
    *,
    to_tokenizer: str | os.PathLike[str] | None = None,
) -> Plan:
    """What ``resize`` would do; nothing is written. Raises Refused, UsageError and Unreadable."""
    return prepare(source, request, to_tokenizer).plan


def prepare(
    source: str | os.PathLike[str],
    request: Request,
    to_tokenizer: str | os.PathLike[str] | None,
) -> Prepared:
    """Everything a resize decides before it writes. Raises Refused, UsageError and Unreadable."""
    if to_tokenizer is not None and (request.tokens or request.roles):
        raise UsageError("--to-tokenizer brings its own tokens", hint="give it without --add-token")
    contract = load(source, options=Options())
    report = audit.run(contract)
    target = None if to_tokenizer is None else load(to_tokenizer, options=Options(read_weights=False))
    try:
        if target is not None:
            added: Sequence[AddedToken] = tokens_of_target(contract, target)
        elif request.tokens or request.roles:
            added = tokens_to_add(contract, request)
        else:
            added = ()
        pieces = decompose(source, contract, request, added)
        return Prepared(contract, target, make_plan(contract, report, request, added, pieces, target))
    except FactMissing as missing:
        raise Refused(f"the resize cannot be planned: {missing.reason}") from None
