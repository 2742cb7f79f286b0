"""The one writer of files and directories: what it makes is complete under its name, or not there at all.

Everything is written beside the destination, on the same file system, synced, and then renamed with
no-replace semantics. An exception removes what was written, and so does a signal (`tokaudit.ending`); after
kill -9 a directory named ``.NAME.tokaudit-XXXXXXXX.tmp`` is left, which the next run recognises by its free
lock.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tokaudit.ending import SIGNALS, before_the_end
from tokaudit.errors import TokauditError

_MARK = ".tokaudit-"
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_SECONDS_TO_REMOVE = 10.0
_UMASK = threading.Lock()  # it can only be read by setting it
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})

_unfinished: set[Path] = set()


class CannotWrite(TokauditError):
    """The output cannot be made; nothing was left behind."""


@contextmanager
def new_directory(destination: Path) -> Iterator[Path]:
    """Yield a directory to fill; it gets its name when the block ends without an exception.

    Raises CannotWrite where the destination exists (a dangling link and an empty directory count), its parent
    is missing or cannot be written to, or where the disk does not take the data.
    """
    check_destination(destination)
    building: Path | None = None
    lock = None
    try:
        with uninterrupted():
            name = tempfile.mkdtemp(
                prefix=f".{destination.name}{_MARK}", suffix=".tmp", dir=destination.parent
            )
            building = Path(name)
            _unfinished.add(building)
        lock = os.open(building, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.chmod(building, 0o777 & ~_umask())
        yield building
        _sync_tree(building)
        with uninterrupted():
            _rename_new(building, destination)
            _unfinished.discard(building)
            building = None
        _sync(destination.parent)
    except OSError as error:
        raise _failure(destination, error, complete=building is None and lock is not None) from error
    finally:
        _removed_for_sure(building, lock)


def _removed_for_sure(building: Path | None, lock: int | None) -> None:
    """Remove what was built, also where a second signal (Ctrl-C twice) arrives meanwhile; it comes after."""
    late: BaseException | None = None
    while building is not None and building.exists():
        try:
            with uninterrupted():
                shutil.rmtree(building, ignore_errors=True)
                break
        except BaseException as signalled:
            late = signalled
    if building is not None:
        _unfinished.discard(building)
    if lock is not None:
        os.close(lock)
    if late is not None:
        raise late


@contextmanager
def new_file(destination: Path) -> Iterator[Path]:
    """Yield a path to write to; it replaces the destination when the block ends without an exception."""
    building: Path | None = None
    try:
        with uninterrupted():
            handle, name = tempfile.mkstemp(prefix=f".{destination.name}{_MARK}", dir=destination.parent)
            building = Path(name)
            _unfinished.add(building)
            os.close(handle)
        os.chmod(building, 0o666 & ~_umask())
        yield building
        _sync(building)
        with uninterrupted():
            os.replace(building, destination)
            _unfinished.discard(building)
            building = None
        _sync(destination.parent)
    except OSError as error:
        raise _failure(destination, error, complete=False) from error
    finally:
        if building is not None:
            with uninterrupted(), suppress(OSError):
                building.unlink()
            _unfinished.discard(building)


def _remove_unfinished() -> None:
    """Remove what is being built by a process that is about to end, whose threads may still write files.

    A directory gets another name first, where they find it no more: what they are at is the last in it.
    """
    deadline = time.monotonic() + _SECONDS_TO_REMOVE
    for building in tuple(_unfinished):
        with suppress(OSError):
            building.unlink()  # a file
        doomed = building.with_suffix(".gone")
        with suppress(OSError):
            building.rename(doomed)
        while doomed.is_dir() and time.monotonic() < deadline:
            shutil.rmtree(doomed, ignore_errors=True)


before_the_end(_remove_unfinished)


def abandoned(destination: Path) -> tuple[Path, ...]:
    """What killed runs left beside this destination: directories of ours whose lock nobody holds."""
    found: list[Path] = []
    prefix = f".{destination.name}{_MARK}"
    with suppress(OSError):
        for entry in os.scandir(destination.parent):
            if (
                entry.name.startswith(prefix)
                and entry.is_dir(follow_symlinks=False)
                and _unlocked(entry.path)
            ):
                found.append(Path(entry.path))
    return tuple(sorted(found))


def file_mode(mode: int) -> int:
    """The mode of a copy: the source's permissions under the umask, never setuid, always readable by us."""
    return (mode & 0o777 | 0o600) & ~_umask()


def check_destination(destination: Path) -> None:
    """Whether a new directory can get this name. Raises CannotWrite, as ``new_directory`` does."""
    if not destination.name or destination.name in (".", ".."):
        raise CannotWrite(f"{destination} is not a name for a new directory")
    if os.path.lexists(destination):
        hint = "give a path that does not exist yet; tokaudit never writes over anything"
        raise CannotWrite(f"{destination} exists already", hint=hint)
    if not destination.parent.is_dir():
        hint = f"mkdir -p {destination.parent}"
        raise CannotWrite(f"the directory {destination.parent} does not exist", hint=hint)


def _failure(destination: Path, error: OSError, *, complete: bool) -> CannotWrite:
    reason = error.strerror or str(error)
    if complete:
        hint = "run `sync`, or delete it and run again"
        return CannotWrite(f"{destination} is complete but may not survive a power cut: {reason}", hint=hint)
    if error.errno == errno.EEXIST:
        return CannotWrite(f"{destination} exists already", hint="another run made it meanwhile")
    return CannotWrite(f"cannot write {destination}: {reason}", hint="nothing was left behind")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold signals back for a moment in which something would be left behind that nobody knows of.

    A blocked signal would go to another thread of the process, and Python would handle it in the main
    thread all the same: the handlers are what has to wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    with ExitStack() as restoring:
        for signum in SIGNALS:
            handler = signal.getsignal(signum)
            if handler not in (None, signal.SIG_IGN):
                restoring.callback(signal.signal, signum, handler)
                signal.signal(signum, lambda signum, frame: arrived.append(signum))
        yield
    if arrived:
        signal.raise_signal(arrived[0])


def _unlocked(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _umask() -> int:
    with _UMASK:
        current = os.umask(0o077)
        os.umask(current)
    return current


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                _sync(path)
        _sync(Path(folder))


def _rename_new(source: Path, destination: Path) -> None:
    """Rename onto a name that must be free. ``os.rename`` would replace an empty directory."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        rename = getattr(libc, "renameat2", None)
        if rename is not None:
            names = os.fsencode(source), os.fsencode(destination)
            if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) == 0:
                return
            code = ctypes.get_errno()
            if code not in _UNSUPPORTED:
                raise OSError(code, os.strerror(code), str(destination))
    # Old NFS and some FUSE file systems: claim the name with mkdir, which fails if it is taken, then
    # replace the empty directory.
    os.mkdir(destination)
    try:
        os.rename(source, destination)
    except OSError:
        os.rmdir(destination)
        raise
