from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, Role, Token
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import states
from tokaudit.rules.special._kind import is_text_tower, turn_ends
from tokaudit.text import named

_ONLY_IF = "nothing, unless training should teach the model to stop at this token too: then pad with another"


class PadEqualsEos(Rule):
    """The pad token is the end-of-sequence token.

    ## What it finds

    A pad id that is also the tokenizer's end-of-sequence id: the tokenizer's own pad token, or where it
    declares none the `pad_token_id` of `config.json` or `generation_config.json`. It is a note where the pad
    token is only one member of a list of stop ids, as Qwen, Phi-3 and gpt-oss ship it (without
    configurations: where the chat template ends turns with another token): what ends a turn is not masked
    then. Models that never generate are not concerned.

    ## Why it matters

    Collators for language models replace the labels at every pad id by -100. Where that is also the
    end-of-sequence id, no loss ever reaches it, and the fine-tuned model does not learn to stop. For
    inference alone it is harmless, and base models are released so.

    ## How to fix it

    Before training, pad with another token: an unused reserved one, or a new one
    (`tokaudit resize SRC DST --add-token "<pad>"`), and write its id as `pad_token_id` in both
    configurations.
    """

    code = "TA303"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        eos = contract.role(Role.EOS)
        if not contract.generates or is_text_tower(contract):
            raise FactMissing("the model does not generate text")
        pads = list(_pads(contract))
        if not pads:
            raise FactMissing("no file names a pad token")
        same = [claim for id, claim in pads if id == eos.id]
        if same:
            yield self._finding(contract, eos, same)
            return
        for id, claim in pads:
            lists = [field for field in contract.stop_ids if field.is_list and id in field.ids]
            if lists:
                yield self.finding(
                    f"the pad token is one of the stop ids: {contract.named(id)}",
                    [claim, states(contract, lists[0])],
                    why="collators mask it in the labels; the eos token is another one and is not masked",
                    fix=_ONLY_IF,
                    severity=Severity.NOTE,
                    subject="pad",
                )
                return

    def _finding(self, contract: Contract, eos: Token, same: Sequence[Claim]) -> Finding:
        others = _other_ends(contract, eos)
        claims = [*same, Claim(eos.at, f"the eos token is {named(eos.id, eos.content)}")]
        message = f"the pad token is the end-of-sequence token: both are {named(eos.id, eos.content)}"
        if others:
            return self.finding(
                f"{message}; a turn can also end with {others[0].says}",
                [*claims, others[0]],
                why="collators mask the pad id in the labels; what else ends a turn is not masked",
                fix=_ONLY_IF,
                severity=Severity.NOTE,
                subject="pad",
            )
        return self.finding(
            message,
            claims,
            why="collators mask the pad id in the labels, so training never teaches the model to stop",
            fix="before training, pad with another token: a reserved one, or "
            '`tokaudit resize SRC DST --add-token "<pad>"`',
            subject="pad",
        )


def _other_ends(contract: Contract, eos: Token) -> list[Claim]:
    """Further stop ids; where no configuration names any, what else ends a turn in the chat template."""
    vocabulary = contract.vocabulary
    stops = [field for field in contract.stop_ids if field.ids]
    if stops:
        others = [(id, field.at) for field in stops for id in field.ids if id != eos.id]
    else:
        others = [
            (token.id, token.at)
            for template in contract.templates
            for token in turn_ends(contract, template)
            if token.id != eos.id
        ]
    return [Claim(at, named(id, vocabulary.text(id))) for id, at in others]


def _pads(contract: Contract) -> Iterator[tuple[int, Claim]]:
    """The ids that padding is done with: the tokenizer's, else what the configurations name."""
    token = contract.roles.get(Role.PAD)
    if token is not None:
        yield token.id, Claim(token.at, f"the pad token is {named(token.id, token.content)}")
        return
    for field in contract.fields(Role.PAD):
        for id in field.ids:
            if id >= 0 and not field.by_default:
                yield id, states(contract, field)
