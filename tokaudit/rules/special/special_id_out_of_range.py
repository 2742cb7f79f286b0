from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, IdField, Role, is_placeholder
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
from tokaudit.rules.special._kind import is_text_tower


class SpecialIdOutOfRange(Rule):
    """A configuration names a special token id that has no row, or that is no id at all.

    ## What it finds

    Id fields of `config.json` (its top and the parts for the text model) and `generation_config.json`
    whose value is negative, at or above the number of input rows, or not an integer. A pad id that the
    configuration class fills in counts where the class makes it the padding index of its table: a Phi-3
    config without `pad_token_id` pads with 32000. Fields that force or forbid tokens during generation
    are left to `forced-id-invalid`.

    Lowered to a warning: `pad_token_id: -1`, an old way to write "none", as long as the tokenizer has no
    pad token; placeholders of images, audio and video, which their model classes swap before the lookup;
    begin and end ids of the text tower of an image-text model, which never generates; and a field at the top
    of a composite config whose text part states the id that is used.

    ## Why it matters

    A pad id without a row makes the constructor of the model fail, because it is the padding index of the
    embedding. `-1` there means the last row: its token gets no gradient. An end-of-sequence id without a
    row never comes, so generation does not stop. An id that is no integer (`true`, `"2"`) is refused by
    some loaders and read as another id by others.

    ## How to fix it

    Write the id that the tokenizer gives the role, or remove the field (for no pad token:
    `"pad_token_id": null`). If the token is real and only its row is missing, give it one:
    `tokaudit resize SRC DST --rows N`.
    """

    code = "TA301"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        fields = [
            field
            for field in id_fields(contract)
            if not forces(field) and (not field.by_default or field.padding_index)
        ]
        for field in fields:
            if field.malformed:
                yield self._malformed(contract, field)
        for group in alike(fields):
            if any(id < 0 for id in group[0].ids):
                yield self._negative(contract, group)
        for group in alike(field for field in fields if field.ids):
            yield from self._past_the_rows(contract, group)

    def _malformed(self, contract: Contract, field: IdField) -> Finding:
        return self.finding(
            f"{place(field)} is no token id: {field.malformed}",
            [Claim(field.at, field.malformed)],
            why="some loaders refuse it, others read it as another id",
            fix=f"set {path(field)} to {_right_value(contract, field)}",
            subject=path(field),
        )

    def _negative(self, contract: Contract, fields: Sequence[IdField]) -> Finding:
        field = fields[0]
        means_none = field.role is Role.PAD and Role.PAD not in contract.roles
        mild = means_none or is_placeholder(field.name)
        pad = "-1 as padding index is the last row: its token gets no gradient"
        return self.finding(
            f"{_are(fields)} {contract.names([id for id in field.ids if id < 0])}, below 0",
            [states(contract, each) for each in fields],
            why=pad if field.role is Role.PAD else "no token has a negative id",
            fix=f"set {path(field)} to {_right_value(contract, field)}",
            severity=Severity.WARNING if mild else Severity.ERROR,
            subject=path(field),
        )

    def _past_the_rows(self, contract: Contract, fields: Sequence[IdField]) -> Iterator[Finding]:
        field = fields[0]
        limit = limit_of(contract, field)
        past = [id for id in field.ids if id >= limit.rows]
        if not past:
            return
        unused = is_text_tower(contract) and field.role in (Role.BOS, Role.EOS)
        stated_below = all(_stated_below(contract, each, limit.rows) for each in fields)
        mild = unused or stated_below or is_placeholder(field.name)
        default = " (the default of the configuration class)" if field.by_default else ""
        consequence = "this id never comes out of the model"
        if field.role is Role.PAD:
            consequence = "the embedding refuses it as its padding index, or fails at the first padded batch"
        yield self.finding(
            f"{_are(fields)} {contract.names(past)}{default}, and {limit.words}",
            [*(states(contract, each) for each in fields), limit.claim],
            why=consequence,
            fix=f"set {path(field)} to {_right_value(contract, field)}",
            severity=Severity.WARNING if mild else Severity.ERROR,
            subject=path(field),
        )


def _are(fields: Sequence[IdField]) -> str:
    return f"{places(fields)} {'is' if len(fields) == 1 else 'are'}"


def _stated_below(contract: Contract, field: IdField, rows: int) -> bool:
    """Whether the text part of a composite config states this role with a row; loaders read that one."""
    if field.role is None or field.section or field.generation:
        return False
    return any(
        other.section and other.ids and all(0 <= id < rows for id in other.ids)
        for other in contract.fields(field.role, generation=False)
    )


def _right_value(contract: Contract, field: IdField) -> str:
    """What the field should hold: the tokenizer's id of the role, or nothing."""
    token = contract.roles.get(field.role) if field.role else None
    return f"{token.id}, the tokenizer's {field.role.value} token" if field.role and token else "null"
