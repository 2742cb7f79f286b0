from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokaudit.contract import Contract
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.training._data import limit_claim
from tokaudit.text import counted

if TYPE_CHECKING:
    from tokaudit.contract.data import Place

_IGNORED = -100  # of labels


class DataIdOutOfRange(Rule):
    """The training data holds ids that have no row.

    ## What it finds

    Ids at or above the number of input rows, and negative ids, in the data that `--data` names: how many,
    and where the first one stands. In labels, -100 is legal: losses pass over it. Without the weights the
    rows that `config.json` asks for count, and with a tokenizer alone its largest id.

    ## Why it matters

    The lookup of such an id fails, or a loader that wraps ids around trains the wrong rows. A negative
    id takes a row from the end of the table in some frameworks, and fails in others.

    ## How to fix it

    Tokenise the data again with the tokenizer of this model, or give the ids rows (`tokaudit resize`). Where
    negative ids come from a dtype with too few bits, `data-dtype-too-narrow` says so.
    """

    code = "TA901"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        data = contract.data
        statistics, labels = data.statistics, data.statistics.labels
        if statistics.outside is not None:
            found = statistics.without_row(data.rows)
            span = f"ids from {statistics.least} to {statistics.most}"
            yield self._finding(
                contract, statistics.outside, found, statistics.items, statistics.negative, "id", span
            )
        if labels.outside is not None:
            found = labels.negative + labels.beyond
            yield self._finding(contract, labels.outside, found, labels.items, labels.negative, "label", "")

    def _finding(
        self,
        contract: Contract,
        first: Place,
        found: int,
        total: int,
        negative: int,
        noun: str,
        span: str,
    ) -> Finding:
        below = f" ({negative} negative)" if 0 < negative < found else ""
        limit = limit_claim(contract)
        column = f", column {first.column}" if first.column else ""
        claims = [Claim(first.at, f"{noun} {contract.named(first.id)}, the first one, at {first.words}")]
        if span:
            claims.append(Claim(contract.data.at, span))
        return self.finding(
            f"{counted(found, noun)} of {total}{below} {'has' if found == 1 else 'have'} no row; the first "
            f"is {first.id} at {first.words} of {first.file}{column}",
            [*claims, limit],
            why="looking such an id up fails, and a negative one may silently take another row"
            if noun == "id"
            else "the loss of such a label fails: an IndexError on a CPU, a device-side assert on a GPU",
            fix="-100 belongs into labels only: put the pad token into the inputs"
            if noun == "id" and first.id == _IGNORED
            else "tokenise the data with this model's tokenizer, or give the ids rows with `tokaudit resize`",
            subject=noun,
        )
