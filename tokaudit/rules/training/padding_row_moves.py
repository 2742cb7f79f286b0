from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._ledger import trained, window

if TYPE_CHECKING:
    from tokaudit.contract.ledger import Ledger, TableLedger

_NEGLIGIBLE = 1e-6  # of what other rows get: no gradient, but for rounding


class PaddingRowMoves(Rule):
    """The row of the pad token moves in training.

    ## What it finds

    A row of the pad id that moved within the recorded training steps, and why: its gradient through the
    output path (the softmax pushes the logit of every token down that is not the answer), its gradient
    through the input path, or neither (weight decay, momentum). It is a note for the output path, weight
    decay and momentum, and a warning for the input path; a note, too, where the pad token also begins what a
    decoder reads (T5, Marian, Pegasus). It looks at recorded training steps, and is skipped where the pad id
    is not known.

    ## Why it matters

    `padding_idx` of `nn.Embedding` only stops the input path. In tied embeddings the output path moves the
    row all the same, so that a pad row that started as zeros does not stay so; nothing is wrong with that
    as long as padding is masked. A gradient through the input path says that it is not: what stands at
    positions of padding has reached the loss, and texts of one batch depend on how long the others are.

    ## How to fix it

    For the input path: give the attention mask with the batch, and -100 as label of padding. Where the pad
    token is the end-of-sequence token too, its row has to move: use a pad token of its own if you want to
    tell. For weight decay: put the embeddings into a group without.
    """

    code = "TA932"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        ledger = contract.ledger
        pad = ledger.pad_id
        if pad is None:
            raise FactMissing("the ledger knows no pad id")
        for table in trained(ledger):
            if pad < table.rows and table.updates[pad] > 0:
                yield self._finding(ledger, table, pad)

    def _finding(self, ledger: Ledger, table: TableLedger, pad: int) -> Finding:
        from tokaudit.contract.ledger import median

        through_input, through_output = table.input_gradients[pad], table.output_gradients[pad]
        usual = median([table.input_gradients[id] for id in ledger.visited_old if id < table.rows])
        unmasked = through_input > _NEGLIGIBLE * usual
        causes = []
        if through_input > 0:
            causes.append(f"through the input path (gradient {through_input:.3g})")
        if through_output > 0:
            causes.append(f"through the output path (gradient {through_output:.3g})")
        if table.untouched[pad] > 0:
            causes.append(f"without a gradient ({table.untouched[pad]:.3g}, by {_without(table)})")
        return self.finding(
            f"the pad row {ledger.named(pad)} of {table.name} moved {table.updates[pad]:.3g} {window(ledger)}"
            f": {', and '.join(causes)}",
            [Claim(ledger.at(table, pad), f"visited {ledger.row(pad).visits} times; moved")],
            why=_why(unmasked, ledger.pad_starts),
            fix="give the attention mask, and -100 as label of padding"
            if unmasked and not ledger.pad_starts
            else "nothing; to keep the row, write it back after each step",
            severity=Severity.WARNING if unmasked and not ledger.pad_starts else Severity.NOTE,
            subject=f"{table.name} pad",
        )


def _why(unmasked: bool, starts: bool) -> str:
    if unmasked and starts:
        return "it also begins what the decoder reads: whether padding is masked cannot be told from its row"
    if unmasked:
        return "what stands at padding reaches the loss: it is not masked, or the token is no padding alone"
    return "nothing, as long as padding is masked; a pad row of zeros does not stay so"


def _without(table: TableLedger) -> str:
    return f"weight decay {table.weight_decay:g}" if table.weight_decay else "momentum, or another writer"
