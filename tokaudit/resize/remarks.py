"""What is worth knowing about a resize before it is done: warnings, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tokaudit.contract import Contract, Missing, TableKind, Vocabulary
from tokaudit.resize.plan import TensorEdit
from tokaudit.text import named, shown

if TYPE_CHECKING:
    from tokaudit.resize.make import Facts


def notes(facts: Facts) -> Iterator[str]:
    """Nothing to worry about."""
    known = known_ids(facts.contract)
    for token in facts.request.tokens:
        if token.content in known:
            yield f"{shown(token.content)} is not new: it has id {known[token.content]}"
    if not facts.contract.embeddings.known:
        yield f"the class is not known: its tables were found by {facts.contract.embeddings.source}"


def warnings(facts: Facts, tensors: Sequence[TensorEdit]) -> Iterator[str]:
    """What may surprise later, though the result is sound."""
    yield from _of_ids(facts)
    yield from _of_roles(facts)
    if _has_zero_logits(facts, tensors):
        yield "a zero output row has logit 0: it wins wherever all other logits are negative"


def known_ids(contract: Contract) -> Mapping[str, int]:
    """The declared id of each text; nothing where no tokenizer is known."""
    vocabulary = contract.vocabulary_or
    return vocabulary.by_content if isinstance(vocabulary, Vocabulary) else {}


def tied(contract: Contract) -> bool:
    tie = contract.embeddings.tie_or
    return not isinstance(tie, Missing) and tie.tied


def _has_zero_logits(facts: Facts, tensors: Sequence[TensorEdit]) -> bool:
    own = any(edit.table.kind is TableKind.OUTPUT and edit.output_side for edit in tensors)
    recipes = [row.output if own else row.input for row in facts.rows if own or tied(facts.contract)]
    return any(recipe.method == "zeros" for recipe in recipes)


def _of_ids(facts: Facts) -> Iterator[str]:
    """Families that count from the end of the vocabulary, and fields that name a new token's id already."""
    if not facts.added:
        return
    texts = known_ids(facts.contract)
    first = named(facts.added[0].id, facts.added[0].content)
    if "<extra_id_0>" in texts:
        yield f"T5 sentinels: code that counts from the last id to <extra_id_0> will find {first} instead"
    if "<|0.00|>" in texts:
        yield f"Whisper timestamps: generation takes every id past <|notimestamps|> for a time, {first} too"
    new = {token.id: token for token in facts.added}
    for stated in facts.contract.id_fields:
        for id in stated.ids:
            if id in new and not stated.by_default:
                yield f"{stated.at} names id {id} already, which {shown(new[id].content)} now has"


def _of_roles(facts: Facts) -> Iterator[str]:
    contract = facts.contract
    if not facts.roles or facts.other is not None:
        return
    if isinstance(contract.tokenizer_config_or, Missing) and isinstance(facts.special_map, Missing):
        yield "no tokenizer_config.json: only the configurations say which token has which role"
    emissions = contract.vocabulary.emissions
    emitted = {emission.content for emission in emissions if emission.place != "unused"}
    for role, token in contract.roles.items():
        if token.content in emitted and facts.roles.get(role, token.content) != token.content:
            old = named(token.id, token.content)
            yield f"the post-processor still puts {old} around a text, the {role.value} token so far"
