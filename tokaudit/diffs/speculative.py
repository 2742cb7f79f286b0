"""Draft and target: the right side drafts for the left one, the target.

Drafted ids are the target's ids, so every id that both have must stand for the same token. Text is split by
the target's tokenizer alone, so the draft's pipeline does not matter. What serving engines ask beyond that
(2026): vLLM (``draft_model``) wants the same ``vocab_size``; SGLang (``STANDALONE``) that, and the same whole
mapping; transformers takes another ``vocab_size`` for another tokenizer and wants both; llama.cpp compares
the texts of the ids that both have, bos and eos, and allows 128 tokens more or less.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import LockedRole, Role
from tokaudit.diffs.comparison import Comparison, input_rows
from tokaudit.diffs.difference import Side
from tokaudit.diffs.mapping import few
from tokaudit.text import counted, named

MOST_TOKENS_APART = 128  # llama.cpp's SPEC_VOCAB_MAX_SIZE_DIFFERENCE


def reasons(found: Comparison) -> list[str]:
    return [*_other_tokens(found), *_tokens_apart(found), *_rows_missing(found), *_ends(found)]


def remarks(found: Comparison) -> list[str]:
    return [*_tokens_of_one(found), *_padding(found), *found.words("pipeline")]


def _other_tokens(found: Comparison) -> Iterator[str]:
    """Ids that stand for another token in the draft."""
    mapping = found.mapping
    if mapping is None:
        return
    if mapping.replaced:
        words = few(
            mapping.replaced, lambda pair: f"{named(pair.id, pair.left)} is {named(pair.id, pair.right)}"
        )
        count = counted(len(mapping.replaced), "id")
        yield f"{count} of the target mean another token to the draft: {words}"
    if mapping.moved:
        words = few(mapping.moved, lambda moved: f"{named(moved.left, moved.content)} is {moved.right}")
        yield f"{counted(len(mapping.moved), 'token')} of the target have another id in the draft: {words}"
    if not mapping.complete:
        yield from found.mapping_words()


def _tokens_apart(found: Comparison) -> Iterator[str]:
    target, draft = found.left.lock.mapping, found.right.lock.mapping
    if target is not None and draft is not None and abs(target.count - draft.count) > MOST_TOKENS_APART:
        yield (
            f"the target has {target.count} tokens and the draft {draft.count}; "
            f"llama.cpp allows {MOST_TOKENS_APART} more or less"
        )


def _rows_missing(found: Comparison) -> Iterator[str]:
    """Tokens that the draft may propose and for which the target has no row."""
    rows = input_rows(found.left)
    if found.mapping is None or rows is None:
        return
    beyond = [token for token in found.mapping.added if token[0] >= rows]
    if beyond:
        words = few(beyond, lambda token: named(*token))
        yield f"the draft may propose {words}, and the target has only {rows} rows"


def _ends(found: Comparison) -> Iterator[str]:
    target, draft = found.left.lock.roles or {}, found.right.lock.roles or {}
    for role in (Role.BOS.value, Role.EOS.value):
        if role in target and role in draft and target[role].id != draft[role].id:
            yield f"the {role} token is {_role(target[role])} and in the draft {_role(draft[role])}"


def _role(held: LockedRole) -> str:
    return "without an id" if held.id is None else named(held.id, held.content)


def _tokens_of_one(found: Comparison) -> Iterator[str]:
    if found.mapping is None:
        return
    replaced = {pair.id for pair in found.mapping.replaced}
    for side, fate, tokens in (
        ("target", "drafted", found.mapping.removed),
        ("draft", "accepted", found.mapping.added),
    ):
        alone = [token for token in tokens if token[0] not in replaced]
        if alone:
            words = few(alone, lambda token: named(*token))
            count = counted(len(alone), "token")
            yield f"{count} of the {side} alone, never {fate}: {words} (SGLang refuses the pair)"


def _padding(found: Comparison) -> Iterator[str]:
    target, draft = _asked_rows(found.left), _asked_rows(found.right)
    if target is not None and draft is not None and target != draft:
        yield (
            f"vocab_size is {target} and in the draft {draft}: vLLM and SGLang want the same one "
            f"(`tokaudit resize --rows {max(target, draft)}` pads the smaller)"
        )


def _asked_rows(side: Side) -> int | None:
    return side.lock.expected_rows if side.lock.expected_rows is not None else input_rows(side)
