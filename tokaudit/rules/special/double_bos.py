from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import ChatTemplate, Contract, Role, Token
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import named, shown


class DoubleBos(Rule):
    """The chat template prints the begin token and the post-processor adds it again.

    ## What it finds

    A chat template that prints the bos token (as `bos_token` or as its text), in a tokenizer whose
    post-processor puts the same token in front of every text. Llama 3 and Gemma ship so: it is no fault of
    the files, and a trap for those who use them.

    ## Why it matters

    Rendering the template to text and encoding that text with special tokens on, as most code does by
    default, gives two begin tokens. Models are rarely trained with two; answers get measurably worse, and
    fine-tuning on such data teaches it.

    ## How to fix it

    Encode rendered text with `add_special_tokens=False`, or let
    `apply_chat_template(..., tokenize=True)` do both. In vLLM's completion endpoint and in training
    frameworks look for the switch of that name.
    """

    code = "TA309"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        bos = contract.role(Role.BOS)
        printing = [template for template in contract.readable_templates if _prints(template, contract, bos)]
        adding = [
            emission
            for emission in contract.vocabulary.emissions
            if emission.place == "start" and emission.content == bos.content
        ]
        if printing and adding:
            yield self.finding(
                f"the chat template prints the bos token {named(bos.id, bos.content)}, "
                "and the post-processor adds it again",
                [
                    *(Claim(template.at, f"prints {shown(bos.content)}") for template in printing[:3]),
                    Claim(
                        adding[0].at, f"puts {named(adding[0].id, adding[0].content)} in front of every text"
                    ),
                ],
                why="rendered text that is encoded with special tokens on begins with two bos tokens",
                fix="encode rendered chats with `add_special_tokens=False`",
                subject="bos",
            )


def _prints(template: ChatTemplate, contract: Contract, bos: Token) -> bool:
    """Whether it prints bos: by name, or by a text that is not the end token's as well."""
    eos = contract.roles.get(Role.EOS)
    literal = bos.content in template.control and (eos is None or eos.id != bos.id)
    return literal or "bos_token" in template.prints
