from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Emission, Loaded, Vocabulary
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._kind import is_static
from tokaudit.text import listed, named, shown


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
        wrong = [
            emission
            for emission in vocabulary.emissions
            if emission.place != "unused" and emission.id not in _ids(vocabulary, emission.content)
        ]
        if not wrong:
            return
        says = [
            f"{emission.id} for {shown(emission.content)}, {_has(vocabulary, emission)}" for emission in wrong
        ]
        yield self.finding(
            f"the post-processor emits {'an id' if len(wrong) == 1 else 'ids'} that the token does not have: "
            f"{listed(says, most=3)}",
            [claim for emission in wrong[:3] for claim in _claims(vocabulary, emission, at)],
            why="the id is emitted unchecked: every encoded text holds a wrong token there",
            fix=_fix(vocabulary, wrong[0]),
            severity=Severity.WARNING if is_static(contract) else Severity.ERROR,
            subject="post_processor",
        )


def _ids(vocabulary: Vocabulary, content: str) -> set[int | None]:
    """The ids that a text has: as the files declare it, and as the library gives it."""
    found = {vocabulary.by_content.get(content)}
    if isinstance(vocabulary.loaded_or, Loaded):
        found.add(vocabulary.loaded_or.effective.get(content))
    return found


def _has(vocabulary: Vocabulary, emission: Emission) -> str:
    declared = vocabulary.by_content.get(emission.content)
    return "which has no id" if declared is None else f"which has id {declared}"


def _claims(vocabulary: Vocabulary, emission: Emission, file: Location) -> Iterator[Claim]:
    """What the post-processor says, what the vocabulary says, and which token the emitted id is."""
    yield Claim(emission.at, f"{shown(emission.content)} is {emission.id}")
    if emission.content in vocabulary.by_content:
        yield from vocabulary.claims(emission.content)
    there = vocabulary.text(emission.id)
    if there is None:
        yield Claim(file, f"no token has id {emission.id}")
    else:
        yield Claim(vocabulary.locate(emission.id), f"id {named(emission.id, there)}")


def _fix(vocabulary: Vocabulary, emission: Emission) -> str:
    declared = vocabulary.by_content.get(emission.content)
    if declared is None:
        return f"add {shown(emission.content)} to the vocabulary, or take it out of the post-processor"
    return f"set the id at {emission.at} to {declared}"
