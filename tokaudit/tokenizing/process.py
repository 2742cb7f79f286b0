"""The isolated process that runs the `tokenizers` library: what it is asked, and what it may use.

The library aborts, panics, hangs or takes gigabytes on some malformed files of a few hundred bytes, so it
never runs in the process that audits. worker.py is the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tokaudit.errors import Unreadable
from tokaudit.isolation import process as isolation
from tokaudit.isolation.process import HasFileno, IsolatedProcess, Spawned, patience, spawn
from tokaudit.tokenizing.failures import NotAsked, failure

T = TypeVar("T")

_TRY_TOKENS: Mapping[str, object] = {"unreachable": True}

_WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")

# One thread: more gain nothing at these sizes and each takes address space. RUST_BACKTRACE keeps the
# captured stderr short.
_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}


@dataclass(frozen=True, slots=True)
class Limits(isolation.Limits):
    """What the child may use on a tokenizer.json of up to 64 MiB.

    A larger file gets more of everything but ``reply_bytes``, in proportion, up to four times as much at
    256 MiB. (Measured: 128k tokens in 4 MB take 0.2 s and 90 MB; 10 million in 208 MB take 13 s and 2.7 GB.)
    """

    def scaled(self, nbytes: int) -> Limits:
        """The limits for a file of that size."""
        return self.times(min(max(1.0, nbytes / 2**26), 4.0))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the library made of the file.

    ``effective`` are the ids of the added tokens as the library numbers them; base tokens keep the ids that
    the file declares. ``base_tokens`` counts the base vocabulary, ``tokens`` everything.
    """

    version: str
    effective: Mapping[str, int]
    base_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of a text, and those among them that are the unknown token."""

    tokens: int
    unknown: int


def start(document: int | HasFileno, *, limits: Limits | None = None) -> TokenizerProcess:
    """Start the child on an opened tokenizer.json and return at once: it loads while the caller goes on.

    ``document`` is a file or its descriptor; it may be closed afterwards, and its offset is left alone.
    Raises Unreadable ("no-process") where the system cannot start one.
    """
    fd = document if isinstance(document, int) else document.fileno()
    limits = (limits or Limits()).scaled(os.fstat(fd).st_size).times(patience())
    try:
        spawned = spawn(_WORKER, fd, limits, _ENVIRONMENT)
    except OSError as error:
        raise Unreadable(
            "no-process",
            "tokenizer.json",
            f"no process can be started to load it: {error.strerror}",
            hint="the tokenizers library runs apart: is the limit on processes or memory reached?",
        ) from error
    return TokenizerProcess(spawned, limits)


class TokenizerProcess(IsolatedProcess):
    """The child on one tokenizer.json; a context manager, so that it never stays behind.

    Each question waits for the load first and raises TokenizerFailure. Once the child is lost, every later
    question raises the same failure. For use by one thread at a time.
    """

    def __init__(self, spawned: Spawned, limits: Limits) -> None:
        super().__init__(spawned, limits, failure)
        self._loaded: LoadResult | None = None

    def loaded(self) -> LoadResult:
        """Wait until the file is loaded."""
        if self._loaded is None:
            self._loaded = self._first(_load_result)
        return self._loaded

    def encode(self, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """The ids of each text: added tokens are matched; padding, truncation and post-processor are off.

        A text that the library refuses is missing from the answer.
        """
        return self._encodings("encode", texts)

    def encode_with_special(self, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """The same, with the tokens that the post-processor puts around a text."""
        return self._encodings("encode_with_special", texts)

    def count(self, texts: Sequence[str]) -> tuple[Counted, ...]:
        """How many tokens ``encode`` makes of each text, and how many of them are the unknown one.

        Raises TokenizerFailure ("rejected") for a text that the library refuses.
        """

        def read(answer: object) -> tuple[Counted, ...]:
            if not isinstance(answer, list) or len(answer) != len(texts):
                raise TypeError
            return tuple(Counted(*_ids(counts)) for counts in answer)

        return self._question({"count": list(texts)}, read)

    def decode(self, sequences: Iterable[Sequence[int]]) -> tuple[str, ...]:
        """The text of each list of ids, special tokens included; ids that no token has are left out."""
        asked = [[id for id in ids if 0 <= id < 1 << 32] for ids in sequences]

        def read(answer: object) -> tuple[str, ...]:
            if not isinstance(answer, list) or not all(isinstance(text, str) for text in answer):
                raise TypeError
            return tuple(text for _, text in zip(asked, answer, strict=True))

        return self._question({"decode": asked}, read)

    def rebuild(self, document: bytes, texts: Iterable[str]) -> Mapping[str, tuple[int, ...]]:
        """``encode`` the texts with another tokenizer.json, which is loaded for this question only.

        A document that the library rejects leaves the child as it was.
        """
        return self._encodings("encode", texts, document)

    def unreachable(self, *, most_tokens: int | None) -> tuple[int, ...]:
        """Ids of the base tokens that their own text never encodes to, in order.

        Left out are added tokens, byte-fallback tokens (<0x0A>), tokens that share an id, and those of a
        single byte or of no whole character. Raises NotAsked where the base vocabulary has more than
        ``most_tokens``; None is no limit.
        """
        base_tokens = self.loaded().base_tokens
        if most_tokens is not None and base_tokens > most_tokens:
            raise NotAsked(f"{base_tokens} tokens are too many to try one by one")
        return self._question(_TRY_TOKENS, _ids)

    def try_tokens(self) -> Callable[[], tuple[int, ...]]:
        """Begin what `unreachable` does, without a limit, and return at once; what is returned waits for it.

        No other question may come in between.
        """
        self.loaded()
        self._begin(_TRY_TOKENS)
        return lambda: self._finish(_ids)

    def _encodings(
        self, how: str, texts: Iterable[str], document: bytes | None = None
    ) -> Mapping[str, tuple[int, ...]]:
        asked = list(dict.fromkeys(texts))

        def read(answer: object) -> Mapping[str, tuple[int, ...]]:
            if not isinstance(answer, list):
                raise TypeError
            pairs = zip(asked, answer, strict=True)
            return {text: _ids(found) for text, found in pairs if found is not None}

        rebuild = {} if document is None else {"rebuild": len(document)}
        return self._question({how: asked, **rebuild}, read, document or b"")

    def _question(
        self, request: Mapping[str, object], read: Callable[[object], T], attachment: bytes = b""
    ) -> T:
        self.loaded()
        return super()._question(request, read, attachment)


def _load_result(answer: object) -> LoadResult:
    match answer:
        case {"version": str(version), "base_tokens": int(base), "tokens": int(tokens), "added": list(added)}:
            if all(type(content) is str and type(id) is int for content, id in added):
                return LoadResult(version, dict(added), base, tokens)
    raise TypeError


def _ids(answer: object) -> tuple[int, ...]:
    if not isinstance(answer, list) or not all(type(id) is int for id in answer):
        raise TypeError
    return tuple(answer)
