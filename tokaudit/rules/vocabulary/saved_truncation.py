from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document, Fact, Vocabulary
from tokaudit.errors import FactMissing
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._context import context_lengths
from tokaudit.text import counted

MOST_PADDING = 2**20  # tokens; some 64 bytes each, for every text

Deadly = tuple[Fact[int], str, str]  # a setting, what it says, and what the library does on a text


class SavedTruncation(Rule):
    """Truncation or fixed padding is saved inside tokenizer.json, or such that the library dies of it.

    ## What it finds

    `truncation` in `tokenizer.json` to fewer tokens than the model's context (`model_max_length` of
    `tokenizer_config.json`, `max_seq_length` of `sentence_bert_config.json`, the position table of
    `config.json`), and `padding` to a fixed length. It is a
    note when the length equals the context, as sentence encoders ship it. Padding to the longest text of a
    batch is fine.

    It also finds what no text survives: a `stride` of the truncation that is not below `max_length` less the
    special tokens around a text, on which the library panics once a text is too long, and padding
    (`Fixed`, `pad_to_multiple_of`) to more tokens than the context and than a million.

    ## Why it matters

    Whatever reads the file with the `tokenizers` library itself (text-embeddings-inference, training scripts,
    other languages) cuts every text there without a word, pads every text to that length, or dies.
    transformers replaces both settings at each call. The setting is usually left over from the call that was
    made before the tokenizer was saved.

    ## How to fix it

    Set `"truncation": null` and `"padding": null` in `tokenizer.json`, or load it and call
    `no_truncation()` and `no_padding()` before saving. If a limit is meant, state it as `model_max_length`.
    """

    code = "TA406"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        document = contract.vocabulary.pipeline.document
        deadly = [*_stride(contract.vocabulary), *_endless_padding(contract)]
        for fact, words, consequence in deadly:
            yield self.finding(
                f"tokenizer.json saves {words}",
                [fact.says(words)],
                why=f"the tokenizers library by itself {consequence}; transformers replaces the setting",
                fix=f'set "{fact.at.pointer.split("/")[1]}": null in tokenizer.json',
                subject=fact.at.pointer,
            )
        saved = [
            *_length(document, "truncation", "max_length"),
            *_length(document, "padding", "strategy", "Fixed"),
        ]
        if deadly or not saved:
            return
        contexts = context_lengths(contract)
        if not contexts:
            raise FactMissing("neither tokenizer_config.json nor config.json states how long a text may be")
        shortest = min(saved, key=lambda fact: fact.value)
        words = " and ".join(
            f"{fact.at.pointer.split('/')[1]} to {counted(fact.value, 'token')}" for fact in saved
        )
        enough = [context for context in contexts if context.value <= shortest.value]
        context = max(enough or contexts, key=lambda fact: fact.value)
        yield self.finding(
            f"tokenizer.json saves {words}; the context is {context.value}",
            [
                *(fact.says(counted(fact.value, "token")) for fact in saved),
                *(fact.says(counted(fact.value, "token")) for fact in contexts),
            ],
            why="what reads the file with the tokenizers library cuts or pads every text to that length",
            fix='set "truncation": null and "padding": null in tokenizer.json',
            severity=Severity.NOTE if enough else Severity.WARNING,
        )


def _stride(vocabulary: Vocabulary) -> Iterator[Deadly]:
    """A stride that is not below what a text may have of the truncated length."""
    document = vocabulary.pipeline.document
    if not document.has("truncation", "stride"):
        return
    stride, length = document.integer("truncation", "stride"), document.integer("truncation", "max_length")
    around = sum(emission.place in ("start", "end") for emission in vocabulary.emissions)
    room = length.value - around
    if 0 < room <= stride.value:
        words = f"truncation to {length.value} tokens with a stride of {stride.value}"
        yield stride, words, "panics on a text that is longer"


def _endless_padding(contract: Contract) -> Iterator[Deadly]:
    """Padding to more tokens than any model takes."""
    document = contract.vocabulary.pipeline.document
    most = max(MOST_PADDING, *(context.value for context in context_lengths(contract)), 0)
    for words, path in (("", ("strategy", "Fixed")), ("a multiple of ", ("pad_to_multiple_of",))):
        for length in _length(document, "padding", *path):
            if length.value > most:
                yield length, f"padding to {words}{length.value} tokens", "runs out of memory on every text"


def _length(document: Document, *path: str) -> Iterator[Fact[int]]:
    if document.has(*path) and (length := document.integer(*path)).value > 0:
        yield length
