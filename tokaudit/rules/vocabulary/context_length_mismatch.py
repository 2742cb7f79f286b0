from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract, Document, Tensor
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.vocabulary._context import model_max_length
from tokaudit.text import shown

_POSITION_TABLE = re.compile(
    r"(?:^|\.)(?:position_embeddings?|positions_embed|embed_positions|wpe|pos_embed(?:ding)?s?)(?:\.weight)?$"
)
_OTHER_MODALITY = re.compile(r"vision|visual|image|audio|speech|video|pixel")


class ContextLengthMismatch(Rule):
    """The tokenizer allows longer texts than the model's position table has rows.

    ## What it finds

    A `model_max_length` in `tokenizer_config.json` above the rows of the model's learned position table. Huge
    values (10^9 and more) mean that no limit is set. Models without such a table (rotary, ALiBi, relative
    positions) can be run beyond their training length and are fine.

    ## Why it matters

    The tokenizer does not truncate where it should: a text between the two lengths passes it and fails in the
    model's position lookup, with an `IndexError` on a CPU and a device-side assert on a GPU.

    ## How to fix it

    Set `model_max_length` to the number of positions (for RoBERTa two fewer than the table has rows).
    """

    code = "TA410"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        limit = model_max_length(contract.tokenizer_config)
        tables = [tensor for tensor in contract.checkpoint.tensors.values() if _is_position_table(tensor)]
        if limit is None or not tables:
            return
        table = max(tables, key=lambda tensor: tensor.shape[0])
        positions = min([table.shape[0], *_stated(contract)])
        if limit.value <= positions:
            return
        yield self.finding(
            f"model_max_length is {limit.value}, the position table {shown(table.name)} has "
            f"{table.shape[0]} rows",
            [limit.says(f"allows {limit.value} tokens"), table.says(f"{table.shape[0]} rows")],
            why="a text that is longer than the table passes the tokenizer and fails in the model",
            fix=f'set "model_max_length": {positions} in tokenizer_config.json',
        )


def _is_position_table(tensor: Tensor) -> bool:
    named = _POSITION_TABLE.search(tensor.name) and not _OTHER_MODALITY.search(tensor.name)
    return bool(named) and len(tensor.shape) == 2


def _stated(contract: Contract) -> Iterator[int]:
    """The configuration's own number: BART's table has two rows more than it has positions."""
    config = contract.config_or
    value = config.data.get("max_position_embeddings") if isinstance(config, Document) else None
    if type(value) is int and value > 0:
        yield value
