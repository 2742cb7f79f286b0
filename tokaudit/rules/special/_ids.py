"""Id fields of the configurations: how they are named and shown, and which row limit counts for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokaudit.contract import Contract, IdField, Loaded, Missing, Table, Token, present
from tokaudit.findings import Claim
from tokaudit.rules.rows._beyond import RowLimit, row_limit

# Fields that force or forbid tokens during generation; every other id field describes the tokenizer.
_FORCING = frozenset({"suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "decoder_start_token_id"})


def id_fields(contract: Contract) -> tuple[IdField, ...]:
    """The id fields of both configurations; raises FactMissing where there is neither."""
    if isinstance(contract.generation_config_or, Missing):
        present(contract.config_or)
    return contract.id_fields


def forces(field: IdField) -> bool:
    """Whether the field forces or forbids tokens (TA313); the others are left to TA301."""
    return field.name in _FORCING or field.name.startswith("forced_")


def path(field: IdField) -> str:
    """The field with the section it stands in: "text_config.pad_token_id"."""
    return f"{field.section}.{field.name}" if field.section else field.name


def place(field: IdField) -> str:
    """The field with its file: "config.json text_config.pad_token_id"."""
    return f"{field.at.file} {path(field)}"


def places(fields: Sequence[IdField]) -> str:
    """Fields of one name: "config.json and generation_config.json pad_token_id"."""
    if len({path(field) for field in fields}) == 1:
        return " and ".join(field.at.file for field in fields) + f" {path(fields[0])}"
    return " and ".join(map(place, fields))


def alike(fields: Iterable[IdField]) -> list[list[IdField]]:
    """The fields in groups of one name that state the same ids; they are one breach."""
    groups: dict[tuple[str, tuple[int, ...]], list[IdField]] = {}
    for field in fields:
        groups.setdefault((field.name, field.ids), []).append(field)
    return list(groups.values())


def token_ids(contract: Contract, token: Token) -> set[int]:
    """The token's id as its file declares it, and as the library gives it (TA403 says where they differ)."""
    loaded = contract.vocabulary.loaded_or
    effective = loaded.effective if isinstance(loaded, Loaded) else {}
    return {token.id, effective.get(token.content, token.id)}


def told(contract: Contract, field: IdField) -> str:
    """What the field says, within a sentence."""
    default = "not stated, and its default is " if field.by_default else ""
    return f"{place(field)} is {default}{contract.names(field.ids)}"


def states(contract: Contract, field: IdField) -> Claim:
    """What the field says, as a claim."""
    if field.by_default:
        return Claim(field.at, f"not stated: the class takes {contract.names(field.ids)}")
    if not field.ids:
        return Claim(field.at, f"{field.name} is null")
    text = contract.names(field.ids)
    return Claim(field.at, f"{field.name} is [{text}]" if field.is_list else f"{field.name} is {text}")


def limit_of(contract: Contract, field: IdField) -> RowLimit:
    """How many rows the ids of this field may address.

    Where the decoder has a vocabulary of its own, its fields and those of generation address its table. Those
    at the top of config.json may mean either: Dia's are the decoder's.
    """
    if not contract.speaks_another_vocabulary:
        return row_limit(contract)
    if field.generation or field.section == "decoder" or forces(field):
        return _decoder_limit(contract)
    if field.section:
        return row_limit(contract)
    return max(row_limit(contract), _decoder_limit(contract), key=lambda limit: limit.rows)


def _decoder_limit(contract: Contract) -> RowLimit:
    own = contract.embeddings.output
    tables = [table for table in contract.embeddings.secondary if table.group == own.group]
    table: Table = next((table for table in tables if table.hidden == own.hidden), own)
    rows = table.rows
    return RowLimit(
        rows,
        table.says(f"{rows} rows: ids 0 to {rows - 1}"),
        f"the decoder's embeddings have {rows} rows",
    )
