"""The tables of a model directory, as its files and its architecture have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tokaudit.contract import (
    FLOAT_DTYPES,
    Checkpoint,
    Contract,
    Embeddings,
    Missing,
    RowCount,
    Table,
    TableKind,
    Tensor,
    Tie,
    present,
)
from tokaudit.cost.tables import Amount, Part, Rest, Tables, scaled, total
from tokaudit.errors import FactMissing
from tokaudit.families.stored import PACKED_DTYPES
from tokaudit.text import listed


@dataclass(frozen=True, slots=True)
class Model:
    """``remarks`` say what the numbers rest on where that is not plain."""

    tables: Tables
    remarks: tuple[str, ...]


def model_tables(contract: Contract) -> Model:
    """Raises FactMissing where no table of the model's own tokens is found."""
    checkpoint, embeddings = contract.checkpoint, contract.embeddings
    stored = tuple(_parts(contract, embeddings))
    main = _main(embeddings, stored)
    output, added = _output(embeddings, stored, main)
    parts = (*stored, *added)
    tie = embeddings.tie_or
    tied = tie.tied if isinstance(tie, Tie) else None
    tables = Tables(parts, main, output, tied, _rest(checkpoint, embeddings))
    return Model(tables, tuple(_remarks(contract, tables)))


def _main(embeddings: Embeddings, parts: Iterable[Part]) -> Part:
    """The input table; where only the output table of a tied pair is stored, that one."""
    first = embeddings.output if embeddings.inverted else embeddings.input
    return next(part for part in parts if part.name == first.name)


def _parts(contract: Contract, embeddings: Embeddings) -> Iterator[Part]:
    own = present(embeddings.output_or if embeddings.inverted else embeddings.input_or).group
    for table in embeddings.tables:
        rows, width, values = _size(table)
        yield Part(
            kind=table.kind,
            name=table.name,
            rows=rows,
            width=width,
            values=values,
            dtype=table.tensor.dtype,
            stored=sum(tensor.nbytes for tensor in _stored(contract.checkpoint, embeddings, table)),
            packed=table.packed,
            grows=table.group in (own, "per_layer") and table not in embeddings.extra_inputs,
            shared=_is_shared(embeddings, table),
        )


def _is_shared(embeddings: Embeddings, table: Table) -> bool:
    """Whether it is stored, and another stored table once the model is loaded."""
    if table.kind is TableKind.OUTPUT:
        tied = isinstance(embeddings.tie_or, Tie) and embeddings.tie_or.tied
        return tied and isinstance(embeddings.tie_partner_or, Table)
    if table.kind is TableKind.BIAS:  # BERT and its kin know one bias by two names
        twin = table.name.removesuffix(".decoder.bias") + ".bias"
        return any(bias.name == twin != table.name for bias in embeddings.biases)
    return table.copy


def _size(table: Table) -> tuple[Amount, Amount, Amount]:
    """Rows, values of a row, and values of the table; of a packed one as far as its family tells."""
    tensor = table.tensor
    if table.malformed:
        missing = Missing(f"{table.name} is malformed: {table.malformed}")
        return missing, missing, missing
    rows = table.rows_or
    if isinstance(rows, Missing) and isinstance(table.expected, RowCount):
        rows = table.expected.value
    values = math.prod(tensor.shape)
    if tensor.dtype in FLOAT_DTYPES:
        if rows == tensor.shape[table.axis] and rows:
            return rows, values // rows, values
        return rows, Missing(f"{table.name} does not have a row for each id ({table.packed})"), values
    if not table.packed:  # a map from ids to ids holds nothing that is trained
        return rows, 0, 0
    width: Amount = Missing(f"{table.name} is packed ({table.packed}), which does not tell its width")
    if table.hidden is not None:
        width = table.hidden
    elif isinstance(table.expected_hidden, RowCount):
        width = table.expected_hidden.value
    return rows, width, rows if isinstance(rows, Missing) else scaled(width, rows)


def _stored(checkpoint: Checkpoint, embeddings: Embeddings, table: Table) -> Iterator[Tensor]:
    """The tensor, and what lies beside the values of a packed one: scales, zero points, code books."""
    yield table.tensor
    stem, dot, _ = table.name.rpartition(".")
    if not (table.packed and dot):
        return
    others = {other.name for other in embeddings.tables}
    for name, tensor in checkpoint.tensors.items():
        beside = name.removeprefix(stem + ".")
        if name not in others and name != beside and (beside.count(".") <= 1 or beside.startswith("weight.")):
            yield tensor


