"""Digests that do not depend on how a file is written: framed bytes, and canonical JSON (RFC 8785).

Every frame begins with its position and states its lengths, so no two lists have the same bytes. All integers
are unsigned, 32 bits, big-endian; all texts are UTF-8.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from tokaudit.contract import ListDigest, Tensor
from tokaudit.errors import FactMissing
from tokaudit.formats import limits
from tokaudit.sources import Source
from tokaudit.text import size

PREFIX = "sha256:"
BLOCK = 4096  # positions that share one short digest
BLOCK_DIGITS = 16
PIECE_BYTES = 2**20
LARGEST_ID = 2**32 - 1


def sha256(data: bytes) -> str:
    return PREFIX + hashlib.sha256(data).hexdigest()


def canonical_digest(value: object) -> str:
    """The digest of a JSON value in canonical form."""
    import rfc8785

    return sha256(rfc8785.dumps(value))  # type: ignore[arg-type]


def mapping_digest(ids: Mapping[str, int]) -> ListDigest:
    """Frames of id, length, text; by id, and by text where two share one."""
    pairs = sorted((id, content.encode("utf-8", "surrogatepass")) for content, id in ids.items())
    positions = [id for id, _ in pairs]
    texts = [text for _, text in pairs]
    heads = map(struct.Struct(">II").pack, positions, map(len, texts))
    return _digest("tokaudit-mapping-v1", positions, list(map(bytes.__add__, heads, texts)))


def merges_digest(merges: Sequence[tuple[str, str]]) -> ListDigest:
    """Frames of rank, length and text of the left part, length and text of the right one."""
    texts = [text.encode("utf-8", "surrogatepass") for text in chain.from_iterable(merges)]
    left, right = texts[::2], texts[1::2]
    heads = map(struct.Struct(">III").pack, range(len(left)), map(len, left), map(len, right))
    frames = [head + one + other for head, one, other in zip(heads, left, right, strict=True)]
    return _digest("tokaudit-merges-v1", range(len(left)), frames)


def scores_digest(scores: Iterable[float]) -> ListDigest:
    """Frames of id and score as a 32-bit float, the precision in which scores are trained.

    The library may change a score's last digits when it saves a file.
    """
    frames = [struct.pack(">If", id, _single(score)) for id, score in enumerate(scores)]
    return _digest("tokaudit-scores-v1", range(len(frames)), frames)


def _single(score: float) -> float:
    largest = 3.4028234e38
    return max(-largest, min(largest, score)) + 0.0  # no negative zero


def _digest(name: str, positions: Sequence[int], frames: Sequence[bytes]) -> ListDigest:
    whole = hashlib.sha256(name.encode() + b"\0")
    blocks: dict[int, str] = {}
    first = 0
    while first < len(frames):
        begin = positions[first] // BLOCK * BLOCK
        past = bisect_left(positions, begin + BLOCK, first)
        data = b"".join(frames[first:past])
        whole.update(data)
        blocks[begin] = hashlib.sha256(data).hexdigest()[:BLOCK_DIGITS]
        first = past
    end = positions[-1] + 1 if frames else 0
    return ListDigest(PREFIX + whole.hexdigest(), len(frames), end, blocks)


def tensor_digest(source: Source, tensor: Tensor) -> str:
    """The digest of a tensor's bytes, read once in pieces.

    Raises FactMissing for a tensor that is too large, and Unreadable.
    """
    if tensor.nbytes > limits.TABLE_BYTES_COMPARED:
        raise FactMissing(f"{tensor.name} holds {size(tensor.nbytes)}, too much to read")
    digest = hashlib.sha256()
    with source.open(tensor.file) as file:
        for start in range(tensor.start, tensor.stop, PIECE_BYTES):
            digest.update(file.read(start, min(PIECE_BYTES, tensor.stop - start)))
    return PREFIX + digest.hexdigest()
