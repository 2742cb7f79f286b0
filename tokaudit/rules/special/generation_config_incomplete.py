from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Role
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import path, place, states


class GenerationConfigIncomplete(Rule):
    """generation_config.json names no end-of-sequence id although config.json does.

    ## What it finds

    A `generation_config.json` without `eos_token_id` (or with null), beside a `config.json` that states one.

    ## Why it matters

    Where `generation_config.json` exists, loaders take the stop ids from it alone and never ask
    `config.json`. Nothing stops the model then: every answer runs to the length limit. It happens when the
    file is written by hand to set a temperature.

    ## How to fix it

    Copy `eos_token_id` from `config.json` into `generation_config.json`, or delete the latter.
    """

    code = "TA314"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        generation = contract.generation_config
        if not contract.generates or contract.speaks_another_vocabulary:
            raise FactMissing("the model does not generate the tokenizer's text")
        if any(field.ids or field.malformed for field in contract.fields(Role.EOS, generation=True)):
            return
        stated = [
            field
            for field in contract.fields(Role.EOS, generation=False)
            if field.ids and not field.by_default
        ]
        if stated:
            field = stated[0]
            value = list(field.ids[:5]) if field.is_list else field.ids[0]
            yield self.finding(
                f"generation_config.json names no end-of-sequence id; {place(field)} is "
                f"{contract.names(field.ids)} and is not asked",
                [Claim(generation.at, "eos_token_id is not stated"), states(contract, field)],
                why="loaders take the stop ids from generation_config.json alone: nothing stops the model",
                fix=f'add `"eos_token_id": {value}` to generation_config.json',
                subject=path(field),
            )
