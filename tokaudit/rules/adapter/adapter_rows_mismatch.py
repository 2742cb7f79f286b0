from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import AdaptedTable, Base, Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.adapter._base import tables_of, what


class AdapterRowsMismatch(Rule):
    """The adapter's embeddings have other rows than those of its base.

    ## What it finds

    A table that the adapter holds whole (`modules_to_save`, or the embedding layers that PEFT saves by
    itself when the base was resized), or low-rank factors of one (of an embedding the vocabulary is axis 1
    of `lora_embedding_A`, of an output layer axis 0 of `lora_B`), with another number of rows than the
    base's table. Also tables of another width, which belong to another base, and tables without values, as
    they are saved when the parts of a sharded run are not gathered first. Rows of the base that its weights
    do not tell are those that its `config.json` asks for.

    ## Why it matters

    PEFT fails to load it: "size mismatch for base_model.model...". It happens when tokens were added, or
    the base was cut to `len(tokenizer)`, in memory only.

    ## How to fix it

    Give the base as many rows before the adapter is loaded: `tokaudit resize BASE DST --to-tokenizer
    ADAPTER` or `--rows N`, and name DST as the base; or `base.resize_token_embeddings(N)` in each program
    that loads it. Where the adapter has fewer rows than a padded base, train it without resizing the base
    to `len(tokenizer)`.
    """

    code = "TA801"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        tables, base = adapter.tables, adapter.base
        for table in tables:
            if table.malformed:
                yield self._malformed(table)
        yield from self._rows(base, tables)
        for table in tables:
            if base.hidden is not None and table.hidden not in (None, base.hidden):
                yield self._width(base, table, base.hidden)

    def _malformed(self, table: AdaptedTable) -> Finding:
        return self.finding(
            f"the adapter's {table.module} holds no rows: {table.malformed}",
            [table.says(f"shape {list(table.tensor.shape)}")],
            why="there is nothing to load: the training is lost, or the file was saved without its values",
            fix="save the adapter again after gathering the parameters "
            "(`accelerator.get_state_dict(model)`), on every process",
            subject=table.module,
        )

    def _rows(self, base: Base, tables: tuple[AdaptedTable, ...]) -> Iterator[Finding]:
        """One finding for both tables where both are off alike."""
        groups: dict[tuple[int, int], list[AdaptedTable]] = {}
        for table in tables:
            wanted = base.rows(table.kind).value
            if isinstance(table.rows_or, int) and table.rows_or != wanted:
                groups.setdefault((table.rows_or, wanted), []).append(table)
        for (own, wanted), group in groups.items():
            yield self._mismatch(base, own, wanted, group)

    def _mismatch(self, base: Base, own: int, wanted: int, group: list[AdaptedTable]) -> Finding:
        more = own > wanted
        facts = dict.fromkeys(base.rows(table.kind) for table in group)
        return self.finding(
            f"the adapter's {tables_of([table.kind for table in group])} have {own} rows, "
            f"{abs(own - wanted)} {'more' if more else 'fewer'} than the {wanted} of its base",
            [
                *(table.says(what(table)) for table in group),
                *(rows.says(f"{wanted} rows of the base") for rows in facts),
                *base.claims,
            ],
            why="PEFT cannot load it into this base: size mismatch",
            fix=f"`tokaudit resize BASE DST --rows {own}` makes a base that fits"
            if more
            else f"load it into the base as it was trained, `base.resize_token_embeddings({own})`; "
            "better, train without resizing the padded base",
            subject=", ".join(table.module for table in group),
        )

    def _width(self, base: Base, table: AdaptedTable, hidden: int) -> Finding:
        given = base.embeddings.input
        return self.finding(
            f"the adapter's {table.module} is {table.hidden} wide, the tables of its base {hidden}",
            [table.says(f"width {table.hidden}"), base.says(given.says(f"width {hidden}")), *base.claims],
            why="the adapter belongs to another base: PEFT cannot load it into this one",
            fix="give the base that the adapter was trained on",
            subject=f"{table.module} width",
        )
