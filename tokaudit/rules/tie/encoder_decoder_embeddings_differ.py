from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._tables import surplus
from tokaudit.rules.tie._outcomes import difference


class EncoderDecoderEmbeddingsDiffer(Rule):
    """Tables of encoder and decoder that must be one are stored with different values.

    ## What it finds

    `shared`, `encoder.embed_tokens` and `decoder.embed_tokens` of a family that has one input table
    under these names (T5, BART, Pegasus, M2M100 ...), stored more than once and not equal. Families
    with two vocabularies (Marian with separate ones, FSMT, encoder-decoder pairs) have two tables and
    are not concerned. Copies of different size are left to `secondary-table-mismatch`.

    ## Why it matters

    The class has one parameter for all of them; which copy it ends up with depends on the loader and on
    the order of the files. A resize or a fine-tune that changed one copy only is lost, or wins by
    chance.

    ## How to fix it

    Keep the copy that was trained and take the others out: load the model, check the table, save it
    again.
    """

    code = "TA207"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        embeddings = contract.embeddings
        _ = contract.checkpoint
        for copy in embeddings.secondary:
            source = embeddings.input
            if not copy.copy or copy.malformed or surplus(copy, source) != 0:
                continue
            comparison = contract.comparison(source, copy)
            if comparison.equal:
                continue
            yield self.finding(
                f"{copy.name} and {source.name} are one table in this class, "
                f"but {difference(contract, comparison)}",
                [copy.says("another copy"), source.says("the input embeddings")],
                why="which copy the model gets depends on the loader",
                fix=f"keep the trained copy and take the other out ({copy.name} or {source.name})",
                subject=copy.name,
            )
