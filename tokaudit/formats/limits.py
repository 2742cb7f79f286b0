"""How much of a stranger's file is read before it counts as unreadable. All sizes are in bytes."""

from __future__ import annotations

SIDE_FILE_BYTES = 16 * 2**20  # config.json, tokenizer_config.json, chat templates ...
TOKENIZER_BYTES = 256 * 2**20  # tokenizer.json and other vocabularies; 10 million tokens take 208 MB
INDEX_BYTES = 256 * 2**20  # model.safetensors.index.json
SAFETENSORS_HEADER_BYTES = 100_000_000  # the limit of the `safetensors` library itself
POINTER_BYTES = 4096  # a file that holds the name of a folder
LOCK_BYTES = 16 * 2**20  # a lock's file; one of 128k tokens, 256 of them added, has some 40 kB

JSON_DEPTH = 128  # nested arrays and objects; as many as the parser of the Rust libraries takes
JSON_INTEGER_DIGITS = 40
JSON_DUPLICATES_LISTED = 1000

TABLE_BYTES_COMPARED = 64 * 2**30  # per table; a sparse file of a few kilobytes can claim a tebibyte

NPY_HEADER_BYTES = 65_536  # NumPy's own writers take 128; its reader refuses more than 10,000
DATA_STATE_BYTES = 64 * 2**20  # state.json of a data set on disk: it lists the files
DATA_FILES = 1_000_000  # that one --data may stand for
JSON_LINE_BYTES = 64 * 2**20  # of token data; a row of a million ids has 7 MB
ARCHIVE_MEMBERS = 10_000  # of an .npz
