from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import output_side, surplus
from tokaudit.text import counted


class OutputBiasMismatch(Rule):
    """An output bias does not have one value per output row.

    ## What it finds

    `lm_head.bias`, `cls.predictions.bias`, `cls.predictions.decoder.bias`, `final_logits_bias` and
    their kin whose length is not the number of output rows (those of the input table where the two are
    tied).

    ## Why it matters

    A resize that forgot the bias leaves a checkpoint that loads with a size mismatch, or logits that
    cannot be added. Some loaders fill the difference with zeros without a word.

    ## How to fix it

    `tokaudit resize SRC DST --rows N` with N the number of output rows extends every bias with its
    table.
    """

    code = "TA106"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        _ = contract.whole_checkpoint
        for bias in embeddings.biases:
            table = output_side(embeddings, bias.group)
            if bias.malformed or surplus(bias, table) == 0:
                continue
            yield self.finding(
                f"{bias.name} has {counted(bias.rows, 'value')} for {table.rows} output rows",
                [bias.says(counted(bias.rows, "value")), table.says(f"{table.rows} rows")],
                why="loaders refuse the bias, or the logits of the rows without one are wrong",
                fix=f"`tokaudit resize SRC DST --rows {max(bias.rows, table.rows)}` extends the bias "
                "with its table",
                subject=bias.name,
            )
