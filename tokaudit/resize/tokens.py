"""Which tokens are new, and the ids they get: old ids stay."""

from __future__ import annotations

from collections.abc import Mapping

from tokaudit.contract import AddedToken, Contract, Vocabulary, Witness
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.resize.request import NewToken, Refused, Request
from tokaudit.text import counted, listed, shown


def tokens_to_add(contract: Contract, request: Request) -> tuple[AddedToken, ...]:
    """The asked tokens with their ids: from the largest declared or effective id + 1 on, holes are left.

    Tokens that the tokenizer has already are left out. Raises Refused for an empty or repeated text.
    """
    vocabulary = contract.vocabulary
    largest = max(vocabulary.required_rows.value - 1, *vocabulary.loaded.effective.values(), -1)
    asked = [*request.tokens]
    known = {token.content for token in asked}
    asked += [NewToken(text, special=True) for text in request.roles.values() if text not in known]
    found: list[AddedToken] = []
    for token in asked:
        if not token.content:
            raise Refused("a new token has an empty text", hint="the tokenizers library skips such a token")
        if any(token.content == other.content for other in found):
            raise Refused(f"the token {shown(token.content)} is asked for twice")
        if token.content in vocabulary.by_content:
            continue
        largest += 1
        at = Location("tokenizer.json").child("added_tokens", len(stated_added(vocabulary)) + len(found))
        found.append(
            AddedToken(
                id=largest,
                content=token.content,
                at=at,
                special=token.special,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                normalized=not token.special if token.normalized is None else token.normalized,
                single_word=token.single_word,
            )
        )
    return tuple(found)


def tokens_of_target(contract: Contract, target: Contract) -> tuple[AddedToken, ...]:
    """The tokens that the target tokenizer has and the model has no row, or no token, for.

    Raises Refused where an id that both have stands for other texts.
    """
    theirs = target.vocabulary
    ours = _known_ids(contract)
    if contract.name != target.name:
        _refuse_moved(ours, theirs)
    rows = contract.embeddings.input.rows
    flags = {token.content: token for token in theirs.added}
    fresh = [
        (id, content)
        for content, id in theirs.by_content.items()
        if id >= rows or (ours and content not in ours)
    ]
    return tuple(
        flags.get(content) or AddedToken(id, content, theirs.locate(id)) for id, content in sorted(fresh)
    )


def _known_ids(contract: Contract) -> Mapping[str, int]:
    vocabulary = contract.vocabulary_or
    return vocabulary.by_content if isinstance(vocabulary, Vocabulary) else {}


def _refuse_moved(ours: Mapping[str, int], theirs: Vocabulary) -> None:
    moved = [
        f"{shown(content)} from {id} to {theirs.by_content.get(content, 'nothing')}"
        for content, id in ours.items()
        if theirs.by_content.get(content) != id
    ]
    if moved:
        raise Refused(
            f"{counted(len(moved), 'token')} would move: {listed(moved)}",
            hint="--to-tokenizer needs a tokenizer that keeps every old id",
        )


def stated_added(vocabulary: Vocabulary) -> tuple[AddedToken, ...]:
    try:
        return vocabulary.table(Witness.ADDED).entries
    except FactMissing:
        return ()
