from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tokaudit.contract import Contract, IdField, Role, Token
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import alike, id_fields, path, places, states, token_ids
from tokaudit.rules.special._kind import is_decoder_classifier, is_text_tower
from tokaudit.text import named

_ROLES = tuple(role for role in Role if role is not Role.EOS)


class SpecialIdDisagree(Rule):
    """Files give the bos, pad, unk, sep, cls or mask token different ids.

    ## What it finds

    A role whose id in `config.json` or `generation_config.json` is not the one of the tokenizer's token, or
    differs between the two configurations. (The end-of-sequence token has its own rule, `eos-disagree`.)
    Where one side says null, or the tokenizer has no such token, it is a note: Qwen's configurations name a
    bos id for a tokenizer without bos. For the text towers of image-text models, which keep old placeholders,
    it is a note too. A pad id of a sequence classifier on a decoder is an error, and so is one that
    `config.json` leaves out there although the tokenizer pads.

    ## Why it matters

    Padding done with one id and masked by another puts pad tokens into the attention and the loss. A
    classifier on a decoder looks for the last token that is not its `pad_token_id`: with another id it reads
    its answer at a pad token. A wrong bos id changes the first token of everything that is generated without
    a prompt.

    ## How to fix it

    Decide by the tokenizer, which is what the model was trained with, and write its ids into both
    configurations.
    """

    code = "TA305"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        known = id_fields(contract)
        fields = {role: _own_fields(contract, known, role) for role in _ROLES}
        roles, tokenizer = contract.roles, contract.vocabulary
        for role in _ROLES:
            token = roles.get(role)
            stated = [field for field in fields[role] if field.ids]
            ids = token_ids(contract, token) if token is not None and stated else set()
            wrong = [field for field in stated if ids and not ids & set(field.ids)]
            if wrong or (token is None and _apart(stated)):
                yield self._differ(contract, role, token, wrong or stated)
            elif token is not None and _is_unpadded_classifier(contract, role, stated):
                yield self._classifier_without_pad(contract, token, fields[role])
            elif token is not None and any(not field.ids for field in fields[role]):
                yield self._null(contract, role, fields[role], Claim(token.at, _is(role, token)))
            elif token is None and stated:
                absent = Claim(tokenizer.tables[0].at, f"the tokenizer declares no {role.value} token")
                yield self._null(contract, role, stated, absent)

    def _differ(
        self, contract: Contract, role: Role, token: Token | None, fields: Sequence[IdField]
    ) -> Finding:
        says = "; ".join(f"{places(group)}: {_value(contract, group[0])}" for group in alike(fields))
        severity = Severity.NOTE if is_text_tower(contract) else Severity.WARNING
        if role is Role.PAD and is_decoder_classifier(contract):
            severity = Severity.ERROR
        claims = [states(contract, field) for field in fields]
        fix = f"write one {role.value}_token_id into both configurations"
        if token is not None:
            says += f"; the tokenizer's {role.value} token is {named(token.id, token.content)}"
            claims.append(Claim(token.at, _is(role, token)))
            fix = f"set {path(fields[0])} to {token.id} in {fields[0].at.file}"
        return self.finding(
            f"files disagree on the {role.value} token: {says}",
            claims,
            why=_consequence(contract, role),
            fix=fix,
            severity=severity,
            subject=role.value,
        )

    def _classifier_without_pad(self, contract: Contract, token: Token, fields: Sequence[IdField]) -> Finding:
        silent = [states(contract, field) for field in fields]
        silent = silent or [Claim(contract.config.at, "pad_token_id is not stated")]
        return self.finding(
            f"config.json names no pad id, and the tokenizer pads with {named(token.id, token.content)}",
            [*silent, Claim(token.at, _is(Role.PAD, token))],
            why=_consequence(contract, Role.PAD),
            fix=f"set pad_token_id to {token.id} in config.json",
            severity=Severity.ERROR,
            subject="pad",
        )

    def _null(self, contract: Contract, role: Role, fields: Sequence[IdField], tokenizer: Claim) -> Finding:
        says = "; ".join(f"{places(group)}: {_value(contract, group[0])}" for group in alike(fields))
        return self.finding(
            f"only one side names a {role.value} token: {tokenizer.says}; {says}",
            [*(states(contract, field) for field in fields), tokenizer],
            why="tools that ask the side without one do as if there were none",
            fix="nothing, where the model is used without this token; otherwise name it on both sides",
            severity=Severity.NOTE,
            subject=role.value,
        )


def _is_unpadded_classifier(contract: Contract, role: Role, stated: Sequence[IdField]) -> bool:
    """Whether the class finds no pad id: it asks config.json alone, where generation asks both."""
    silent = all(field.generation for field in stated)
    return role is Role.PAD and silent and is_decoder_classifier(contract)


def _own_fields(contract: Contract, known: Iterable[IdField], role: Role) -> list[IdField]:
    """The fields that speak of the tokenizer's ids, as their files state them; -1 says none."""
    fields = [field for field in known if field.role is role and not (field.by_default or field.malformed)]
    if contract.speaks_another_vocabulary:
        fields = [field for field in fields if field.section not in ("", "decoder")]
    return [field for field in fields if all(id >= 0 for id in field.ids)]


def _value(contract: Contract, field: IdField) -> str:
    return contract.names(field.ids) if field.ids else "null"


def _apart(fields: Sequence[IdField]) -> bool:
    """Whether two of the fields name no id in common."""
    return any(not set(field.ids) & set(fields[0].ids) for field in fields)


def _is(role: Role, token: Token) -> str:
    return f"the {role.value} token is {named(token.id, token.content)}"


def _consequence(contract: Contract, role: Role) -> str:
    if role is Role.PAD and is_decoder_classifier(contract):
        return "the classifier reads its answer at a pad token instead of the last real one"
    if role is Role.PAD:
        return "what is padded with one id is masked by another: pad tokens enter the attention and the loss"
    return "tools that take the id from one file and the text from another use two different tokens"
