from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, Pipeline, SpecialToken
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class SpecialTokenNotInVocabulary(Rule):
    """A declared special token is no text, or the vocabulary lacks it and nothing adds it.

    ## What it finds

    Special tokens of `tokenizer_config.json` or `special_tokens_map.json` that are empty or no text at all
    (a number, a list, an object without content), as loaders read the two files; and the `unk_token` of
    tokenizer.json's own model where the model needs one and its vocabulary lacks it. Other special tokens
    without an id are appended when the tokenizer is loaded: `token-appended-on-load` reports those.

    ## Why it matters

    An empty token has no id: the begin or end token is silently left out, or the unknown token's id stands
    in for it. A value that is no text makes the tokenizer fail to load. An unknown token that the vocabulary
    lacks makes encoding fail at the first unknown word.

    ## How to fix it

    Write the token's text, as the vocabulary has it: `"eos_token": "</s>"`. Where the model has no such
    token, write `null`. Early Llama conversions declare empty strings; their tokens are `<s>`, `</s>` and
    `<unk>`.
    """

    code = "TA306"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        empty = [special for special in contract.special_tokens if special.malformed == "empty"]
        if empty:
            yield self._empty(empty)
        for special in contract.special_tokens:
            if special.malformed and special.malformed != "empty":
                yield self.finding(
                    f"{special.name} is {special.malformed}",
                    [Claim(special.at, special.malformed)],
                    why="the tokenizer does not load",
                    fix=f"write the token's text there, or null for none (in {special.at.file})",
                    subject=special.name,
                )
        yield from self._unknown(contract)

    def _empty(self, empty: Sequence[SpecialToken]) -> Finding:
        names = [special.name for special in empty]
        verb = "is" if len(empty) == 1 else "are"
        return self.finding(
            f"{counted(len(empty), 'special token')} {verb} declared as an empty string: {listed(names)}",
            [Claim(special.at, f'{special.name} is ""') for special in empty[:5]],
            why="an empty token has no id: it is silently left out, or the unknown token stands in for it",
            fix="write the texts that the vocabulary has, as `</s>`, or null for none",
            subject=names[0],
        )

    def _unknown(self, contract: Contract) -> Iterator[Finding]:
        """The model's own unk_token: the library looks it up in the base vocabulary and nowhere else."""
        pipeline = contract.vocabulary.pipeline
        unknown = pipeline.model.data.get("unk_token")
        if (
            isinstance(unknown, str)
            and _meets_unknown_text(pipeline)
            and unknown not in contract.vocabulary.base.ids
        ):
            at = pipeline.model.at.child("unk_token")
            yield self.finding(
                f"the model's unknown token {shown(unknown)} is not in its vocabulary",
                [Claim(at, f"unk_token is {shown(unknown)}"), Claim(contract.vocabulary.base.at, "lacks it")],
                why="encoding fails at the first text that the vocabulary does not cover",
                fix=f"add {shown(unknown)} to model.vocab, or name the unknown token that stands there",
                subject="unk",
            )


def _meets_unknown_text(pipeline: Pipeline) -> bool:
    """Whether some text has no tokens: not where every byte is one."""
    if pipeline.model_type == "BPE":
        return not (pipeline.byte_level or pipeline.model.data.get("byte_fallback"))
    return pipeline.model_type in ("WordPiece", "WordLevel")
