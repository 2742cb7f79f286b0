from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document, Emission, Loaded, Vocabulary
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import named, shown

# Static embeddings look rows up for the words alone; what the post-processor says is never used.
_STATIC = frozenset({"model2vec", "static"})


class PostProcessorIdMismatch(Rule):
    """The post-processor emits an id that its token does not have.

    ## What it finds

    The post-processor of tokenizer.json names each token that it puts around a text by its string and by its
    id. The rule finds ids that are not the string's id in the vocabulary, and strings without any id.
    Definitions that no template uses do not count. Static-embedding models (model2vec) keep the
    post-processor of the encoder they were made of and never run it: a warning there.

    ## Why it matters

    The id is emitted as it stands, unchecked. After a vocabulary was retrained or cut, every text begins or
    ends with a wrong token, or with an id that has no row.

    ## How to fix it

    Set the id in `post_processor` to the one that the finding names, or set the post-processor anew:
    `tokenizer.post_processor = TemplateProcessing(...)`.
    """

    code = "TA310"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        at = vocabulary.pipeline.document.at
        static = (
            isinstance(contract.config_or, Document) and contract.config_or.data.get("model_type") in _STATIC
        )
        for emission in vocabulary.emissions:
            if emission.place == "unused" or emission.id in _ids(vocabulary, emission.content):
                continue
            declared = vocabulary.by_content.get(emission.content)
            has = "has no id" if declared is None else f"has id {declared}"
            there = vocabulary.text(emission.id)
            yield self.finding(
                f"the post-processor emits id {emission.id} for {shown(emission.content)}, which {has}",
                [
                    Claim(emission.at, f"{shown(emission.content)} is {emission.id}"),
                    *(vocabulary.claims(emission.content) if declared is not None else ()),
                    Claim(
                        at if there is None else vocabulary.locate(emission.id),
                        f"no token has id {emission.id}"
                        if there is None
                        else f"id {named(emission.id, there)}",
                    ),
                ],
                why="the id is emitted unchecked: every encoded text holds a wrong token there",
                fix=_fix(emission, declared),
                severity=Severity.WARNING if static else Severity.ERROR,
                subject=emission.content,
            )


def _ids(vocabulary: Vocabulary, content: str) -> set[int | None]:
    """The ids that a text has: as the files declare it, and as the library gives it."""
    found = {vocabulary.by_content.get(content)}
    if isinstance(vocabulary.loaded_or, Loaded):
        found.add(vocabulary.effective_id(content))
    return found


def _fix(emission: Emission, declared: int | None) -> str:
    if declared is None:
        return f"add {shown(emission.content)} to the vocabulary, or take it out of the post-processor"
    return f"set the id at {emission.at} to {declared}"
