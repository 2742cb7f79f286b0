from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, IdField, Missing, Role, Token
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import path, states, token_ids, told
from tokaudit.rules.special._kind import LINE_BREAKS, is_text_tower
from tokaudit.text import named


class EosDisagree(Rule):
    """Generation does not stop at the tokenizer's end-of-sequence token.

    ## What it finds

    The ids at which generation stops are those of `generation_config.json`, or of `config.json` where that
    file is absent (its top, else its text part). The rule finds a tokenizer whose end-of-sequence token is
    not among them. They are compared as a set: a list that holds more ids is fine.

    It is a note where only `config.json` differs and `generation_config.json` has the token, because loaders
    then never ask `config.json`; and for encoders and text towers of image-text models, which do not
    generate. It is a warning where generation stops at a line break: captioning models (BLIP-2 on OPT) are
    trained so.

    ## Why it matters

    The model was trained to end with one token and the loop waits for another: answers run on until the
    length limit, with the end token printed in the middle or the next turn made up.

    ## How to fix it

    Write the tokenizer's id into `eos_token_id` of `generation_config.json` (keep the other ids in a list:
    `"eos_token_id": [2, 32000]`) and of `config.json`. If the configuration is right, correct `eos_token` in
    `tokenizer_config.json` instead.
    """

    code = "TA304"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        eos = contract.role(Role.EOS)
        if contract.speaks_another_vocabulary:
            raise FactMissing("what the model generates is not in the tokenizer's vocabulary")
        stops = [field for field in contract.stop_ids if field.ids]
        if not stops:
            raise FactMissing("no configuration names an end-of-sequence id")
        ids = token_ids(contract, eos)
        if not any(ids & set(field.ids) for field in stops):
            yield self._never_stops(contract, eos, stops)
        elif not isinstance(contract.generation_config_or, Missing):
            yield from self._stale_config(contract, eos, stops[0])

    def _never_stops(self, contract: Contract, eos: Token, stops: list[IdField]) -> Finding:
        ids = [id for field in stops for id in field.ids]
        wanted = [eos.id, *(id for id in ids if stops[0].is_list)]
        return self.finding(
            f"generation does not stop at the tokenizer's end-of-sequence token "
            f"{named(eos.id, eos.content)}: {told(contract, stops[0])}",
            [
                *(states(contract, field) for field in stops),
                Claim(eos.at, f"the eos token is {named(eos.id, eos.content)}"),
                *contract.vocabulary.claims(eos.content),
            ],
            why="generation runs past the end token until its length limit"
            if contract.generates
            else "the model does not generate, so only tools that read the id are misled",
            fix=f"set {path(stops[0])} to {wanted if len(wanted) > 1 else eos.id} in {stops[0].at.file}, "
            "or correct eos_token in tokenizer_config.json",
            severity=_severity(contract, ids),
            subject="eos",
        )

    def _stale_config(self, contract: Contract, eos: Token, stop: IdField) -> Iterator[Finding]:
        for field in contract.fields(Role.EOS, generation=False):
            if field.ids and not field.by_default and not token_ids(contract, eos) & set(field.ids):
                yield self.finding(
                    f"{told(contract, field)}, without the tokenizer's "
                    f"end-of-sequence token {named(eos.id, eos.content)} that generation_config.json has",
                    [states(contract, field), states(contract, stop)],
                    why="generation reads generation_config.json; tools that read config.json are misled",
                    fix=f"set {path(field)} to {eos.id} in {field.at.file}",
                    severity=Severity.NOTE,
                    subject="eos",
                )


def _severity(contract: Contract, stops: list[int]) -> Severity:
    if not contract.generates or is_text_tower(contract):
        return Severity.NOTE
    breaks_lines = any(contract.vocabulary.text(id) in LINE_BREAKS for id in stops)
    return Severity.WARNING if breaks_lines else Severity.ERROR
