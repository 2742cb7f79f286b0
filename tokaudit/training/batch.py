"""`audit_batch`: one batch against the model that will read it.

Everything about a batch is reduced on its device to a few dozen numbers, which are fetched together: where
the device is a GPU, it is waited for once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from torch import nn

from tokaudit.audit import run, select_rules
from tokaudit.contract import Contract
from tokaudit.contract.data import IGNORED
from tokaudit.errors import UsageError
from tokaudit.report import Report
from tokaudit.rule import Rule
from tokaudit.training.expectations import Expectations, expectations
from tokaudit.training.measure import measure
from tokaudit.training.tables import Named

_EMPTY = Contract.without_files("batch", "a batch has no files")


def audit_batch(
    batch: Mapping[str, object],
    model_or_rows: nn.Module | int,
    *,
    pad_id: int | None = None,
    eos_id: int | Iterable[int] | None = None,
    tokenizer: object = None,
    ignore_id: int = IGNORED,
    input: Named = None,
    output: Named = None,
) -> Report:
    """Audit one batch: a mapping with ``input_ids`` [N, L] and what else the model takes.

    Tensors of torch are judged as they are, on any device; what NumPy's arrays and lists hold is read.
    ``model_or_rows`` is the model or the number of rows of its input embeddings. ``pad_id``, ``eos_id``
    (several for a model with several) come from the tokenizer, and then from the model's configuration,
    where they are not given. ``ignore_id`` is the label that takes no part in the loss. ``input`` and
    ``output`` name the modules of the tables, as for `audit_module`.

    Raises UsageError for a batch that is no mapping, and for a model whose tables are not found.
    """
    expected = expectations(
        model_or_rows,
        pad_id=pad_id,
        eos_id=eos_id,
        tokenizer=tokenizer,
        ignore_id=ignore_id,
        input=input,
        output=output,
    )
    return audit_against(expected, batch)


def audit_against(expected: Expectations, batch: Mapping[str, object], name: str = "batch") -> Report:
    """`audit_batch` for many batches of one model: what it expects is found out once."""
    if not isinstance(batch, Mapping):
        raise UsageError(
            f"expected a batch that is a mapping with input_ids, found {type(batch).__name__}",
            hint='give {"input_ids": ..., "labels": ...}',
        )
    contract = replace(_EMPTY, name=name, batch_or=measure(batch, expected))
    return run(contract, _rules())


@cache
def _rules() -> tuple[type[Rule], ...]:
    return select_rules(("TA92",))
