"""Digests that do not depend on how a file is written: framed bytes, and canonical JSON (RFC 8785).

A frame begins with its position and states its lengths, so no two lists have the same bytes. All integers are
unsigned, 32 bits, big-endian; all texts are UTF-8.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

from tokaudit.contract import ListDigest, Pipeline, Tensor
from tokaudit.errors import FactMissing
from tokaudit.formats import limits
from tokaudit.sources import Source
from tokaudit.text import size

PREFIX = "sha256:"
BLOCK = 4096  # positions that share one short digest
BLOCK_DIGITS = 16  # of BLAKE2b
PIECE_BYTES = 2**20
LARGEST_ID = 2**32 - 1


def sha256(data: bytes) -> str:
    return PREFIX + hashlib.sha256(data).hexdigest()


def canonical_digest(value: object) -> str:
    """The digest of a JSON value in canonical form."""
    import rfc8785

    return sha256(rfc8785.dumps(value))  # type: ignore[arg-type]


def mapping_digest(ids: Mapping[str, int]) -> ListDigest:
    """Frames of id, length in bytes, text; by id, and by text where two share one."""
    contents = sorted(ids, key=ids.__getitem__)
    positions = list(map(ids.__getitem__, contents))
    if len(set(positions)) < len(positions):
        contents.sort(key=lambda content: (ids[content], content.encode("utf-8", "surrogatepass")))
    texts = _encoded(contents)
    heads = map(struct.Struct(">II").pack, positions, map(len, texts))
    return _digest("tokaudit-mapping-v1", positions, heads, texts)


def merges_digest(pipeline: Pipeline) -> ListDigest:
    """Frames of rank, length of the left part in characters, length of all in bytes, both parts with a space.

    Raises FactMissing where the model has no merges.
    """
    lefts, merges = _merges(pipeline)
    texts = _encoded(merges)
    heads = map(struct.Struct(">III").pack, range(len(texts)), lefts, map(len, texts))
    return _digest("tokaudit-merges-v1", range(len(texts)), heads, texts)


def _merges(pipeline: Pipeline) -> tuple[Sequence[int], Iterable[str]]:
    """For each merge the length of its left part, and both parts with a space between them.

    So most files spell them; pairs of a large vocabulary would take long to make.
    """
    stated = pipeline.model.data.get("merges")
    if isinstance(stated, list) and set(map(type, stated)) == {str}:
        lefts = list(map(str.find, stated, repeat(" ")))
        if min(lefts) >= 0:
            return lefts, stated
    return [len(left) for left, _ in pipeline.merges], map(" ".join, pipeline.merges)


def _encoded(texts: Iterable[str]) -> list[bytes]:
    return list(map(str.encode, texts, repeat("utf-8"), repeat("surrogatepass")))


def scores_digest(scores: Iterable[float]) -> ListDigest:
    """Frames of id and score as a 32-bit float, the precision in which scores are trained.

    The library may change a score's last digits when it saves a file.
    """
    values = [struct.pack(">f", _single(score)) for score in scores]
    heads = map(struct.Struct(">I").pack, range(len(values)))
    return _digest("tokaudit-scores-v1", range(len(values)), heads, values)


def _single(score: float) -> float:
    largest = 3.4028234e38
    return max(-largest, min(largest, score)) + 0.0  # no negative zero


def _digest(
    name: str, positions: Sequence[int], heads: Iterable[bytes], bodies: Sequence[bytes]
) -> ListDigest:
    """Of frames, each a head and a body, at ascending positions."""
    whole = hashlib.sha256(name.encode() + b"\0")
    parts = list(chain.from_iterable(zip(heads, bodies, strict=True)))
    blocks: dict[int, str] = {}
    first = 0
    while first < len(bodies):
        begin = positions[first] // BLOCK * BLOCK
        past = bisect_left(positions, begin + BLOCK, first)
        data = b"".join(parts[2 * first : 2 * past])
        whole.update(data)
        blocks[begin] = hashlib.blake2b(data, digest_size=BLOCK_DIGITS // 2).hexdigest()
        first = past
    end = positions[-1] + 1 if positions else 0
    return ListDigest(PREFIX + whole.hexdigest(), len(bodies), end, blocks)


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
