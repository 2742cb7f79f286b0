from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Pipeline, Treatment
from tokaudit.families.tokenizer_classes import canonical
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import shown
from tokaudit.tokenizing.rebuild import built_kind


class TokenizerClassMismatch(Rule):
    """tokenizer_class belongs to another kind of tokenizer than tokenizer.json holds.

    ## What it finds

    A class for one kind (byte-level BPE, SentencePiece BPE, WordPiece, Unigram) over a `tokenizer.json` of
    another kind. It is a warning when `AutoTokenizer` of transformers 5 builds the class's own pipeline for
    this model, and a note when it is known to load the file as it stands: DeepSeek ships
    `LlamaTokenizerFast` over byte-level BPE, and transformers recognises that.

    ## Why it matters

    A class that builds its own pipeline splits text in a way that the vocabulary was not made for: most words
    become bytes or unknown tokens. Slow tokenizers and converters go by the class as well.

    ## How to fix it

    Set `"tokenizer_class": "PreTrainedTokenizerFast"` in `tokenizer_config.json`, which loads the file as it
    stands everywhere.
    """

    code = "TA407"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        known = vocabulary.tokenizer_class
        name = canonical(known.stated) if known.stated else known.name
        expected, found = built_kind(name), _kind(vocabulary.pipeline)
        if not expected or expected == found:
            return
        rebuilds = known.treatment is Treatment.REBUILT
        wrongly = rebuilds and built_kind(known.name) != found
        what = f"builds {known.name}'s own pipeline" if rebuilds else known.treatment.value
        yield self.finding(
            f"{shown(known.stated or known.name)} is a class for {expected}, tokenizer.json holds "
            f"{vocabulary.pipeline.kind}; transformers 5 {what}",
            [
                known.says(f"names {shown(known.stated)}" if known.stated else f"means {name}"),
                vocabulary.pipeline.model.value("vocab").says(f"belongs to {vocabulary.pipeline.kind}"),
            ],
            why="a loader that goes by the class splits text in a way that the vocabulary was not made for",
            fix='set "tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json',
            severity=Severity.WARNING if wrongly else Severity.NOTE,
            subject=known.stated or known.name,
        )


def _kind(pipeline: Pipeline) -> str:
    """The kind without the difference between the two ways to write spaces."""
    return pipeline.kind if pipeline.kind != "BPE" else "SentencePiece BPE"
