"""How the `tokenizers` library numbers added tokens, where it cannot be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def effective_ids(
    base: Mapping[str, int], added: Iterable[str], *, base_tokens: int | None = None
) -> dict[str, int]:
    """The ids that `tokenizers` 0.22.2 and later give to added tokens, whatever ids the file declares.

    ``base`` is the base vocabulary and ``added`` the contents of ``added_tokens`` in file order. A token of
    the base vocabulary keeps its id there. The others are numbered on from the *count* of base tokens, so
    they land on live ids where the base vocabulary has holes. Empty contents and repeats are skipped.
    ``base_tokens`` is the count where ``base`` does not tell it: a Unigram list may repeat a piece.

    Earlier versions number on from the largest id of an added token so far, once that reaches the count.
    """
    effective: dict[str, int] = {}
    following = len(base) if base_tokens is None else base_tokens
    for content in added:
        if not content or content in effective:
            continue
        if content in base:
            effective[content] = base[content]
        else:
            effective[content] = following
            following += 1
    return effective
