"""Which exit code each command leaves with on each directory of the catalogue of hostile ones.

A directory is in one of fourteen states, by what is damaged in it, and the state decides for each command:

- Whatever cannot be read leaves no verdict (2) where the answer rests on it. `check` alone goes on, and takes
  damage that it has a rule for as a finding (1): weights, tokenizer.json, links that lead outside.
- `lock` and `diff` rest on every part, `rows` on the tables and on what says what a row is for, `cost` on the
  weights and config.json, and with --add on the tokenizer, too.
- `resize` goes on from a source without errors only, or with such as it mends. A tokenizer that is to be
  fitted may lie among damaged weights.
- A base needs config.json and the weights that are there. Token data and an optimizer's state are files of
  other kinds than a model directory holds.
"""

from __future__ import annotations

from collections.abc import Mapping

_STATES = """
state              check  lock  diff  rows  cost  cost-add  add  resize  fit  base  data  optimizer
sound                0     0     0     0     0       0       0     0      0    0     2        2
other                0     0     1     0     0       0       0     0      0    0     2        2
findings             1     0     1     0     0       0       2     2      0    0     2        2
mended               1     0     1     0     0       0       0     0      0    0     2        2
token-findings       1     0     1     0     0       0       2     2      2    0     2        2
tokenizer            1     2     2     2     0       2       2     2      2    0     2        2
tokenizer-unread     2     2     2     2     0       2       2     2      2    2     2        2
weights              1     2     2     2     2       2       2     2      0    2     2        2
config               2     2     2     2     2       2       2     2      0    2     2        2
outside              1     2     2     2     2       2       2     2      0    2     2        2
no-table             1     0     1     2     2       2       2     2      0    0     2        2
pickled              0     0     2     2     2       2       2     2      0    0     2        2
adapter              0     2     2     2     2       2       2     2      2    2     2        2
nothing              2     2     2     2     2       2       2     2      2    2     2        2
"""


def _table() -> dict[str, dict[str, int]]:
    (_, *commands), *rows = (line.split() for line in _STATES.strip().splitlines())
    return {state: dict(zip(commands, map(int, codes), strict=True)) for state, *codes in rows}


_TABLE = _table()

# What the states mean, and the codes of the catalogue (its column "code") whose directories are in them.
_CODES: Mapping[str, tuple[str, ...]] = {
    # As good as the undamaged model, and the same to its users.
    "sound": (
        *("ok", "bom", "weights-name", "tensor-unindexed", "index-total-size", "weights-ambiguous"),
        *("name-collision", "model-type"),
    ),
    # It works, or one of its parts does, and is another model: other tokens, another pipeline.
    "other": ("token-duplicate", "token-text", "vocab-size", "tokenizer-missing"),
    # All is read, and some of it is wrong.
    "findings": ("embedding-shape", "tensor-duplicate", "special-id", "json-duplicate-key"),
    # The same for the tokenizer, so that it is nothing to fit a model to either.
    "token-findings": ("added-token", "token-id-duplicate", "special-token"),
    # tokenizer.json is damaged, or the library does not load it (TA405).
    "tokenizer": ("tokenizer-malformed", "tokenizer-version", "token-id", "tokenizer-merges"),
    # One of the weights files is damaged, missing, or not to be opened (TA701, TA702, TA705, TA711).
    "weights": (
        *("weights-truncated", "weights-header", "weights-duplicate-key", "weights-offsets"),
        *("weights-trailing", "weights-shape", "weights-dtype", "weights-metadata", "lfs-pointer"),
        *("not-safetensors", "index-path", "index-extension", "shard-missing", "path-escape"),
    ),
    # config.json or the index cannot be read, or model.safetensors is none that could be opened.
    "config": (
        *("index-malformed", "not-a-regular-file", "symlink-loop", "file-too-large", "json-syntax"),
        *("json-encoding", "json-type", "json-depth", "json-nonfinite", "json-number", "json-surrogate"),
        *("config-type",),
    ),
    # The weights can be read, and the input embeddings are not among them (TA111).
    "no-table": ("weights-empty",),
    # Pickled weights are not opened (TA710): there are no tables.
    "pickled": ("pickle",),
    # An adapter alone: it has neither a tokenizer nor tables of its own.
    "adapter": ("adapter",),
    "nothing": ("no-model", "no-such-path", "permission"),
}

