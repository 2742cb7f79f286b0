"""The contract between a tokenizer and a checkpoint: every fact that rules may ask for, frozen, no I/O.

A property returns its fact or raises FactMissing with the reason; nothing here is ever None to mean
"we could not tell". Collections are empty where the files state nothing.
"""

from tokaudit.contract.checkpoint import (
    DTYPE_BITS,
    FLOAT_DTYPES,
    Checkpoint,
    Damage,
    DamagedFile,
    Embeddings,
    Index,
    RowCount,
    Shard,
    Table,
    TableComparison,
    TableKind,
    Tensor,
    Tie,
    TieReading,
    pickled_weights,
)
from tokaudit.contract.contract import Contract, DuplicateKey, Options, Reference, is_placeholder
from tokaudit.contract.facts import Document, Fact, Missing, present
from tokaudit.contract.special import ChatTemplate, IdField, Role, SpecialToken
from tokaudit.contract.vocabulary import (
    AddedToken,
    Emission,
    Loaded,
    Pipeline,
    Rebuilt,
    Token,
    TokenizerClass,
    TokenTable,
    Treatment,
    Vocabulary,
    Witness,
)

__all__ = [
    "DTYPE_BITS",
    "FLOAT_DTYPES",
    "AddedToken",
    "ChatTemplate",
    "Checkpoint",
    "Contract",
    "Damage",
    "DamagedFile",
    "Document",
    "DuplicateKey",
    "Embeddings",
    "Emission",
    "Fact",
    "IdField",
    "Index",
    "Loaded",
    "Missing",
    "Options",
    "Pipeline",
    "Rebuilt",
    "Reference",
    "Role",
    "RowCount",
    "Shard",
    "SpecialToken",
    "Table",
    "TableComparison",
    "TableKind",
    "Tensor",
    "Tie",
    "TieReading",
    "Token",
    "TokenTable",
    "TokenizerClass",
    "Treatment",
    "Vocabulary",
    "Witness",
    "is_placeholder",
    "pickled_weights",
    "present",
]
