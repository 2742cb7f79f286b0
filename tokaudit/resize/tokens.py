"""Which tokens are new, which have no row yet, and the ids they get: old ids stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokaudit.contract import AddedToken, Contract, Missing, Role, Vocabulary, Witness
from tokaudit.errors import FactMissing
from tokaudit.findings import Location
from tokaudit.resize.request import NewToken, Refused, Request
from tokaudit.text import counted, listed, shown


def tokens_to_add(contract: Contract, request: Request) -> tuple[AddedToken, ...]:
    """The asked tokens with their ids: from the largest declared or effective id + 1 on, holes are left.

    Tokens that the tokenizer has already are left out. Raises Refused for an empty or repeated text, and
    where there is no tokenizer.json to add them to.
    """
    vocabulary = contract.vocabulary_or
    if isinstance(vocabulary, Missing):
        raise Refused(f"no tokenizer to add a token to: {vocabulary.reason}")
    fresh = [token for token in _asked(request) if token.content not in vocabulary.by_content]
    if not fresh:
        return ()
    if isinstance(vocabulary.pipeline_or, Missing):
        raise Refused(
            "tokens can only be added to a tokenizer.json, and there is none",
            hint="save the tokenizer with transformers as a fast tokenizer first",
        )
    following = max(vocabulary.required_rows.value - 1, *vocabulary.loaded.effective.values(), -1) + 1
    at = Location("tokenizer.json").child("added_tokens")
    before = len(stated_added(vocabulary))
    return tuple(
        AddedToken(
            id=following + place,
            content=token.content,
            at=at.child(before + place),
            special=token.special,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            normalized=not token.special if token.normalized is None else token.normalized,
            single_word=token.single_word,
        )
        for place, token in enumerate(fresh)
    )


def _asked(request: Request) -> Sequence[NewToken]:
    """The tokens of the request; a role's text that is not among them is one, too, and special."""
    found = {token.content: token for token in request.tokens}
    if len(found) < len(request.tokens):
        contents = [token.content for token in request.tokens]
        twice = next(content for content in contents if contents.count(content) > 1)
        raise Refused(f"the token {shown(twice)} is asked for twice")
    for text in request.roles.values():
        found.setdefault(text, NewToken(text, special=True))
    if "" in found:
        raise Refused("a new token has an empty text", hint="the tokenizers library skips such a token")
    for content in found:
        if any("\ud800" <= char <= "\udfff" for char in content):
            raise Refused(f"the token {shown(content)} is no text: it holds half a character")
    return tuple(found.values())


def tokens_of_other(contract: Contract, other: Contract) -> tuple[AddedToken, ...]:
    """The tokens that the other tokenizer has and the model's own does not have.

    A model without a tokenizer has tokens for all its rows. Raises Refused where an old id would stand for
    another text, or where the library would not give a new token the id that it declares.
    """
    ours, theirs = contract.vocabulary_or, other.vocabulary
    if isinstance(ours, Missing):
        rows = contract.embeddings.input.rows
        fresh = {content: id for content, id in theirs.by_content.items() if id >= rows}
    else:
        _refuse_moved(ours, theirs)
        fresh = {content: id for content, id in theirs.by_content.items() if content not in ours.by_content}
    effective = theirs.loaded.effective
    flags = {token.content: token for token in theirs.added}
    for content, id in fresh.items():
        if effective.get(content, id) != id:
            message = f"declares {shown(content)} as {id}, and the tokenizers library makes it"
            raise Refused(f"the tokenizer in {other.name} {message} {effective[content]}")
    return tuple(
        flags.get(content) or AddedToken(id, content, theirs.locate(id))
        for content, id in sorted(fresh.items(), key=lambda item: item[1])
    )


def _refuse_moved(ours: Vocabulary, theirs: Vocabulary) -> None:
    moved = [
        f"{shown(content)} from {id} to {theirs.by_content.get(content, 'nothing')}"
        for content, id in ours.by_content.items()
        if theirs.by_content.get(content) != id
    ]
    moved += [
        f"{id} from {shown(ours.by_id[id])} to {shown(content)}"
        for content, id in theirs.by_content.items()
        if content not in ours.by_content and id in ours.by_id
    ]
    if moved:
        raise Refused(
            f"{counted(len(moved), 'token')} would move: {listed(moved)}",
            hint="--to-tokenizer needs a tokenizer that keeps every old id",
        )


def tokens_without_row(vocabulary: Vocabulary | Missing, rows: int) -> tuple[AddedToken, ...]:
    """Tokens whose ids lie past the last row, in the order of their ids."""
    if isinstance(vocabulary, Missing):
        return ()
    flags = {token.content: token for token in vocabulary.added}
    beyond = sorted((id, content) for content, id in vocabulary.by_content.items() if id >= rows)
    return tuple(
        flags.get(content) or AddedToken(id, content, vocabulary.locate(id)) for id, content in beyond
    )


def roles_of_other(contract: Contract, other: Contract) -> Mapping[Role, str]:
    """The roles to which the other tokenizer gives another token than the model's own tokenizer does."""
    if isinstance(contract.vocabulary_or, Missing):
        return {}
    own = {role: token.content for role, token in contract.roles.items()}
    return {role: token.content for role, token in other.roles.items() if own.get(role) != token.content}


def stated_added(vocabulary: Vocabulary) -> tuple[AddedToken, ...]:
    try:
        return vocabulary.table(Witness.ADDED).entries
    except FactMissing:
        return ()
