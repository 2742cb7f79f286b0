"""What the rules about token data have in common: how ids are named, and which of them have a row."""

from __future__ import annotations

from collections.abc import Iterable

from tokaudit.contract import Contract, Vocabulary
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim
from tokaudit.rules.rows._beyond import row_limit
from tokaudit.text import named


def limit_claim(contract: Contract) -> Claim:
    """Who says which ids have a row: the weights, config.json, or else the tokenizer."""
    try:
        return row_limit(contract).claim
    except FactMissing:
        required = contract.vocabulary.required_rows
        return required.says(f"the tokenizer's ids end at {required.value - 1}")


def id_names(contract: Contract, ids: Iterable[int]) -> list[str]:
    return [id_name(contract, id) for id in ids]


def id_name(contract: Contract, id: int) -> str:
    """The id with its token's text, where a tokenizer tells it."""
    vocabulary = contract.vocabulary_or
    return named(id, vocabulary.text(id)) if isinstance(vocabulary, Vocabulary) else str(id)
