from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule


class PipelineDrift(Rule):
    """How text becomes tokens is not what the lock says.

    ## What it finds

    Every difference in the normalizer, the pre-tokenizer, the model's settings, its merges or scores, the
    post-processor, the decoder, the saved truncation and padding, and the flags of added tokens. Fields
    that are left out count as the library's defaults, a merge may be a text or a pair, and sequences in
    sequences count as one: what the library reads alike is alike. Where a tokenizer class of
    transformers builds the pipeline itself, a change of that class counts, too.

    ## Why it matters

    With the same vocabulary, the same text is split into other tokens. The model sees sequences that it
    was not trained on: numbers in other groups, a missing space mark, one `<s>` more or less.

    ## How to fix it

    Deploy the tokenizer that the lock was made of. Conversions between slow and fast tokenizers and
    changed loading options (`legacy`, `add_prefix_space`, `use_fast`) are the usual causes: save the
    tokenizer with the versions and options it was trained with. If the change is meant, make the lock
    again: `tokaudit lock PATH`.
    """

    code = "TA502"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        lock = contract.lock
        from tokaudit.diffs import drift

        drift.required(lock.parts, "pipeline")
        contract.vocabulary.pipeline  # noqa: B018  (raises where there is none)
        changes = drift.pipeline_changes(contract)
        if changes:
            layers = ", ".join(dict.fromkeys(change.layer for change in changes))
            yield self.finding(
                f"the pipeline is not the lock's ({layers}): {drift.said(changes)}",
                drift.claims(contract, changes),
                why="the same text is split into other tokens than those the model was trained on",
                fix=f"deploy the tokenizer that the lock was made of; {drift.MAKE_AGAIN}",
                subject=layers,
            )
        if lock.added_tokens is not None:
            contract.vocabulary.effective  # noqa: B018  (raises where added tokens have no ids to compare)