# Directories in another state than their code says, with what the difference is.
_OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "sound": {
        "ST46": "a key more in a tensor's entry, which loaders pass over",
        "PK11 PK12 PK14 PK17": "what is pickled lies beside whole weights",
    },
    "other": {
        "JS41 JS42 JS43": "a chat template, a class, a length that the undamaged model does not have",
        "TK21 TK22": "merges more, of which the library takes the last",
        "TK37 TK39 TK46 TK53 TK54 TK66 TK69 TK71 TK76": "another pipeline",
    },
    "findings": {"ST65": "the shape is one, and none of a table (TA110)"},
    "mended": {
        "JS19e JS19h": "vocab_size is none of the tables' (TA103), which agree: it is set",
        "JS20e": "the end-of-sequence id is the next one, which gets a row; the plan warns of it",
        "TK58 TK61": "tokens of the base vocabulary without a row (TA101) get one",
    },
    "token-findings": {
        "JS44": "special_tokens_map.json goes with the tokenizer",
        "TK05c": "an id of 2**32 - 1 is one, far past the rows (TA101)",
        "TK06 TK68": "what is stated twice is in tokenizer.json",
        "TK48": "the library renumbers an added token (TA403)",
        "TK52": "the post-processor emits an id that no token has (TA310)",
        "TK64": "a million tokens without a row (TA101), too many to ask the library about",
    },
    "tokenizer": {
        "TK47": "loading it takes all memory",
        "TK72": "the library panics on every text",
        "TK59": "half of a surrogate pair in tokenizer.json",
    },
    "config": {"JS29": "config.json is the pointer"},
    "outside": {"FS07 FS20": "a link leads out of the directory (TA711)"},
    "no-table": {"ST69": "a million tensors, and none of them the input embeddings (TA111)"},
    "tokenizer-unread": {
        "FS06 FS19": "tokenizer.json is no file that is opened, or too large",
        "TK73 TK74": "tokenizer.model is no SentencePiece model",
    },
    "nothing": {
        "AD05 AD06": "adapter_config.json cannot be read",
        "AD09": "an adapter without weights",
    },
}

# Single codes that the state does not decide: {directories: ({command: code}, why)}.
_ALONE: Mapping[str, tuple[Mapping[str, int], str]] = {
    "AD07 AD10": ({"check": 1}, "TA803 to TA805 need no base"),
    "ST70": ({"rows": 2}, "a table of 1 TiB is beyond what is read; its size is known"),
    "FS22": (
        {"diff": 2, "add": 2, "fit": 2},
        "no tokenizer: nothing to compare, to add a token to, or to fit to; the tables can grow",
    ),
    "IX18 IX20": ({"base": 0}, "config.json tells the rows of a base whose weights are not there"),
    "IX36": ({"check": 1, "add": 2, "resize": 2}, "TA703; the tensors that are there are the same"),
    "JS20h": ({"diff": 0}, "of a list the ids are compared, not what else stands in it"),
    "TK32": ({"add": 2, "fit": 2}, "ids move, and the library gives new tokens ids of its own"),
    "TK33 TK66": ({"fit": 2}, "ids move"),
    "TK76 TK77": ({"add": 2, "fit": 2}, "there is no tokenizer.json, which alone is extended or fitted to"),
    "TK63": ({"resize": 2}, "100,000 tokens need more than 4096 rows"),
    "FS20": ({"cost": 0, "cost-add": 0, "base": 0}, "generation_config.json says nothing of tables"),
}


def expected(id: str, code: str, command: str) -> int:
    """The exit code of a command (a column of the table) on the directory with this id and code."""
    state = next((state for state, ids in _OTHERWISE.items() if any(id in k.split() for k in ids)), None)
    if state is None:
        state = next(state for state, codes in _CODES.items() if code in codes)
    alone = next((codes for ids, (codes, _) in _ALONE.items() if id in ids.split()), {})
    return alone.get(command, _TABLE[state][command])
