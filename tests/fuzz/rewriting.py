"""The same document written otherwise, and documents whose ids are others."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

SPELLINGS = st.sampled_from(
    [
        {"indent": 1, "ensure_ascii": False},
        {"separators": (",", ":")},
        {"indent": "\t"},
        {"separators": (" , ", " : "), "ensure_ascii": False},
    ]
)


@st.composite
def rewritten(draw: st.DrawFn, document: Any, *, mark: bytes = b"") -> bytes:
    """The document with its keys in another order and other blanks; what it says is the same.

    ``mark`` may stand at the beginning of the file.
    """

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(value[key]) for key in draw(st.permutations(list(value)))}
        if isinstance(value, list):
            return [shuffled(member) for member in value]
        return value

    return draw(st.sampled_from([b"", mark])) + json.dumps(shuffled(document), **draw(SPELLINGS)).encode()


@st.composite
def with_other_ids(draw: st.DrawFn, tokenizer: Any) -> Any:
    """A tokenizer.json with a small change to its tokens; their ids are the same in the end, or not."""
    changed = copy.deepcopy(tokenizer)
    vocab, added = changed["model"]["vocab"], changed["added_tokens"]
    match draw(st.sampled_from(["swap", "id", "rename", "reverse", "drop", "declare"])):
        case "swap" if isinstance(vocab, dict):
            one, other = draw(st.sampled_from(sorted(vocab))), draw(st.sampled_from(sorted(vocab)))
            vocab[one], vocab[other] = vocab[other], vocab[one]
        case "id" if isinstance(vocab, dict):
            vocab[draw(st.sampled_from(sorted(vocab)))] = draw(st.integers(0, 16))
        case "rename" if isinstance(vocab, list):
            vocab[draw(st.integers(0, len(vocab) - 1))][0] = draw(st.sampled_from(["z", "a", "new"]))
        case "drop" if added:
            del added[draw(st.integers(0, len(added) - 1))]
        case "declare" if added:
            added[draw(st.integers(0, len(added) - 1))]["id"] = draw(st.integers(0, 20))
        case _:
            added.reverse()
    return changed
