"""Contract + rules -> Report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from tokaudit.contract import Adapter, Base, Contract, Table, Vocabulary, reserved_name
from tokaudit.errors import FactMissing, Unreadable, UsageError
from tokaudit.findings import Finding
from tokaudit.report import (
    AdapterFacts,
    DataFacts,
    IdCount,
    Report,
    RuleRef,
    Skipped,
    Summary,
    TableFacts,
    Tokens,
)
from tokaudit.rule import Rule, all_rules, find_rule, unknown_rule

T = TypeVar("T")

MOST_FREQUENT = 5  # ids of token data that a report shows


def select_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[type[Rule], ...]:
    """The rules that a selection names: codes, slugs or prefixes of codes ("TA2" is every tie rule).

    An empty ``select`` means all that files can breach. Raises UsageError for a name that no rule has, and
    where no rule is left.
    """
    chosen = [
        rule
        for rule in all_rules()
        if (any(_matches(rule, name) for name in select) if select else not rule.live)
    ]
    for name in (*select, *ignore):
        if not any(_matches(rule, name) for rule in all_rules()):
            raise unknown_rule(name)
    left = tuple(rule for rule in chosen if not any(_matches(rule, name) for name in ignore))
    if not left:
        raise UsageError("no rule is left to check", hint="what is selected is ignored, or off, as well")
    return left


def _matches(rule: type[Rule], name: str) -> bool:
    return find_rule(name) is rule or (name.upper().startswith("TA") and rule.code.startswith(name.upper()))


def run(contract: Contract, rules: Iterable[type[Rule]] | None = None) -> Report:
    """Apply the rules, by default all that files can breach.

    A fact that is missing makes a rule skipped, never passed.

    A rule that fails, which is a bug of it, leaves no verdict; what the others find is reported all the same.
    With TOKAUDIT_DEBUG in the environment its exception is raised.
    """
    failures: list[Unreadable] = []
    findings: list[Finding] = []
    checked: list[RuleRef] = []
    skipped: list[Skipped] = []
    for rule in select_rules() if rules is None else rules:
        ref = RuleRef(rule.code, rule.slug, rule.area())
        before = len(findings)
        try:
            for finding in rule().check(contract):
                findings.append(finding)
        except FactMissing as missing:
            skipped.append(Skipped(ref, missing.reason))
            if len(findings) == before:
                continue
        except Exception as error:
            if os.environ.get("TOKAUDIT_DEBUG"):
                raise
            failures.append(_bug(ref, error))
            continue
        checked.append(ref)
    findings.sort(key=lambda finding: (-finding.severity, finding.rule, finding.subject))
    return Report(
        target=contract.name,
        summary=summarise(contract),
        findings=tuple(findings),
        suppressed=(),
        checked=tuple(checked),
        skipped=tuple(skipped),
        unreadable=(*contract.unreadable, *failures),
    )


def _bug(rule: RuleRef, error: Exception) -> Unreadable:
    what = f"{rule.code} {rule.slug} failed: {type(error).__name__}: {error}"
    return Unreadable("internal", "", what, hint="please report it, with what TOKAUDIT_DEBUG=1 prints")


def summarise(contract: Contract) -> Summary:
    """The facts for a report's header."""
    stops = {id for field in contract.stop_ids for id in field.ids}
    return Summary(
        architecture=_known(lambda: contract.architecture) or None,
        model_type=_known(lambda: contract.config.string("model_type").value),
        tables_found_by=_known(lambda: contract.embeddings.source),
        tokenizer_kind=_known(lambda: contract.vocabulary.pipeline.kind),
        base_tokens=_known(lambda: len(contract.vocabulary.base.ids)),
        added_tokens=_known(lambda: _count_beyond_base(contract.vocabulary)),
        required_rows=_known(lambda: contract.vocabulary.required_rows.value),
        vocab_size=next((fact.value for fact in _known(lambda: contract.embeddings.vocab_sizes) or ()), None),
        input=_known(lambda: _table(contract.embeddings.input)),
        output=_known(lambda: _table(contract.embeddings.output)),
        tied=_known(lambda: contract.embeddings.tie.tied),
        weights_bytes=_known(lambda: contract.checkpoint.nbytes),
        weights_files=_known(lambda: len(contract.checkpoint.shards)),
        parameters=_known(lambda: contract.module.parameter_count),
        parameters_untied=_known(lambda: contract.module.untied_count),
        roles=tuple(contract.roles.items()),
        values=_known(lambda: contract.values),
        data=_known(lambda: _data(contract)),
        input_rows=_known(lambda: contract.embeddings.input_rows.value),
        tables=tuple(map(_table, _known(lambda: contract.embeddings.tables) or ())),
        tokens=_known(lambda: _tokens(contract)) if contract.options.tokens else None,
        adapter=_known(lambda: _adapter(contract.adapter)),
        stop_ids=tuple((id, contract.text(id)) for id in sorted(stops)),
        absent=contract.absent_sides,
    )


def _data(contract: Contract) -> DataFacts:
    """Raises FactMissing."""
    data, texts = contract.data, contract.vocabulary.by_id
    counts = data.statistics

    def counted(id: int) -> IdCount:
        return IdCount(id, texts.get(id), counts.count(id))

    return DataFacts(
        data=data,
        roles=tuple((role, counted(token.id)) for role, token in contract.roles.items()),
        frequent=tuple(counted(id) for id, _ in counts.frequent(MOST_FREQUENT)),
        visited=sum(counts.count(id) > 0 for id in texts),
        tokens=len(texts),
    )


def _table(table: Table) -> TableFacts:
    rows = table.rows_or if isinstance(table.rows_or, int) else None
    tensor = table.tensor
    return TableFacts(table.name, rows, table.hidden, tensor.dtype, tensor.file, tensor.nbytes, table.kind)


def _tokens(contract: Contract) -> Tokens:
    vocabulary = contract.vocabulary
    base = vocabulary.base_ids
    ids = vocabulary.by_content
    texts = vocabulary.by_id
    marked = {ids[token.content] for token in vocabulary.added if token.special}
    reserved = {id for id, text in texts.items() if reserved_name(text) and id not in contract.uses}
    return Tokens(
        texts=texts,
        added=frozenset(ids[token.content] for token in vocabulary.added if token.content not in base),
        special=frozenset(marked.union(token.id for token in contract.roles.values()) - reserved),
        reserved=frozenset(reserved),
        referred_by={
            id: tuple(dict.fromkeys(reference.words for reference in references))
            for id, references in contract.references.items()
        },
    )


def _adapter(adapter: Adapter) -> AdapterFacts:
    tables = _known(lambda: adapter.tables) or ()
    base = adapter.base_or if isinstance(adapter.base_or, Base) else None
    rows = None if base is None else _known(lambda: base.addressable.value)
    return AdapterFacts(
        method=adapter.method,
        base=None if base is None else base.name,
        named_by=None if base is None else str(base.named_by or "--base"),
        architecture=None if base is None else base.embeddings.architecture or None,
        rows=rows,
        tables=tuple(
            (table.module, table.change.value, table.rows_or if isinstance(table.rows_or, int) else None)
            for table in tables
        ),
    )


def _count_beyond_base(vocabulary: Vocabulary) -> int:
    return sum(token.content not in vocabulary.base_ids for token in vocabulary.added)


def _known(ask: Callable[[], T]) -> T | None:
    """The fact, or None: the header shows what there is."""
    try:
        return ask()
    except FactMissing:
        return None
