"""Which tables a resize extends, which it leaves alone, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import FLOAT_DTYPES, Contract, Embeddings, Missing, RowCount, Table, TableKind
from tokaudit.resize.request import Refused
from tokaudit.text import listed

# Groups of ids that a model cannot do without when its own vocabulary grows: a decoder's vocabulary, a draft
# model's map, extra ids behind the vocabulary. Other groups (a vision tower, a talker) count other things.
_ENTANGLED = frozenset({"decoder", "tgt", "draft", "additional"})

# Addressed by a hash of the ids, whose multipliers follow from vocab_size (Qwen4-exp).
_HASHED = re.compile(r"(^|[._])ngram")


def growing_tables(contract: Contract) -> tuple[Table, ...]:
    """Every table with one row per token id, the input table first.

    Raises Refused where one of them cannot be extended rightly.
    """
    embeddings = contract.embeddings
    if isinstance(embeddings.input_or, Missing):
        raise Refused(
            f"no input table: {embeddings.input_or.reason}",
            hint="`tokaudit check` says what is there and what is not",
        )
    _refuse_entangled(contract, embeddings)
    _refuse_cut_logits(contract)
    tables = tuple(_growing(embeddings))
    for table in tables:
        _refuse_unwritable(table)
        _refuse_rows_by_design(table)
        _refuse_stored_twice(contract, table)
        if table.rows != embeddings.input.rows and not _has_own_size(table, embeddings.input):
            other = f"{embeddings.input.name} has {embeddings.input.rows}"
            raise Refused(f"{table.name} has {table.rows} rows and {other}")
    return tables


def _growing(embeddings: Embeddings) -> Iterator[Table]:
    for table in embeddings.tables:
        if table.group in (embeddings.input.group, "per_layer"):
            yield table


def refuse_adapter(contract: Contract) -> None:
    if "adapter_config.json" in contract.files:
        raise Refused(
            "there is an adapter_config.json: loaders lay the adapter, with rows of its own, over the model",
            hint="resize the base model and train the adapter on the result, or merge the adapter first",
        )


def _refuse_entangled(contract: Contract, embeddings: Embeddings) -> None:
    if embeddings.extra_inputs:
        names = listed([table.name for table in embeddings.extra_inputs])
        raise Refused(f"the ids go on in another input table ({names}): new tokens would take them")
    for table in embeddings.tables:
        own = table.group == embeddings.input.group
        if not own and (table.group in _ENTANGLED or table.kind is not TableKind.SECONDARY):
            raise Refused(
                f"{table.name} belongs to another vocabulary than {embeddings.input.name}",
                hint="tokaudit resizes models with one vocabulary",
            )
    hashed = next((name for name in contract.checkpoint.tensors if _HASHED.search(name)), None)
    if hashed is not None:
        raise Refused(f"{hashed} is addressed by a hash that depends on vocab_size: every row would move")


def _refuse_unwritable(table: Table) -> None:
    if table.packed:
        raise Refused(
            f"{table.name} is packed ({table.packed}): its rows cannot be written",
            hint="dequantise it first, or resize the model that it was quantised from",
        )
    if table.malformed:
        raise Refused(f"{table.name} is malformed: {table.malformed}")
    if table.tensor.dtype not in FLOAT_DTYPES:
        raise Refused(f"{table.name} holds {table.tensor.dtype} values per token id: nothing to average")
    if table.axis != 0 and table.tensor.shape[: table.axis] != (1,) * table.axis:
        raise Refused(f"{table.name} has its tokens along axis {table.axis}: rows cannot be appended")


def _refuse_cut_logits(contract: Contract) -> None:
    """Inkling pads its output table to vocab_size and cuts the logits to another field."""
    sections = [contract.config, *(section for _, section in contract.config.sections())]
    if any(section.has("unpadded_vocab_size") for section in sections):
        raise Refused("the logits are cut to unpadded_vocab_size: new tokens would never be chosen")


def _refuse_rows_by_design(table: Table) -> None:
    """Families that count rows of their own into a table, as mllama's 8 at the end."""
    expected = table.expected
    if isinstance(expected, RowCount) and [term.value for term in expected.terms] != [expected.value]:
        raise Refused(
            f"{table.name} has {expected.formula} rows by design",
            hint="new tokens would take the ids of rows that are the family's own",
        )


def _refuse_stored_twice(contract: Contract, table: Table) -> None:
    files = [tensor.file for tensor in contract.checkpoint.repeated.get(table.name, ())]
    if files:
        raise Refused(f"{table.name} is stored in {listed(files)}: loaders differ in which one they use")


def _has_own_size(table: Table, reference: Table) -> bool:
    """Whether a field of its own sizes the table (per-layer embeddings of Gemma-3n)."""
    if isinstance(table.expected, Missing) or isinstance(reference.expected, Missing):
        return False
    own = {term.at for term in table.expected.terms}
    return table.kind is TableKind.SECONDARY and not own & {term.at for term in reference.expected.terms}
