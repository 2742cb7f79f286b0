"""Where bytes are: a source gives the names of a model's files and ranges of their bytes, nothing more."""

from __future__ import annotations

import os
import re
from typing import Protocol

from tokaudit.errors import Unreadable, UsageError
from tokaudit.sources.local import LocalDirectory, open_named

__all__ = ["LocalDirectory", "OpenFile", "Source", "open_named", "open_source"]


class OpenFile(Protocol):
    """One file of a source, open for reading; leaving its ``with`` block closes it.

    Leaving the block without an exception raises Unreadable ("changed-while-read") when the file is no
    longer what it was when it was opened.
    """

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from offset ``start``.

        Raises Unreadable: "truncated", or "changed-while-read" for bytes that were there on opening.
        """
        ...

    def fill(self, start: int, window: memoryview) -> None:
        """Read into the window, from offset ``start``, until it is full. Raises as ``read`` does.

        Buffers that are used again are what makes this fast: fresh memory costs more than the reading.
        """
        ...

    def read_all(self, limit: int) -> bytes:
        """The whole file. Raises Unreadable ("file-too-large") if it has more than ``limit`` bytes."""
        ...

    def fileno(self) -> int:
        """A file descriptor, for copies by the kernel and for handing the file to a child process."""
        ...

    def __enter__(self) -> OpenFile: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None: ...


class Source(Protocol):
    """A model directory, wherever it is. All names are POSIX paths relative to it."""

    @property
    def name(self) -> str:
        """How the user named it."""
        ...

    def names(self) -> frozenset[str]:
        """What lies in the top directory and in the few sub-folders that model layouts use.

        Every kind of entry is listed, links that lead nowhere too; ``open`` refuses what is no file.
        """
        ...

    def outside(self) -> tuple[Unreadable, ...]:
        """Those of the sub-folders that lie outside the source, by a link ("path-escape"): nothing of them is
        listed."""
        ...

    def open(self, name: str) -> OpenFile:
        """Open a regular file inside the source. Raises Unreadable."""
        ...


def open_source(uri: str | os.PathLike[str]) -> Source:
    """The source that a path names.

    Raises Unreadable ("no-such-path", "not-a-directory", "permission", ...) and UsageError for what is no
    path of a local directory.
    """
    path = os.fspath(uri)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise UsageError(
            f"{path} is a remote address; only local directories can be audited",
            hint="download the model first and give its directory",
        )
    if not path or "\0" in path:
        raise UsageError(f"expected the path of a model directory, found {path!r}")
    return LocalDirectory.at(path)
