from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown

_ROLE_NAMES = frozenset({"<|system|>", "<|user|>", "<|assistant|>"})


class TemplateTokenMissing(Rule):
    """The chat template prints control tokens that the vocabulary does not have.

    ## What it finds

    Texts such as `<|im_start|>` that the chat template prints and that no file of the tokenizer gives an id.
    The template is read, never rendered: texts that it only compares or searches for do not count. Tokens
    that are declared special and appended when the tokenizer is loaded are left to `token-appended-on-load`.
    It is a note where all that is missing are the names of the roles (`<|system|>`, `<|user|>`,
    `<|assistant|>`): Zephyr, TinyLlama and Tulu are trained with them as plain text.

    ## Why it matters

    A control token without an id is split into pieces like any other text. A template taken from another
    family then costs many tokens for each marker, and the model was not trained on them.

    ## How to fix it

    Use the chat template of the family that the tokenizer belongs to. To make the markers tokens before
    fine-tuning: `tokaudit resize SRC DST --add-token "<|im_start|>" --add-token "<|im_end|>"`.
    """

    code = "TA311"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        base = vocabulary.base
        declared = {special.content for special in contract.special_tokens}
        for template in contract.readable_templates:
            missing = [
                text
                for text in template.control
                if text not in vocabulary.by_content and text not in declared
            ]
            if missing:
                have = "that has no id" if len(missing) == 1 else "that have no id"
                yield self.finding(
                    f"the {template.title} chat template prints {counted(len(missing), 'control token')} "
                    f"{have}: {listed([shown(text) for text in missing])}",
                    [Claim(template.at, f"prints {shown(missing[0])}"), Claim(base.at, "does not have it")],
                    why="without an id the marker is split into pieces that the model was not trained on",
                    fix="use the chat template that belongs to this tokenizer; or give the markers ids: "
                    f"`{_command(missing)}`",
                    severity=Severity.NOTE if set(missing) <= _ROLE_NAMES else Severity.WARNING,
                    subject=template.title,
                )


def _command(missing: list[str]) -> str:
    return " ".join(["tokaudit resize SRC DST", *(f"--add-token {quote(text)}" for text in missing[:2])])
