"""Which tokens a loader appends to the vocabulary of tokenizer.json, and the ids they get."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract import (
    AddedToken,
    Contract,
    Document,
    SpecialToken,
    TokenizerClass,
    Treatment,
    Vocabulary,
    Witness,
)
from tokaudit.errors import FactMissing
from tokaudit.families.tokenizer_classes import extra_texts, role_texts
from tokaudit.findings import Location


@dataclass(frozen=True, slots=True)
class Appended:
    """A token that tokenizer.json lacks.

    ``declared`` is its entry in another file, ``role`` says which special token it is ("pad_token"; "" where
    it is none), ``at`` where it is asked for.
    """

    content: str
    id: int
    at: Location
    declared: AddedToken | None
    role: str


def appended(contract: Contract) -> tuple[Appended, ...]:
    """What transformers 4 and 5 append to the tokenizers library's vocabulary, in their order.

    First the tokens of ``added_tokens_decoder`` (of added_tokens.json where there is none) by their declared
    ids, which are not honoured; then the special tokens. Source: PreTrainedTokenizerFast and
    TokenizersBackend. Raises FactMissing where tokenizer.json did not load, or where the class is not part of
    transformers.
    """
    vocabulary = contract.vocabulary
    effective = vocabulary.loaded.effective
    base = vocabulary.base.ids
    wanted = [
        token for token in _wanted(contract) if token.content not in base and token.content not in effective
    ]
    following = max([len(base) - 1, *effective.values()]) + 1
    unique = {token.content: token for token in reversed(wanted)}
    ordered = [token for token in wanted if unique[token.content] is token]
    return tuple(
        Appended(token.content, following + place, token.at, token.declared, token.role)
        for place, token in enumerate(ordered)
    )


def _wanted(contract: Contract) -> list[Appended]:
    """Every token that a loader makes sure of, without an id yet."""
    vocabulary = contract.vocabulary
    settings = contract.tokenizer_config_or.data if isinstance(contract.tokenizer_config_or, Document) else {}
    declared = _declared(vocabulary, "added_tokens_decoder" in settings)
    found = [Appended(token.content, 0, token.at, token, "") for token in declared]
    by_content = {token.content: token for token in reversed(contract.special_tokens) if token.content}
    known = _class(contract)
    for role, content in role_texts(known, settings, contract.special_tokens).items():
        found.append(_special(content, role, by_content, known))
    for content in extra_texts(known, settings, contract.special_tokens):
        found.append(_special(content, "extra special token", by_content, known))
    return found


def _class(contract: Contract) -> TokenizerClass:
    """The tokenizer's class; where no file names one the generic one, which fills in nothing."""
    config = contract.tokenizer_config_or
    if isinstance(config, Document) and config.has("auto_map"):
        raise FactMissing("the tokenizer's class is code that comes with the model (auto_map)")
    known = contract.vocabulary.class_or
    if isinstance(known, TokenizerClass):
        return known
    return TokenizerClass("", contract.vocabulary.base.at, "TokenizersBackend", Treatment.AS_IT_STANDS)


def _special(content: str, role: str, stated: dict[str, SpecialToken], known: TokenizerClass) -> Appended:
    at = stated[content].at if content in stated else known.at
    return Appended(content, 0, at, None, role)


def _declared(vocabulary: Vocabulary, decoder: bool) -> list[AddedToken]:
    witness = Witness.DECODER if decoder else Witness.ADDED_FILE
    entries = [token for table in vocabulary.tables if table.witness is witness for token in table.entries]
    return sorted(entries, key=lambda token: token.id)
