from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, IdField
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import (
    alike,
    forces,
    id_fields,
    limit_of,
    path,
    place,
    places,
    states,
)
from tokaudit.text import counted


class ForcedIdInvalid(Rule):
    """A field that forces or forbids tokens during generation names ids without a row.

    ## What it finds

    Ids in `suppress_tokens`, `begin_suppress_tokens`, `bad_words_ids`, `forced_bos_token_id`,
    `forced_eos_token_id`, `forced_decoder_ids` and `decoder_start_token_id` (of `config.json` and
    `generation_config.json`) that are at or above the number of rows, negative, or not integers. `-1` in a
    suppress list is legal. An id with a row but without a token is fine: Whisper forces time stamps that
    older tokenizers do not list.

    ## Why it matters

    Generation writes into the logits at these positions: an id without one is an `IndexError`, or a
    device-side assert on a GPU. A start id without a row fails at the first decoding step.

    ## How to fix it

    Write the ids of the tokens in this tokenizer, or remove the field. They are often left from the
    checkpoint that the model was made of, before its vocabulary changed.
    """

    code = "TA313"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        fields = [field for field in id_fields(contract) if forces(field) and not field.by_default]
        for field in fields:
            if field.malformed:
                yield self.finding(
                    f"{place(field)} is no token id: {field.malformed}",
                    [Claim(field.at, field.malformed)],
                    why="generation refuses it, or reads it as another id",
                    fix=f"write the ids as integers, or remove {path(field)}",
                    subject=path(field),
                )
        for group in alike(field for field in fields if field.ids):
            yield from self._without_row(contract, group)

    def _without_row(self, contract: Contract, fields: Sequence[IdField]) -> Iterator[Finding]:
        field = fields[0]
        limit = limit_of(contract, field)
        lowest = -1 if field.name.endswith("suppress_tokens") else 0
        wrong = [id for id in field.ids if not lowest <= id < limit.rows]
        if wrong:
            yield self.finding(
                f"{places(fields)} {'names' if len(fields) == 1 else 'name'} {counted(len(wrong), 'id')} "
                f"without a row: {contract.names(wrong)}; {limit.words}",
                [*(states(contract, each) for each in fields), limit.claim],
                why="generation indexes the logits with it and fails",
                fix=f"write the ids that this tokenizer gives the tokens, or remove {path(field)}",
                subject=path(field),
            )
