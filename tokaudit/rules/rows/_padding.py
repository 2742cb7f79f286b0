"""Rows beyond the required ones: how many, and whether a rounding explains them."""

from __future__ import annotations

from dataclasses import dataclass

from tokaudit.contract import Contract, Fact, Missing, RowCount, Table

# What loaders and trainers round up to; 8 is the smallest.
ROUNDINGS = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 8)

# Rows that a converter leaves above the tokenizer's, by model_type: fairseq's NLLB dictionary has two more
# symbols than the published tokenizer, and both take part in the softmax.
_LEFT_BY_CONVERTER = {"m2m_100": 2, "nllb-moe": 2}


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows from ``required`` on that no token and no design of the family explains.

    ``multiple`` is the largest usual rounding that divides ``rows``, 1 where none does.
    """

    rows: int
    required: Fact[int]
    table: Table
    count: int
    multiple: int

    @property
    def words(self) -> str:
        """How the row count came about: a usual rounding that gives it, the likeliest first."""
        for number in sorted(ROUNDINGS, key=lambda number: (number < 64, number)):
            if -(-self.required.value // number) * number == self.rows:
                return f"{self.required.value} rounded up to a multiple of {number}"
        return f"a multiple of {self.multiple}" if self.multiple > 1 else "no multiple of 8"

    @property
    def looks_lost(self) -> bool:
        """Whether it looks like an added token or two without their entries rather than like rounding."""
        return self.count in (1, 2) and self.multiple == 1


def padding(contract: Contract) -> Padding:
    """Count the padding rows of the input table; the base vocabulary must be known."""
    rows = contract.embeddings.input_rows.value
    _ = contract.vocabulary.base  # added tokens alone do not tell how many rows are needed
    required = contract.vocabulary.required_rows
    spare = max(rows - required.value - _designed(contract), 0)
    count = 0 if spare == _left_by_converter(contract) else spare
    multiple = next((number for number in ROUNDINGS if rows % number == 0), 1)
    return Padding(rows, required, contract.embeddings.input, count, multiple)


def _designed(contract: Contract) -> int:
    """Rows that the family has beyond ``vocab_size``."""
    expected = contract.embeddings.expected_input_or
    if isinstance(expected, RowCount) and expected.terms:
        return expected.value - expected.terms[0].value
    return 0


def _left_by_converter(contract: Contract) -> int:
    config = contract.config_or
    model_type = "" if isinstance(config, Missing) else str(config.data.get("model_type"))
    return _LEFT_BY_CONVERTER.get(model_type, 0)
