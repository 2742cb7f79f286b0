"""How a table lies in the file: as it is, or packed by one of the quantisation formats.

Which format it is follows from the names and dtypes beside the tensor, never from a shape alone, and the
rows from the dimension that this format keeps. Layouts as written by bitsandbytes, GPTQModel, AutoAWQ,
compressed-tensors, torchao, optimum-quanto, HQQ, EETQ, ModelOpt, MLX and transformers (2025 versions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tokaudit.contract import Missing, Tensor

PACKED_DTYPES = frozenset({"U8", "I8", "I16", "U16", "I32", "U32", "F4", "F6_E2M3", "F6_E3M2"})
FLOATS_OF_8_BITS = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"})


@dataclass(frozen=True, slots=True)
class Stored:
    """A table as it lies in the file; the fields are those of contract.Table."""

    tensor: Tensor
    axis: int
    rows_or: int | Missing
    hidden: int | None = None
    packed: str = ""
    malformed: str = ""


Tensors = Mapping[str, Tensor]


def find(tensors: Tensors, name: str, axis: int = 0, ndim: int = 2, method: str = "") -> Stored | None:
    """The table of that name, in whatever form; None where no form of it is stored.

    ``method`` is the `quant_method` that the configuration states, for the one layout that names and dtypes
    do not tell apart (EETQ).
    """
    tensor = tensors.get(name)
    stem = name.removesuffix(".weight")
    if tensor is not None:
        return _under_its_name(tensors, tensor, stem, axis, ndim, method)
    if stem == name:
        return None
    for suffix, read in _PACKED.items():
        tensor = tensors.get(stem + suffix)
        if tensor is not None:
            return read(tensors, tensor, stem)
    return None


def _under_its_name(tensors: Tensors, tensor: Tensor, stem: str, axis: int, ndim: int, method: str) -> Stored:
    """A tensor that bears the table's own name: plain, or one of the formats that keep the name."""
    if f"{tensor.name}.absmax" in tensors or f"{tensor.name}.quant_map" in tensors:
        return _unreadable(tensor, "bitsandbytes, 4 bits")
    if tensor.dtype in PACKED_DTYPES and ndim > 1:
        if method == "eetq":
            return _along(tensor, 1, "EETQ, 8 bits, transposed")
        if f"{stem}.SCB" in tensors:
            return _along(tensor, 0, "bitsandbytes, 8 bits", tensor.shape[-1] if tensor.shape else None)
        if f"{stem}.scales" in tensors and f"{stem}.biases" in tensors:
            return _along(tensor, 0, "MLX affine")
        if f"{stem}.weight_scale" in tensors:
            return _along(tensor, 0, "scaled integers")
        return _unreadable(tensor, f"{tensor.dtype} values of an unknown layout")
    plain = _plain(tensor, axis, ndim)
    if tensor.dtype in FLOATS_OF_8_BITS and not plain.malformed:
        return Stored(tensor, axis, plain.rows_or, plain.hidden, packed="8-bit floats")
    return plain


def _plain(tensor: Tensor, axis: int, ndim: int) -> Stored:
    malformed = ""
    if 0 in tensor.shape:
        malformed = "it is empty"
    elif len(tensor.shape) != ndim:
        malformed = f"it has {len(tensor.shape)} dimensions and should have {ndim}"
    if malformed:
        return Stored(tensor, axis, Missing(f"{tensor.name} is malformed"), malformed=malformed)
    return Stored(tensor, axis, tensor.shape[axis], tensor.shape[1 - axis] if ndim == 2 else None)


def _along(tensor: Tensor, axis: int, packed: str, hidden: int | None = None) -> Stored:
    """A packed matrix whose ``axis`` still runs over token ids."""
    if len(tensor.shape) != 2:
        return _unreadable(tensor, packed)
    return Stored(tensor, axis, tensor.shape[axis], hidden, packed)


def _unreadable(tensor: Tensor, packed: str) -> Stored:
    reason = f"{tensor.name} is packed ({packed}): its shape {list(tensor.shape)} does not tell the rows"
    return Stored(tensor, 0, Missing(reason), packed=packed)


def _gptq_or_awq(tensors: Tensors, tensor: Tensor, stem: str) -> Stored:
    """GPTQ packs along the width and AWQ along the rows; the scales have one column per row of either.

    AWQ's variant for matrix-vector kernels keeps the rows on axis 0 of both.
    """
    scales = tensors.get(f"{stem}.scales")
    if scales is None or len(scales.shape) != 2 or len(tensor.shape) != 2:
        return _unreadable(tensor, "GPTQ or AWQ")
    columns = scales.shape[1]
    if columns == tensor.shape[1]:
        return Stored(tensor, 1, columns, packed="GPTQ")
    if tensor.shape[1] and columns in (factor * tensor.shape[1] for factor in (4, 8, 16)):
        return Stored(tensor, 1, columns, packed="AWQ")
    if scales.shape[0] == tensor.shape[0]:
        return Stored(tensor, 0, tensor.shape[0], packed="AWQ")
    return _unreadable(tensor, "GPTQ or AWQ")


def _rows_first(packed: str) -> Callable[[Tensors, Tensor, str], Stored]:
    return lambda tensors, tensor, stem: _along(tensor, 0, packed)


def _opaque(packed: str) -> Callable[[Tensors, Tensor, str], Stored]:
    return lambda tensors, tensor, stem: _unreadable(tensor, packed)


_PACKED: Mapping[str, Callable[[Tensors, Tensor, str], Stored]] = {
    ".qweight": _gptq_or_awq,
    ".weight_packed": _rows_first("compressed-tensors"),
    "._weight_qdata": _rows_first("torchao"),
    ".embedding_quantized": _rows_first("scaled integers"),
    ".weight_blocks": _opaque("MXFP4"),
    "_blocks": _opaque("MXFP4"),
    ".W_q": _opaque("HQQ"),
    ".weight._data": _opaque("quanto"),
}
