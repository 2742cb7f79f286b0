"""What each row of a table is for, as the tokenizer and what refers to its tokens tell."""

from __future__ import annotations

from tokaudit.contract import Contract, Missing, RowClass, Table, Vocabulary, reserved_name


def purposes(contract: Contract, table: Table, ids: range) -> list[int]:
    """The value of one RowClass for each row; 0 throughout where the ids are not the tokenizer's."""
    vocabulary = contract.vocabulary_or
    if isinstance(vocabulary, Missing) or not counts_tokens(contract, table):
        return [0] * len(ids)
    return _purposes(contract, vocabulary, ids)


def counts_tokens(contract: Contract, table: Table) -> bool:
    """Whether the rows are those of the model's own tokens, and not of a decoder's or a codec's."""
    main = contract.embeddings.input_or
    own = main.group if isinstance(main, Table) else ""
    return table.group in (own, "per_layer") and not contract.speaks_another_vocabulary


def _purposes(contract: Contract, vocabulary: Vocabulary, ids: range) -> list[int]:
    required = vocabulary.required_rows.value
    in_use, reserved = RowClass.IN_USE.value, RowClass.RESERVED.value
    hole, padding = RowClass.HOLE.value, RowClass.PADDING.value
    tokens = {
        id: reserved if reserved_name(content) else in_use for id, content in vocabulary.by_id.items()
    } | dict.fromkeys(contract.uses, in_use)
    data = contract.data_or
    if not isinstance(data, Missing):
        tokens |= {id: in_use for id in vocabulary.by_id if data.visited(id)}
    return [tokens.get(id, hole if id < required else padding) for id in ids]
