"""`plan_resize`: read both sides, ask the old tokenizer for the pieces, make the plan. No torch here."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tokaudit import audit
from tokaudit.contract import AddedToken, Contract, Document, Missing, Options
from tokaudit.errors import FactMissing, UsageError
from tokaudit.formats import limits
from tokaudit.formats.vocabulary_files import is_tokenizer_file
from tokaudit.load import Opening
from tokaudit.load.reader import Reader
from tokaudit.report import Report
from tokaudit.resize.make import Facts, make_plan, refuse_broken_source
from tokaudit.resize.pieces import OldTokenizer
from tokaudit.resize.plan import Plan
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.tables import growing_tables, refuse_adapter
from tokaudit.resize.tokens import roles_of_other, tokens_of_other, tokens_to_add, tokens_without_row
from tokaudit.tokenizing import TokenizerProcess

Directory = str | os.PathLike[str]


@dataclass(frozen=True)
class Prepared:
    """The plan and what it was made from: the source and its audit."""

    plan: Plan
    contract: Contract
    report: Report


def plan_resize(source: Directory, request: Request, *, to_tokenizer: Directory | None = None) -> Plan:
    """What ``resize`` would do; nothing is written. Raises Refused, UsageError and Unreadable."""
    return prepare(source, request, to_tokenizer).plan


def prepare(source: Directory, request: Request, to_tokenizer: Directory | None) -> Prepared:
    """Everything a resize decides before it writes. Raises Refused, UsageError and Unreadable."""
    if to_tokenizer is not None and (request.tokens or request.roles):
        raise UsageError("--to-tokenizer brings its own tokens", hint="give it without --add-token")
    if to_tokenizer is not None and os.path.realpath(to_tokenizer) == os.path.realpath(source):
        to_tokenizer = None  # fit the rows to the model's own tokenizer: every resize does
    with ExitStack() as stack:
        opening = stack.enter_context(Opening(source))
        taken = None if to_tokenizer is None else stack.enter_context(Opening(to_tokenizer))
        try:
            return _prepared(opening, taken, request)
        except FactMissing as missing:
            raise Refused(f"the resize cannot be planned: {missing.reason}") from None


def _prepared(opening: Opening, taken: Opening | None, request: Request) -> Prepared:
    """``taken`` is the directory of the other tokenizer, where there is one."""
    contract = opening.contract(Options())
    refuse_adapter(contract)
    report = audit.run(contract)
    refuse_broken_source(report, request)
    facts = Facts(contract, report, request, growing_tables(contract), request.roles)
    asked, process = contract, _running(opening)
    if taken is not None:
        other = taken.contract(Options(read_weights=False))
        _refuse_broken_tokenizer(other)
        added, roles = tokens_of_other(contract, other), roles_of_other(contract, other)
        facts = replace(facts, other=other, added=added, roles=roles)
        if process is None:
            asked, process = other, _running(taken)
    elif request.tokens or request.roles:
        facts = replace(facts, added=tokens_to_add(contract, request))
    rows = contract.embeddings.input.rows
    reader = Reader(opening.model)
    facts = replace(
        facts,
        rows=OldTokenizer(asked, process, rows).new_rows(request, _tokens_to_write(facts, rows)),
        special_map=reader.document("special_tokens_map.json"),
        index=_index(contract, reader),
    )
    return Prepared(make_plan(facts), contract, report)


def _refuse_broken_tokenizer(other: Contract) -> None:
    for part in other.damage:
        if is_tokenizer_file(part.file):
            raise Refused(
                f"the tokenizer in {other.name} cannot be used: {part.file}: {part.message}", hint=part.hint
            )
    if isinstance(other.vocabulary_or, Missing):
        raise Refused(f"no tokenizer in {other.name}: {other.vocabulary_or.reason}")


def _tokens_to_write(facts: Facts, rows: int) -> tuple[AddedToken, ...]:
    """The new tokens, and those that the tokenizer has already but the table has no row for."""
    vocabulary = (facts.other or facts.contract).vocabulary_or
    tokens = {token.id: token for token in tokens_without_row(vocabulary, rows)}
    tokens |= {token.id: token for token in facts.added}
    return tuple(tokens.values())


def _running(opening: Opening) -> TokenizerProcess | None:
    return opening.process if isinstance(opening.process, TokenizerProcess) else None


def _index(contract: Contract, reader: Reader) -> Document | Missing:
    index = contract.checkpoint.index_or
    return index if isinstance(index, Missing) else reader.document(index.file, limits.INDEX_BYTES)
