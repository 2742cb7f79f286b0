"""What the rules about token data have in common: who says which ids have a row."""

from __future__ import annotations

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim
from tokaudit.rules.rows._beyond import row_limit


def limit_claim(contract: Contract) -> Claim:
    """Who says which ids have a row: the weights, config.json, or else the tokenizer."""
    try:
        return row_limit(contract).claim
    except FactMissing:
        required = contract.vocabulary.required_rows
        return required.says(f"the tokenizer's ids end at {required.value - 1}")
