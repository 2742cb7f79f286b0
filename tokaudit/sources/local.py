"""A model directory on this machine. Nothing outside it is ever opened.

A link may lead anywhere inside the directory. A snapshot of the Hugging Face cache
(``models--ORG--NAME/snapshots/REVISION``) is made of links into ``blobs`` beside it, so there the whole
``models--*`` directory counts as inside.

The path is resolved first, which opens nothing, and a target outside the root is refused. The resolved path
is then opened step by step from the root, and no step may be a link: a link that is put there in between
cannot lead out either.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass

from tokaudit.errors import Unreadable

MOST_ENTRIES = 100_000
_TEMPLATES = "additional_chat_templates"
_MODULES = "modules.json"  # sentence-transformers, whose folders are 1_Pooling, 2_Dense ...
_FOLDERS = re.compile(rf"{_TEMPLATES}|\w*_Pooling|\d+_\w+")

# Without O_NONBLOCK, opening a FIFO waits for its writer for ever; for regular files it changes nothing.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_CODES = {
    errno.EACCES: ("permission", "permission denied"),
    errno.EPERM: ("permission", "permission denied"),
    errno.ELOOP: ("symlink-loop", "a symbolic link that leads back to itself"),
    errno.ENOENT: ("no-such-file", "there is no such file"),
    errno.ENOTDIR: ("no-such-file", "there is no such file"),
    errno.ENXIO: ("not-a-regular-file", "expected a regular file, found a socket or a device"),
    errno.ENAMETOOLONG: ("name-too-long", "the name is too long"),
}


@dataclass(frozen=True, slots=True)
class LocalDirectory:
    """``name`` is the path as it was given, ``path`` the real one; files must lie under ``root``."""

    name: str
    path: str
    root: str
    entries: frozenset[str]
    leaving: tuple[Unreadable, ...]

    @classmethod
    def at(cls, name: str) -> LocalDirectory:
        """Raises Unreadable ("no-such-path", "not-a-directory", "permission", "too-many-files")."""
        path = os.path.realpath(name)
        try:
            kind = os.stat(name).st_mode
            if not stat.S_ISDIR(kind):
                raise Unreadable(
                    "not-a-directory",
                    "",
                    f"expected a model directory, found {_kind(kind)}: {name}",
                    hint="give the directory that holds the file",
                )
            root = _root(name, path)
            return cls(name, path, root, *_entries(path, root, name))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                raise Unreadable("no-such-path", "", f"there is no such directory: {name}") from error
            code, words = _cause(error)
            raise Unreadable(code, "", f"{words}: {name}") from error

    def names(self) -> frozenset[str]:
        return self.entries

    def outside(self) -> tuple[Unreadable, ...]:
        return self.leaving

    def open(self, name: str) -> LocalFile:
        """Raises Unreadable: "path-escape", "no-such-file", "dangling-link", "symlink-loop", "permission",
        "not-a-regular-file", "name-too-long" or "io-error".
        """
        steps = self._resolve(name)
        try:
            fd = _open_beneath(self.root, steps)
        except OSError as error:
            if error.errno == errno.ENOENT and os.path.islink(os.path.join(self.path, name)):
                raise Unreadable(
                    "dangling-link",
                    name,
                    "the symlink target is missing",
                    hint="download the file again, or copy it here",
                ) from error
            code, words = _cause(error)
            raise Unreadable(code, name, words) from error
        return _regular(name, fd)

    def _resolve(self, name: str) -> list[str]:
        """The steps from the root to the real file."""
        parts = name.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name:
            raise Unreadable("path-escape", name, "expected a file inside the model directory")
        target = os.path.realpath(os.path.join(self.path, *parts))
        if not _inside(self.root, target):
            raise _leaves(name, target)
        return os.path.relpath(target, self.root).split(os.sep)


class LocalFile:
    """A regular file, open for positional reads."""

    __slots__ = ("_fd", "_state", "name", "size")

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self._fd = fd
        self._state = self._stat()
        self.size = self._state[2]

    def read(self, start: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            try:
                part = os.pread(self._fd, length, start)
            except OSError as error:
                raise self._failed(error) from error
            if not part:
                raise self._ends_early(start, length)
            parts.append(part)
            start += len(part)
            length -= len(part)
        return b"".join(parts)

    def fill(self, start: int, window: memoryview) -> None:
        while window:
            try:
                got = _read_into(self._fd, window, start)
            except OSError as error:
                raise self._failed(error) from error
            if got == 0:
                raise self._ends_early(start, len(window))
            start += got
            window = window[got:]

    def _failed(self, error: OSError) -> Unreadable:
        return Unreadable("io-error", self.name, f"reading failed: {error.strerror}")

    def _ends_early(self, end: int, missing: int) -> Unreadable:
        if end < self.size:
            return _changed(self.name)
        return Unreadable("truncated", self.name, f"the file ends at byte {end}, {missing} bytes too early")

    def read_all(self, limit: int) -> bytes:
        if self.size > limit:
            raise Unreadable(
                "file-too-large", self.name, f"expected at most {limit} bytes, found {self.size}"
            )
        return self.read(0, self.size)

    def fileno(self) -> int:
        return self._fd

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        state = self._stat()
        os.close(self._fd)
        if state != self._state and error is None:
            raise _changed(self.name)

    def _stat(self) -> tuple[int, int, int, int]:
        state = os.fstat(self._fd)
        return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _read_into(fd: int, window: memoryview, start: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(fd, [window], start)
    data = os.pread(fd, len(window), start)
    window[: len(data)] = data
    return len(data)


def open_named(path: str) -> LocalFile:
    """Open a regular file that the user names, wherever it lies and whatever links lead to it.

    Raises Unreadable: "no-such-file", "symlink-loop", "permission", "not-a-regular-file", "name-too-long" or
    "io-error".
    """
    if not path or "\0" in path:
        raise Unreadable("no-such-file", path, "that is no name of a file")
    try:
        fd = os.open(path, _FILE & ~os.O_NOFOLLOW)
    except OSError as error:
        code, words = _cause(error)
        raise Unreadable(code, path, words) from error
    return _regular(path, fd)


def _regular(name: str, fd: int) -> LocalFile:
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        os.close(fd)
        raise Unreadable("not-a-regular-file", name, f"expected a regular file, found {_kind(kind)}")
    return LocalFile(name, fd)


def _changed(name: str) -> Unreadable:
    return Unreadable(
        "changed-while-read",
        name,
        "the file changed while it was read",
        hint="wait until nothing writes to it and run again",
    )


def _root(name: str, path: str) -> str:
    """The directory that no file may lie outside of: the model's own, or the cached repository's.

    The repository is looked for by the real path and by the given one, either of which may lead through
    links.
    """
    for spelling in (path, os.path.abspath(name)):
        snapshots = os.path.dirname(spelling)
        repository = os.path.dirname(snapshots)
        if os.path.basename(snapshots) == "snapshots" and os.path.basename(repository).startswith("models--"):
            root = os.path.realpath(repository)
            if os.path.commonpath((root, path)) == root:
                return root
    return path


def _inside(root: str, target: str) -> bool:
    return os.path.commonpath((root, target)) == root


def _leaves(name: str, target: str) -> Unreadable:
    return Unreadable(
        "path-escape",
        name,
        f"a link leads out of the model directory, to {target}",
        hint="put the file itself into the directory (`cp -rL` copies what a link leads to)",
    )


def _entries(path: str, root: str, name: str) -> tuple[frozenset[str], tuple[Unreadable, ...]]:
    """What `Source.names` and `Source.outside` give."""
    found: set[str] = set()
    leaving: list[Unreadable] = []

    def add(folder: str, prefix: str) -> list[str]:
        inner: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                found.add(prefix + entry.name)
                if len(found) > MOST_ENTRIES:
                    raise Unreadable("too-many-files", "", f"more than {MOST_ENTRIES} files in {name}")
                if _FOLDERS.fullmatch(entry.name) and (entry.is_symlink() or entry.is_dir()):
                    inner.append(entry.name)
        return inner

    for folder in sorted(add(path, "")):
        target = os.path.realpath(os.path.join(path, folder))
        if _inside(root, target):
            if os.path.isdir(target):
                with suppress(PermissionError):
                    add(target, f"{folder}/")
        elif folder == _TEMPLATES or _MODULES in found:
            leaving.append(_leaves(folder, target))
    return frozenset(found), tuple(leaving)


def _open_beneath(root: str, steps: list[str]) -> int:
    """Open ``root/STEP/.../STEP`` without following a link below the root. Raises OSError."""
    *folders, last = steps
    here = os.open(root, _STEP & ~os.O_NOFOLLOW)
    try:
        for folder in folders:
            below = os.open(folder, _STEP, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _cause(error: OSError) -> tuple[str, str]:
    return _CODES.get(error.errno or 0, ("io-error", error.strerror or "it cannot be read"))


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
