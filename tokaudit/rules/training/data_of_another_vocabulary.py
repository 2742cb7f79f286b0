from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Role
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import shown

_DOMINANT = 0.3  # of all ids; in text, one id has a tenth, and a blank in single letters a fifth
_GARBLED = (
    0.02  # of the sampled ids; none in the data of 18 published tokenizers, 2 to 40 % in that of others
)
_BLANKS = " \t\r\n\u0120\u010a\u0109\u2581"  # and how vocabularies spell them


class DataOfAnotherVocabulary(Rule):
    """The data was made with another tokenizer: its ids are in range and mean something else here.

    ## What it finds

    Two signs. One id that makes up 30 % of all ids or more, as padding does, and is an ordinary token here:
    not special, not blank, not the pad or end-of-sequence token. And a sample of the data whose bytes make no
    characters: text that is decoded with its own byte-level vocabulary is whole, with another one it breaks
    every few tokens (2 % is the limit). Vocabularies without tokens for bytes give the first sign only, so
    that silence is no proof there: look at the decoded sample in the report.

    ## Why it matters

    No id is out of range, so nothing fails: the model is trained on noise.

    ## How to fix it

    Tokenise the data with this model's tokenizer, or train the model whose tokenizer it was made with.
    """

    code = "TA907"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        data = contract.data
        _ = data.telling
        _ = contract.vocabulary
        signs = [*_dominant(contract)]
        try:
            signs += _garbled(contract)
        except FactMissing:
            if not signs:
                raise
        if signs:
            frequent = [id for id, _ in data.statistics.frequent(3)]
            yield self.finding(
                f"the data looks like that of another tokenizer: {'; '.join(words for words, _ in signs)}",
                [
                    *(claim for _, claim in signs),
                    Claim(data.at, f"most frequent: {contract.names(frequent)}"),
                    *_expected(contract),
                ],
                why="every id is in range, so nothing fails: the model is trained on noise",
                fix="tokenise the data with this model's tokenizer",
            )


def _dominant(contract: Contract) -> Iterator[tuple[str, Claim]]:
    data, vocabulary = contract.data, contract.vocabulary
    special = {vocabulary.by_content[token.content] for token in vocabulary.added}
    for id, count in data.statistics.frequent(1):
        text = vocabulary.text(id)
        ordinary = id not in special and id not in contract.uses
        if ordinary and count >= _DOMINANT * data.statistics.items and (text or "?").strip(_BLANKS):
            share = f"{100 * count / data.statistics.items:.0f} % of all ids"
            what = "is no token" if text is None else "is an ordinary token"
            words = f"{contract.named(id)} makes up {share}, as padding would, and {what}"
            yield words, Claim(data.at, f"{contract.named(id)}: {count} of {data.statistics.items} ids")


def _garbled(contract: Contract) -> Iterator[tuple[str, Claim]]:
    data = contract.data
    if data.garbled >= _GARBLED:
        first = data.texts[0]
        words = f"{100 * data.garbled:.0f} % of the sampled ids break the text"
        yield words, Claim(first.sample.at, f"decodes to {shown(first.text[:60])}")


def _expected(contract: Contract) -> Iterator[Claim]:
    for role in (Role.PAD, Role.EOS):
        token = contract.roles.get(role)
        if token is not None:
            seen = contract.data.statistics.count(token.id)
            words = f"the {role.value} token is {contract.named(token.id)}, which occurs {seen} times"
            yield Claim(token.at, words)
