from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, Embeddings, Moments, OptimizerState, Table, TableKind, has_shape
from tokaudit.errors import FactMissing
from tokaudit.families.adapted import parameter_name, table_of
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed


class OptimizerRowsMismatch(Rule):
    """What the optimizer keeps of a table has other rows than the table.

    ## What it finds

    With `--optimizer PATH`: moments (or Adafactor's row means) of the input or output embeddings whose rows
    are not those of the stored table. The state is that of transformers' Trainer (`optimizer.pt`), of
    Accelerate (`optimizer.bin`), of torch.distributed.checkpoint (a folder with `.metadata`), or the shapes
    that DeepSpeed writes down. Where it has no names, a table's moments are recognised by their shape: if
    too few states have the shape of the tables, those of the same width, with about as many rows and the
    shape of no other tensor, are theirs. Half of the rows, a quarter, and so on may be what one rank of a run
    keeps that divides its tables: then the rule is skipped.

    ## Why it matters

    Tokens were added, or rows cut off, between saving and resuming. `load_state_dict` does not compare
    shapes: the run starts, and fails at the first step with a size mismatch.

    ## How to fix it

    `tokaudit resize SRC DST --optimizer` grows tables and moments together. Or resume without the
    optimizer's state: it starts afresh.
    """

    code = "TA906"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        state = contract.optimizer
        embeddings = contract.embeddings
        tables = [table for table in embeddings.tables if not (table.packed or table.malformed or table.copy)]
        embeddings.input  # noqa: B018  (raises where the tables are not known)
        if any(moments.named for moments in state.parameters):
            pairs = list(_by_name(embeddings, tables, state))
        else:
            pairs = list(_by_shape(contract, tables, state))
        undecided = ""
        for table, moments in pairs:
            rows, kept = table.tensor.shape[table.axis], moments.shape[table.axis]
            if kept == rows:
                continue
            if kept and rows % kept == 0:
                undecided = undecided or f"{kept} of {rows} rows of {table.name}"
            else:
                yield self._mismatch(table, moments, state)
        if undecided:
            raise FactMissing(
                f"{state.at.file} keeps {undecided}: one rank's part of a run that divides tables would be so"
            )
        if not pairs:
            raise FactMissing(f"{state.at.file} keeps nothing of the shape of a table: they may be frozen")

    def _mismatch(self, table: Table, moments: Moments, state: OptimizerState) -> Finding:
        axis = table.axis
        rows, kept = table.tensor.shape[axis], moments.shape[axis]
        which = moments.name if moments.named else f"state {moments.name}"
        tensors = listed([f"{name} {list(shape)}" for name, shape in moments.tensors.items() if shape], 3)
        return self.finding(
            f"the optimizer keeps {counted(kept, 'row')} of {table.name} ({which}), the table has {rows}",
            [moments.says(tensors), table.says(f"shape {list(table.tensor.shape)}")],
            why="loading the state does not compare shapes: the first step fails with a size mismatch",
            fix="grow tables and moments together (`tokaudit resize SRC DST --optimizer`), "
            "or resume without the optimizer's state",
            subject=table.name,
        )


def _by_name(
    embeddings: Embeddings, tables: Sequence[Table], state: OptimizerState
) -> Iterator[tuple[Table, Moments]]:
    """Each table and what is kept of the parameter of its name."""
    by_stem = {table.name.removesuffix(".weight"): table for table in tables}
    sides: dict[TableKind, Table] = {
        table.kind: table for table in reversed(tables) if table.kind in (TableKind.INPUT, TableKind.OUTPUT)
    }
    for moments in state.parameters:
        name = parameter_name(moments.name)
        table = by_stem.get(name)
        if table is None:
            kind = table_of(name, embeddings)
            table = sides.get(kind) if kind is not None else None
        if table is not None and len(moments.shape) == len(table.tensor.shape):
            yield table, moments


def _by_shape(
    contract: Contract, tables: Sequence[Table], state: OptimizerState
) -> Iterator[tuple[Table, Moments]]:
    """Each table and the state that must be its own, in the order of the parameters."""
    others = Counter(tensor.shape for tensor in contract.whole_checkpoint.tensors.values())
    others.subtract(table.tensor.shape for table in tables)
    shapes = {shape for shape, count in others.items() if count > 0}
    groups: dict[tuple[int, ...], list[Table]] = {}
    for table in _parameters(contract.embeddings, tables):
        groups.setdefault(table.tensor.shape, []).append(table)
    claimed: set[str] = set()
    for shape, group in groups.items():
        own = [moments for moments in state.parameters if has_shape(moments.tensors, shape)]
        claimed |= {moments.name for moments in own}
        strangers = [
            moments
            for moments in state.parameters
            if moments.name not in claimed and moments.shape not in shapes and _alike(moments.shape, group[0])
        ]
        if len(own) + len(strangers) == len(group):
            claimed |= {moments.name for moments in strangers}
            own = [moments for moments in state.parameters if moments in own or moments in strangers]
        yield from zip(group, own, strict=False)


def _parameters(embeddings: Embeddings, tables: Sequence[Table]) -> Iterator[Table]:
    """The tables that are parameters of their own: under a tie the stored output table is the input one."""
    for table in tables:
        if not (table.kind is TableKind.OUTPUT and embeddings.tie.tied):
            yield table


def _alike(shape: tuple[int, ...], table: Table) -> bool:
    """Whether a parameter of that shape may be the table with other rows: at least half, at most twice."""
    own, axis = table.tensor.shape, table.axis
    if len(shape) != len(own) or any(
        a != b for i, (a, b) in enumerate(zip(shape, own, strict=True)) if i != axis
    ):
        return False
    return own[axis] <= 2 * shape[axis] and shape[axis] <= 2 * own[axis]
