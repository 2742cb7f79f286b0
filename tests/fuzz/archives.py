"""Zip archives: what torch and NumPy save, taken apart and packed by another hand."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Iterable

from hypothesis import strategies as st

METHODS = st.sampled_from(
    [zipfile.ZIP_STORED] * 4 + [zipfile.ZIP_DEFLATED] * 2 + [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)


def members(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name: file.read(name) for name in file.namelist()}


def repacked(
    found: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_STORED, comment: bytes = b""
) -> bytes:
    """An archive of these members, of which some may have one name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.comment = comment
        for name, data in found:
            file.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()