def _output(
    embeddings: Embeddings, parts: tuple[Part, ...], main: Part
) -> tuple[Part | Missing, tuple[Part, ...]]:
    """The part that gives the logits, and what of it no file holds because a tie makes it another table."""
    if isinstance(embeddings.output_or, Table):
        name = embeddings.output.name
        return next(part for part in parts if part.name == name), ()
    tie = embeddings.tie_or
    if isinstance(tie, Missing):
        return Missing(tie.reason), ()
    if not tie.tied:
        return embeddings.output_or, ()
    partner = embeddings.tie_partner_or
    name = partner.name if isinstance(partner, Table) else main.name
    source = next((part for part in parts if part.name == name), main)
    output = replace(source, kind=TableKind.OUTPUT, shared=True, stored=0)
    return output, (output,)


def _rest(checkpoint: Checkpoint, embeddings: Embeddings) -> Rest:
    """Every other tensor. Values that are packed do not tell how many parameters they stand for."""
    if not checkpoint.complete:
        missing = Missing(f"{checkpoint.damaged[0].file} could not be read")
        return Rest(missing, missing)
    counted = {
        tensor.name for table in embeddings.tables for tensor in _stored(checkpoint, embeddings, table)
    }
    others = [tensor for name, tensor in checkpoint.tensors.items() if name not in counted]
    stored = sum(tensor.nbytes for tensor in others)
    packed = next((t for t in others if t.dtype in PACKED_DTYPES and len(t.shape) > 1), None)
    if packed is not None:
        reason = f"{packed.name} is stored as {packed.dtype}: other weights than the tables are packed"
        return Rest(Missing(reason), stored)
    return Rest(total(math.prod(t.shape) for t in others if t.dtype in FLOAT_DTYPES), stored)


def _remarks(contract: Contract, tables: Tables) -> Iterator[str]:
    embeddings = contract.embeddings
    tie = embeddings.tie_or
    if isinstance(tie, Tie) and not tie.loaders_agree:
        words = [f"{r.loader} {'ties' if r.tied else 'does not tie'} them" for r in tie.readings]
        yield f"loaders disagree about the tie ({listed(words)}): counted as by {tie.readings[0].loader}"
    if isinstance(tie, Missing) and isinstance(embeddings.output_or, Table):
        yield f"whether the tables are tied is not known ({tie.reason}): both are counted"
    if tables.tied and isinstance(embeddings.output_or, Table) and not embeddings.inverted:
        yield f"{embeddings.output.name} is tied and stored all the same: of it only the bytes count"
    if embeddings.inverted:
        yield f"only the output embeddings {embeddings.output.name} are stored, which count for both"
    if isinstance(tables.output, Missing):
        yield f"no output embeddings are counted: {tables.output.reason}"
    for table in embeddings.tables:
        if table.packed and table.tensor.dtype not in FLOAT_DTYPES:
            known = isinstance(table.rows_or, int) and table.hidden is not None
            where = "" if known else "; what its shape does not tell is the configuration's"
            yield f"{table.name} is packed ({table.packed}){where}"
        elif table.packed and table.tensor.shape[table.axis : table.axis + 1] != (table.rows_or,):
            yield f"{table.name}: {table.packed}; its size does not follow the number of ids"
    apart = [part.name for part in tables.parts if not part.grows]
    if apart:
        yield f"{listed(apart, most=3)}: of another vocabulary or range of ids, and not grown with this one"
    yield from _factorised(contract, tables)


def _factorised(contract: Contract, tables: Tables) -> Iterator[str]:
    """ALBERT, OPT-350m: rows narrower than the model."""
    width = tables.main.width
    for name in ("hidden_size", "d_model"):
        try:
            hidden = contract.config.integer(name).value
        except FactMissing:
            continue
        if isinstance(width, int) and width < hidden:
            yield (
                f"rows are {width} wide where {name} is {hidden}: the projection between them does not "
                "depend on the vocabulary, and is not counted"
            )
        return
