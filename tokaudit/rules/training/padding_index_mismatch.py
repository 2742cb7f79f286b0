from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, IdField, Role, Token
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import states


class PaddingIndexMismatch(Rule):
    """The padding index of the input embeddings is not the pad token, or is a token that means something.

    ## What it finds

    A `padding_idx` of `nn.Embedding` at another row than the pad token's; one that was given as -1, which
    torch counts from the end: the last row; and one at the end-of-sequence token, where pad and
    end-of-sequence are one. It is a note where the input embeddings are not trained.

    ## Why it matters

    The row at `padding_idx` gets no gradient as an input, whatever token it belongs to, and the pad row gets
    one. With a tied table the row still moves, through the output alone. Nothing is reported while training.

    ## How to fix it

    Set `embedding.padding_idx` to the pad id, or to `None`: where the loss leaves padding out, the pad row
    needs no padding index.
    """

    code = "TA913"
    severity = Severity.WARNING
    live = True

    def check(self, contract: Contract) -> Iterator[Finding]:
        module = contract.module
        index = module.options.padding_index
        if index is None:
            return
        pad, said = _pad(contract)
        eos = contract.roles.get(Role.EOS)
        if any(-1 in field.ids for field in contract.fields(Role.PAD)) and index == module.input.rows - 1:
            yield self._finding(
                contract,
                f"the padding index was given as -1, which is the last row: {contract.named(index)}",
                said,
            )
        elif pad is not None and pad != index:
            yield self._finding(
                contract,
                f"the padding index is {contract.named(index)}, the pad token {contract.named(pad)}",
                said,
            )
        elif eos is not None and eos.id == index:
            yield self._finding(
                contract,
                f"the padding index is the end-of-sequence token {contract.named(index)}",
                [Claim(eos.at, "the eos token"), *said],
            )

    def _finding(self, contract: Contract, message: str, claims: list[Claim]) -> Finding:
        module = contract.module
        path = "; as an output it still does" if module.tied else ""
        return self.finding(
            message,
            [module.input.says(f"padding_idx={module.options.padding_index}"), *claims],
            why=f"this row gets no gradient as an input{path}",
            fix="set `embedding.padding_idx` to the id of a token that is only padding, or to None",
            severity=None if module.input.trained else Severity.NOTE,
            subject="padding_idx",
        )


def _pad(contract: Contract) -> tuple[int | None, list[Claim]]:
    """The id that padding is done with, and who says so: the tokenizer, else the configuration."""
    token: Token | None = contract.roles.get(Role.PAD)
    if token is not None:
        return token.id, [Claim(token.at, f"the pad token is {contract.named(token.id)}")]
    fields: list[IdField] = [field for field in contract.fields(Role.PAD) if field.ids]
    if not fields:
        return None, []
    return (fields[0].ids[0] if fields[0].ids[0] >= 0 else None), [states(contract, fields[0])]
