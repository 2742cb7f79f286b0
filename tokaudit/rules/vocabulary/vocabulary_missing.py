from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document
from tokaudit.families.tokenizer_classes import needs_vocabulary
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.formats.vocabulary_files import may_hold_vocabulary
from tokaudit.rule import Rule
from tokaudit.text import shown


class VocabularyMissing(Rule):
    """There is a tokenizer_config.json, and no file that could hold the vocabulary.

    ## What it finds

    A `tokenizer_config.json` in a directory without `tokenizer.json`, `vocab.json`, `vocab.txt`, a
    SentencePiece or tiktoken model, `tekken.json` or any other file that a tokenizer class could read tokens
    from; `merges.txt` alone is not enough. Classes that need none are not meant (ByT5, CANINE, Perceiver,
    Dia, ESM C), nor classes that come with the model (`auto_map`) or that transformers does not have.

    ## Why it matters

    transformers 5 makes a tokenizer with a handful of special tokens of such a directory and says nothing: a
    LlamaTokenizer then encodes every text to no ids at all. Other classes are refused, among them the generic
    ones (PreTrainedTokenizerFast, TokenizersBackend), which hold what `tokenizer.json` says.

    ## How to fix it

    Fetch `tokenizer.json`, or the file that the class reads, from where the model comes from. If the
    directory is to hold no tokenizer, delete `tokenizer_config.json`, and give `--tokenizer` its place.
    """

    code = "TA419"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        settings = contract.tokenizer_config
        if any(map(may_hold_vocabulary, contract.tokenizer_files)):
            return
        claim = _class(settings, contract)
        if claim is not None:
            yield self.finding(
                "tokenizer_config.json is there, and no file that could hold the vocabulary",
                [claim, Claim(Location("tokenizer.json"), "there is no such file, nor another one for it")],
                why="transformers 5 makes an empty tokenizer of it without a word, or refuses it",
                fix="fetch tokenizer.json from where the model comes from",
            )


def _class(settings: Document, contract: Contract) -> Claim | None:
    """What asks for a vocabulary; None where the tokenizer's class needs none, or is not known."""
    config = contract.config_or
    documents = [settings, *([config] if isinstance(config, Document) else [])]
    if any(_brings_code(document) for document in documents):
        return None
    for document in documents:
        stated = document.data.get("tokenizer_class")
        if isinstance(stated, str) and stated:
            at = document.at.child("tokenizer_class")
            return Claim(at, f"names {shown(stated)}") if needs_vocabulary(stated, "") else None
    model_type = documents[-1].data.get("model_type")
    if documents[-1] is settings or not isinstance(model_type, str) or not needs_vocabulary("", model_type):
        return None
    return Claim(documents[-1].at.child("model_type"), f"is {shown(model_type)}, which has a tokenizer")


def _brings_code(document: Document) -> bool:
    """Whether the tokenizer's class comes with the model."""
    mapped = document.data.get("auto_map")
    return isinstance(mapped, list) or (isinstance(mapped, dict) and "AutoTokenizer" in mapped)
