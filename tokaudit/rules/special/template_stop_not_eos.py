from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import ChatTemplate, Contract, Document, IdField, Role, Token
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import path, states
from tokaudit.rules.special._kind import turn_ends
from tokaudit.text import listed, named, shown

# Model types whose models are trained to end with the tokenizer's own token, whatever the template prints.
_ENDS_WITH_EOS = frozenset({"gemma", "recurrent_gemma"})


class TemplateStopNotEos(Rule):
    """No token that ends an assistant's turn in the chat template is one that generation stops at.

    ## What it finds

    The chat template is followed (never rendered) through an assistant's message, to the control tokens that
    it prints after the text. If none of them is among the stop ids (those of `generation_config.json`, or of
    `config.json` where that file is absent), generation does not stop when the turn ends. gpt-oss ends
    messages with `<|end|>` and turns with `<|return|>` or `<|call|>`: the turn counts.

    The rule is silent where the template prints nothing after the text that is a token, and where the turn
    ends with the tokenizer's own end-of-sequence token: whether generation stops at that one is what
    `eos-disagree` says.

    It is a warning where `generation_config.json` asks for greedy decoding (`"do_sample": false`): base
    models are released so, and carry a chat template for those who fine-tune them (Qwen2.5, Qwen3). Nothing
    else in their files tells them from a chat model whose stop id was forgotten. It is a warning for Gemma 1,
    too, which ends its answers with `<eos>` although its template closes turns with `<end_of_turn>`.

    ## Why it matters

    A chat model ends its answer as its template does. A generation loop that waits for another token goes
    on: it prints the marker and plays the user's next turn too, until the length limit.

    ## How to fix it

    Add the id to the stop ids: `"eos_token_id": [128001, 128009]` in `generation_config.json`. For a base
    model that was given a chat template, use a template that ends turns with its `eos_token`.
    """

    code = "TA312"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        templates = contract.readable_templates
        if not contract.generates or contract.speaks_another_vocabulary:
            raise FactMissing("the model does not generate the tokenizer's text")
        stops = [field for field in contract.stop_ids if field.ids]
        if not stops:
            raise FactMissing("no configuration names an end-of-sequence id")
        ends = {template.at: turn_ends(contract, template) for template in templates}
        if not any(ends.values()):
            raise FactMissing("the chat template does not show which token ends an assistant's turn")
        stop_ids = {id for field in stops for id in field.ids}
        eos = contract.roles.get(Role.EOS)
        for template in templates:
            ids = {token.id for token in ends[template.at]}
            if ids and not ids & stop_ids and (eos is None or eos.id not in ids):
                yield self._finding(contract, template, ends[template.at], stops)

    def _finding(
        self, contract: Contract, template: ChatTemplate, ends: list[Token], stops: list[IdField]
    ) -> Finding:
        stop_ids = [id for field in stops for id in field.ids]
        last = ends[-1]
        return self.finding(
            f"the {template.title} chat template ends an assistant's turn with "
            f"{listed([named(token.id, token.content) for token in ends])}, and generation stops at "
            f"{contract.names(stop_ids)}",
            [
                Claim(
                    template.at, f"prints {listed([shown(token.content) for token in ends])} after the text"
                ),
                *(states(contract, field) for field in stops),
                *(Claim(token.at, f"id {named(token.id, token.content)}") for token in ends[:3]),
            ],
            why="the model ends its answer with a token that generation ignores, and goes on",
            fix=f"set {path(stops[0])} to {[*stop_ids[:5], last.id]} in {stops[0].at.file}",
            severity=Severity.WARNING if _is_released_so(contract) else Severity.ERROR,
            subject=template.title,
        )


def _is_released_so(contract: Contract) -> bool:
    """Whether generation_config.json switches sampling off, as base models do, or it is a Gemma 1."""
    generation, config = contract.generation_config_or, contract.config_or
    greedy = isinstance(generation, Document) and generation.data.get("do_sample") is False
    return greedy or (isinstance(config, Document) and config.data.get("model_type") in _ENDS_WITH_EOS)
