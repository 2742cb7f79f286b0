from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document
from tokaudit.families.tokenizer_classes import (
    GENERIC_NAMES,
    generations,
    is_known_model_type,
    known_classes,
)
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import closest, shown


class UnknownTokenizerClass(Rule):
    """tokenizer_class names a class that no known version of transformers has.

    ## What it finds

    A `tokenizer_class` in `tokenizer_config.json` that neither transformers 4 nor 5 has, with the name that
    was probably meant. It is a note for a class that only version 5 has, and for a model type that
    transformers does not know either: its class comes with the model. Classes behind `auto_map` are code of
    the repository and are not judged, and neither is `TokenizersBackend`, the generic class that version 5
    writes (version 4 wants `PreTrainedTokenizerFast` in its place).

    ## Why it matters

    transformers 4 refuses to load the tokenizer. Version 5 falls back to the generic class, which reads
    `tokenizer.json` and ignores what the class would have set. Early Llama conversions with
    `LLaMATokenizer` are the classic case.

    ## How to fix it

    Set `"tokenizer_class": "PreTrainedTokenizerFast"`, which both versions have and which loads
    `tokenizer.json` as it stands, or the class of the family.
    """

    code = "TA415"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        stated = contract.tokenizer_config.string("tokenizer_class")
        versions = generations(stated.value)
        if stated.value in GENERIC_NAMES or 4 in versions:
            return
        # The fast class of a family of late version 4, which version 5 takes for the one without the ending.
        if not versions and generations(stated.value.removesuffix("Fast")) == (5,):
            return
        if any(_has_code(part) for part in (contract.tokenizer_config, contract.config_or)):
            return
        if versions:
            yield self.finding(
                f"tokenizer_class {shown(stated.value)} exists only in transformers {versions[0]}",
                [stated.says(f"names {shown(stated.value)}")],
                why="transformers 4 refuses to load the tokenizer by this name",
                fix='where version 4 is used, set "tokenizer_class": "PreTrainedTokenizerFast"',
                severity=Severity.NOTE,
                subject=stated.value,
            )
            return
        guess = _meant(stated.value)
        foreign = _comes_with_the_model(contract)
        meant = f'; did you mean "{guess}"?' if guess and not foreign else ""
        yield self.finding(
            f"no version of transformers has the tokenizer_class {shown(stated.value)}{meant}",
            [stated.says(f"names {shown(stated.value)}")],
            why="transformers 4 refuses to load it, version 5 falls back to the generic class",
            fix=f'set "tokenizer_class": "{guess if guess and not foreign else "PreTrainedTokenizerFast"}"',
            severity=Severity.NOTE if foreign else Severity.WARNING,
            subject=stated.value,
        )


def _meant(name: str) -> str | None:
    """The known class that differs in case alone, or else the most similar one."""
    by_lower = {known.lower(): known for known in known_classes()}
    return by_lower.get(name.lower()) or closest(name, known_classes())


def _has_code(document: object) -> bool:
    return isinstance(document, Document) and document.has("auto_map")


def _comes_with_the_model(contract: Contract) -> bool:
    """Whether another package, which has the model type, has the class as well."""
    config = contract.config_or
    model_type = config.data.get("model_type") if isinstance(config, Document) else None
    return isinstance(model_type, str) and not is_known_model_type(model_type)
