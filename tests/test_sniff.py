"""What a file is that is not what its name says."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from itertools import count

import numpy as np
import pytest

from tokaudit.formats.sniff import sniff


def in_memory(kind: str) -> bytes:
    out = io.BytesIO()
    match kind:
        case "zip":
            with zipfile.ZipFile(out, "w") as file:
                file.writestr("a", "b")
        case "tar":
            with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                archive.addfile(tarfile.TarInfo("a"))
        case "npy":
            np.save(out, np.zeros(2))
    return out.getvalue()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (in_memory("zip"), "a zip archive"),
        (in_memory("tar"), "a tar archive"),
        (in_memory("npy"), "a NumPy array"),
        (gzip.compress(b"a", mtime=0), "a gzip archive"),
        (bz2.compress(b"a"), "a bzip2 archive"),
        (lzma.compress(b"a"), "an xz archive"),
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (pickle.dumps({"a": 1}), "a pickle"),
        (pickle.dumps([1], 2), "a pickle"),
        (pickle.dumps(2**70, 2), "a pickle"),
        (pickle.dumps(1 << 4000, 2), "a pickle"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"),
        (b"\n <!DOCTYPE html><p>404", "a web page"),
        (b"\xef\xbb\xbf<HTML><body>", "a web page"),
        (b"<?xml version='1.0'?><Error/>", "XML"),
        (b"<Error><Code>AccessDenied", "XML"),
    ],
    ids=count(),
)
def test_other_files_are_known_by_how_they_begin(head: bytes, words: str) -> None:
    found = sniff(head)
    assert found
    assert found.words.startswith(words)
    assert found.lfs_pointer is ("LFS" in words)


@pytest.mark.parametrize(
    "head", [b"", b'{"a": 1}', b"< 1 and more", b"<<<<<<< HEAD", bytes(512), b"PK", b"\x80\x02N."]
)
def test_what_could_be_anything_is_not_named(head: bytes) -> None:
    assert sniff(head) is None
