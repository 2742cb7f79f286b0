from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from tokaudit.contract import Contract, Rebuilt, Treatment, Witness, present
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown

_LONGEST_ENCODING = 6
_MOST_NAMED = 3


class RebuiltOnLoad(Rule):
    """transformers 5 builds another pipeline than tokenizer.json holds, and text encodes differently.

    ## What it finds

    Tokenizer classes with a constructor of their own (Llama, Qwen2, GPT-2, BERT, T5, Gemma ...) that
    `AutoTokenizer` of transformers 5 picks for this directory. They take only the vocabulary, the merges and
    the post-processor from `tokenizer.json`; the normalizer, the pre-tokenizer and the model's options come
    from the class, and where `tokenizer_config.json` has an `added_tokens_decoder`, added tokens that stand
    only in `tokenizer.json` are dropped. The pipeline that the class builds is loaded beside the saved one;
    a finding needs a text that the two encode differently. It is a note where only unusual text does
    (accents, several spaces, other scripts, compatibility characters). Layouts that the class builds as they
    were, such as the older ones of Llama with a Prepend normalizer, are fine.

    ## Why it matters

    The model was trained with the tokens of the saved pipeline. In transformers 5 it gets others, without a
    word: lower-casing is gone, digits split in another way, a control token falls apart. Engines that read
    `tokenizer.json` themselves are not affected, so the two disagree.

    ## How to fix it

    Set `"tokenizer_class": "PreTrainedTokenizerFast"` in `tokenizer_config.json`: transformers 4 and 5 then
    load `tokenizer.json` as it stands. For dropped tokens it is enough to add them to
    `added_tokens_decoder`.
    """

    code = "TA414"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        known = vocabulary.tokenizer_class
        if known.treatment is not Treatment.REBUILT:
            return
        rebuilt = present(vocabulary.loaded.rebuilt)
        changed = [text for text, ids in rebuilt.saved.items() if rebuilt.rebuilt.get(text) != ids]
        if not changed:
            return
        added = vocabulary.table(Witness.ADDED)
        tokens = [text for text in changed if text in added.ids]
        probes = [text for text in changed if text not in added.ids]
        parts = [part for part in rebuilt.parts if probes or part == "added_tokens"]
        document = vocabulary.pipeline.document.at
        loud = tokens or any(text not in rebuilt.unusual for text in probes)
        yield self.finding(
            f"transformers 5 rebuilds this tokenizer as {known.name}: "
            + "; ".join(_what_happens(contract, rebuilt, tokens, probes)),
            [
                Claim(known.at, f"makes transformers 5 build {known.name}"),
                *(Claim(document.child(part), "is replaced") for part in parts),
                *(Claim(added.location(text), f"is {_ids(rebuilt.saved[text])}") for text in tokens[:2]),
            ],
            why="transformers 5 feeds the model other tokens than the ones it was trained with",
            fix='set "tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json'
            + (", or list the tokens in added_tokens_decoder" if tokens and not probes else ""),
            severity=Severity.WARNING if loud else Severity.NOTE,
            subject=known.name,
        )


def _what_happens(
    contract: Contract, rebuilt: Rebuilt, tokens: Sequence[str], probes: Sequence[str]
) -> Iterator[str]:
    if tokens:
        words = [
            f"{_ids(rebuilt.saved[text])} {shown(text)} becomes {_ids(rebuilt.rebuilt.get(text, ()))}"
            for text in tokens
        ]
        yield f"{counted(len(tokens), 'added token')} lost or moved ({listed(words, 3)})"
    if probes:
        text = min(probes, key=lambda text: (text in rebuilt.unusual, len(text)))
        saved, other = rebuilt.saved[text], rebuilt.rebuilt.get(text, ())
        equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(saved, other, strict=False)))
        begin = f", after {counted(equal, 'equal id')}," if equal else ""
        yield (
            f"{shown(text)} encodes{begin} to {_named(contract, other[equal:])} instead of "
            f"{_named(contract, saved[equal:])} ({counted(len(probes), 'text')} of those tried)"
        )


def _named(contract: Contract, ids: Sequence[int]) -> str:
    """The first ids with their tokens, by the saved numbering, in which the model learned them."""
    dots = ", \u2026" if len(ids) > _MOST_NAMED else ""
    return f"[{', '.join(contract.named(id) for id in ids[:_MOST_NAMED])}{dots}]"


def _ids(ids: Sequence[int]) -> str:
    dots = ", \u2026" if len(ids) > _LONGEST_ENCODING else ""
    return f"[{', '.join(map(str, ids[:_LONGEST_ENCODING]))}{dots}]"
