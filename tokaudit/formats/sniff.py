"""What a file is that should have been something else, by its first bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD_BYTES = 512  # how many first bytes `sniff` wants to see

_POINTER = b"version https://git-lfs.github.com/spec/"
AGAIN = "download the file again: what was saved is not the file"
_CONVERT = "convert it with `safetensors.torch.save_file`"
_UNPACK = "unpack it"
_MAGIC = (
    (b"PK\x03\x04", "a zip archive, as torch.save writes it", _CONVERT),
    (b"GGUF", "a GGUF file", "give the directory of the model it was converted from"),
    (b"\x1f\x8b\x08", "a gzip archive", _UNPACK),
    (b"BZh", "a bzip2 archive", _UNPACK),
    (b"\xfd7zXZ\x00", "an xz archive", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _CONVERT),
    (b"\x93NUMPY", "a NumPy array", _CONVERT),
)
# The opcodes that a pickle of a dict, a list, an object or torch's magic number begins with.
_PICKLE = re.compile(rb"\x80[\x02-\x05][}(\]c\x8a\x8b\x95]")
# The first 8 bytes of a safetensors file are a length: they hold a zero byte, so they never pass for text.
_TEXT = re.compile(rb"(\xef\xbb\xbf)?[\t\r\n -~]{5}")
_BLANKS = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True, slots=True)
class Sniffed:
    """``words`` name the kind of file, ``hint`` says what to do about it."""

    words: str
    hint: str
    lfs_pointer: bool = False


def sniff(head: bytes) -> Sniffed | None:
    """The kind of file that starts with these bytes; None for one that is not known."""
    if head.startswith(_POINTER):
        return Sniffed("a Git LFS pointer", "run `git lfs pull` to fetch the file itself", lfs_pointer=True)
    for magic, words, hint in _MAGIC:
        if head.startswith(magic):
            return Sniffed(words, hint)
    if _PICKLE.match(head):
        return Sniffed("a pickle, as torch.save writes it", _CONVERT)
    if head[257:262] == b"ustar":
        return Sniffed("a tar archive", _UNPACK)
    if not _TEXT.match(head):
        return None
    if re.match(rb"<(!doctype html|html|head|body)", head.lstrip(_BLANKS), re.IGNORECASE):
        return Sniffed("a web page (HTML)", AGAIN)
    if re.match(rb"<[?!a-z]", head.lstrip(_BLANKS), re.IGNORECASE):
        return Sniffed("XML, as a server's error message is", AGAIN)
    return None
