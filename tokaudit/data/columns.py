"""Which of the columns of a file hold the ids, and which the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokaudit.errors import Unreadable
from tokaudit.text import listed, shown

INPUTS = ("input_ids", "token_ids", "tokens", "ids", "inputs")
LABELS = ("labels", "label_ids", "target_ids", "targets")
# Columns of integers beside the ids that collators and tokenizers write.
_OTHERS = frozenset(
    {"attention_mask", "token_type_ids", "position_ids", "special_tokens_mask", "loss_mask", "length"}
    | {"seq_lengths", "cu_seqlens", "segment_ids", "word_ids", "idx", "index"}
)


def choose(name: str, columns: Mapping[str, bool], *, what: str) -> tuple[str, str]:
    """The columns of ids and of labels ("" for none) among those of a file.

    ``columns`` says of each whether it holds integers. Where no name is known, the only column of integers
    is taken. Raises Unreadable ("data-columns") where it is not clear which one is meant.
    """
    integers = [column for column, fits in columns.items() if fits]
    ids = next((column for column in INPUTS if column in integers), "")
    labels = next((column for column in LABELS if column in integers), "")
    if not ids:
        others = [column for column in integers if column not in _OTHERS and column != labels]
        if len(others) != 1:
            raise _unclear(name, list(columns), what)
        ids = others[0]
    return ids, labels


def _unclear(name: str, columns: Sequence[str], what: str) -> Unreadable:
    found = listed([shown(column) for column in columns]) if columns else "none"
    return Unreadable(
        "data-columns",
        name,
        f"expected {what} of integers named {' or '.join(INPUTS[:3])}, found {found}",
        hint=f"name the ids {INPUTS[0]}, and their labels {LABELS[0]}",
    )
