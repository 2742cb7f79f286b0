"""What tables of one vocabulary owe each other."""

from __future__ import annotations

from tokaudit.contract import Contract, Embeddings, Fact, RowCount, Table
from tokaudit.errors import FactMissing


def surplus(table: Table, other: Table) -> int:
    """Rows that ``table`` has more than ``other``, beyond what the family designed (mllama: 8)."""
    designed = 0
    if isinstance(table.expected, RowCount) and isinstance(other.expected, RowCount):
        designed = table.expected.value - other.expected.value
    return table.rows - other.rows - designed


def sized_alike(table: Table, other: Table) -> bool:
    """Whether one config field gives both their rows; true where the fields are not known."""
    if isinstance(table.expected, RowCount) and isinstance(other.expected, RowCount):
        return _field(table.expected) == _field(other.expected)
    return True


def _field(expected: RowCount) -> tuple[Fact[int], ...]:
    return expected.terms[:1]


def input_side(embeddings: Embeddings, group: str) -> Table:
    """The table that ids of this vocabulary are looked up in."""
    if embeddings.input.group == group:
        return embeddings.input
    for table in embeddings.secondary:
        if table.group == group and not table.malformed:
            return table
    raise FactMissing(f"no input embeddings of the {group}'s own vocabulary were found")


def output_side(embeddings: Embeddings, group: str) -> Table:
    """The table that gives this vocabulary its logits: the stored output table, or the one it is tied to."""
    output = embeddings.output_or
    if isinstance(output, Table) and output.group == group and not output.malformed:
        return output
    return input_side(embeddings, group)


def stored_output(contract: Contract) -> tuple[Table, ...]:
    """The stored output table, or nothing where the checkpoint holds none."""
    output = contract.embeddings.output_or
    if not isinstance(output, Table):
        _ = contract.whole_checkpoint
        return ()
    if output.malformed:
        raise FactMissing(f"{output.name} is malformed")
    return (output,)
