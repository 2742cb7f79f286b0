"""Weights, and comparisons of their tables, as facts: what cannot be read is Missing with the reason."""

from __future__ import annotations

from tokaudit.contract import Checkpoint, Document, Missing, Options, TableComparison, Tensor
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.formats.checkpoint import read_checkpoint
from tokaudit.formats.compare import compare_tables
from tokaudit.load.reader import Reader
from tokaudit.sources import Source

NOT_READ = Missing("--no-weights was given")


def read_weights(
    reader: Reader, config: Document | Missing, options: Options, name: str = "the weights"
) -> Checkpoint | Missing:
    """The weights that loaders read, ``transformers_weights`` of the configuration first."""
    if not options.read_weights:
        return NOT_READ
    stated = config.data.get("transformers_weights") if isinstance(config, Document) else None
    preferred = stated if isinstance(stated, str) else None
    return reader.attempt(name, lambda: read_checkpoint(reader.source, preferred))


def compared(
    source: Source, left: Tensor, right: Tensor, *, stop_early: bool = False
) -> TableComparison | Missing:
    """What `compare_tables` finds, or why it finds nothing."""
    try:
        return compare_tables(source, left, right, stop_early=stop_early)
    except FactMissing as missing:
        return Missing(missing.reason)
    except Unreadable as error:
        return Missing(f"{error.file} could not be read: {error.message}")
