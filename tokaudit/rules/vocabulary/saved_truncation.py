from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document, Fact
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._context import context_lengths


class SavedTruncation(Rule):
    """Truncation or fixed padding is saved inside tokenizer.json.

    ## What it finds

    `truncation` in `tokenizer.json` to fewer tokens than the model's context (`model_max_length` of
    `tokenizer_config.json`, the position table of `config.json`), and `padding` to a fixed length. It is a
    note when the length equals the context, as sentence encoders ship it. Padding to the longest text of a
    batch is fine.

    ## Why it matters

    Whatever reads the file with the `tokenizers` library itself (text-embeddings-inference, training scripts,
    other languages) cuts every text there without a word, or pads every text to that length. The setting is
    usually left over from the call that was made before the tokenizer was saved.

    ## How to fix it

    Set `"truncation": null` and `"padding": null` in `tokenizer.json`, or load it and call
    `no_truncation()` and `no_padding()` before saving. If a limit is meant, state it as `model_max_length`.
    """

    code = "TA406"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        document = contract.vocabulary.pipeline.document
        saved = [
            *_length(document, "truncation", "max_length"),
            *_length(document, "padding", "strategy", "Fixed"),
        ]
        if not saved:
            return
        contexts = context_lengths(contract)
        if not contexts:
            raise FactMissing("neither tokenizer_config.json nor config.json states how long a text may be")
        shortest = min(saved, key=lambda fact: fact.value)
        whole = any(shortest.value >= context.value for context in contexts)
        words = " and ".join(f"{fact.at.pointer.split('/')[1]} to {fact.value} tokens" for fact in saved)
        context = max(contexts, key=lambda fact: fact.value)
        yield self.finding(
            f"tokenizer.json saves {words}; the context is {context.value}",
            [
                *(fact.says(f"{fact.value} tokens") for fact in saved),
                *(fact.says(f"{fact.value} tokens") for fact in contexts),
            ],
            why="what reads the file with the tokenizers library cuts or pads every text to that length",
            fix='set "truncation": null and "padding": null in tokenizer.json',
            severity=Severity.NOTE if whole else Severity.WARNING,
        )


def _length(document: Document, *path: str) -> Iterator[Fact[int]]:
    if document.has(*path):
        yield document.integer(*path)
