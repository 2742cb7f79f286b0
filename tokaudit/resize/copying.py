"""Bytes from file to file: moved by the kernel, or through one small buffer."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tokaudit.atomic import file_mode
from tokaudit.progress import Progress
from tokaudit.sources import OpenFile

_FICLONE = 0x40049409
_COPY_AT_ONCE = 64 << 20  # between two looks at the progress; far below what some kernels get wrong (2 GiB)
_BUFFER = 1 << 20
# The kernel cannot, or does not tell whether the reading or the writing failed: the buffer will.
_NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM, errno.EIO}
)


def create(target: Path, mode: int) -> int:
    """A descriptor to write a new file through; its permissions are those of a source's ``mode``."""
    out = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(out, file_mode(mode))
    except BaseException:
        os.close(out)
        raise
    return out


def copy_file(file: OpenFile, out: int, progress: Progress) -> None:
    """Copy a whole file: as a reflink where the file system has them, else by the kernel."""
    try:
        fcntl.ioctl(out, _FICLONE, file.fileno())
        progress.advance(file.size)
    except OSError as error:
        if error.errno not in _NO_KERNEL_COPY:
            raise
        copy_range(file, 0, out, 0, file.size, progress)


def copy_range(file: OpenFile, start: int, out: int, at: int, length: int, progress: Progress) -> None:
    """Copy ``length`` bytes from ``start`` of the file to ``at`` of ``out``."""
    done = 0
    while done < length and hasattr(os, "copy_file_range"):
        most = min(length - done, _COPY_AT_ONCE)
        try:
            moved = os.copy_file_range(file.fileno(), out, most, start + done, at + done)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            break
        if moved == 0:
            break
        done += moved
        progress.advance(moved)
    buffer = bytearray(min(length - done, _BUFFER))
    while done < length:
        window = memoryview(buffer)[: length - done]
        file.fill(start + done, window)
        write_at(out, at + done, window)
        done += len(window)
        progress.advance(len(window))


def write_at(out: int, start: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(out, view, start)
        start += written
        view = view[written:]


def hard_link(source: Path, file: OpenFile, target: Path) -> bool:
    """Link to the opened file instead of copying it; False where the file system cannot."""
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        mine, theirs = os.lstat(target), os.fstat(file.fileno())
        if (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino):
            return True
        os.unlink(target)  # a symbolic link, or another file by now
    return False
