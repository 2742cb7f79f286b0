"""The tensors of a batch: read into torch, their dtypes and shapes judged before anything is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from tokaudit.contract.batch import Malformed
from tokaudit.errors import FactMissing
from tokaudit.text import first_line
from tokaudit.training.expectations import Expectations, LabelKind

_IDS = ("input_ids", "decoder_input_ids", "position_ids", "token_type_ids")
_SEQUENCES = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
_ALL = (*_IDS, *_SEQUENCES.values(), "labels")
_LOOKED_UP = (torch.int32, torch.int64)  # what torch's embedding takes
_COMPARED = (torch.int64, torch.uint8)  # what its cross_entropy takes as classes


@dataclass(frozen=True)
class Read:
    """The tensors of a batch that are well-formed, and what is wrong with the others."""

    names: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]
    malformed: tuple[Malformed, ...]

    def __getitem__(self, name: str) -> torch.Tensor:
        """Raises FactMissing where the batch has none that is well-formed."""
        if name in self.tensors:
            return self.tensors[name]
        if any(wrong.tensor == name for wrong in self.malformed):
            raise FactMissing(f"{name} is malformed")
        raise FactMissing(f"the batch has no {name}")

    def sequences(self, name: str) -> torch.Tensor:
        """One of shape [N, L]; raises FactMissing for another shape."""
        found = self[name]
        if found.dim() != 2:
            raise FactMissing(f"{name} is not [N, L] but {shown_shape(found)}")
        return found


def read(batch: Mapping[str, object], expected: Expectations) -> Read:
    """Read what is known by name. Tensors keep their device; values are not looked at."""
    tensors: dict[str, torch.Tensor] = {}
    malformed: list[Malformed] = []
    for name in _ALL:
        value = batch.get(name)
        if value is None or (name.endswith("mask") and isinstance(value, Mapping)):
            continue  # a mapping of masks is one for each kind of layer
        tensor = _tensor(name, value)
        wrong = tensor if isinstance(tensor, Malformed) else _judged(name, value, tensor, batch, expected)
        if isinstance(wrong, Malformed):
            malformed.append(wrong)
        elif isinstance(tensor, torch.Tensor):
            tensors[name] = tensor.long() if _whole(tensor) and tensor.dtype not in _LOOKED_UP else tensor
    for wrong in _disagreeing(tensors, batch, expected):
        malformed.append(wrong)
        del tensors[wrong.tensor]
    return Read(tuple(map(str, batch)), _together(tensors), tuple(malformed))


def _together(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All on the device of the first: a loop may move them one by one."""
    device = next(iter(tensors.values())).device if tensors else None
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def shown_shape(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _tensor(name: str, value: object) -> torch.Tensor | Malformed | None:
    """The value as a tensor; None for one without numbers to look at, as a mask of flex attention."""
    if isinstance(value, torch.Tensor):
        return None if value.is_nested or value.is_meta or value.layout is not torch.strided else value
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arrays that are not writable, and nothing is written
            return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        return Malformed(
            name,
            expected="a rectangle of integers [N, L]",
            found=first_line(error),
            fix="pad the sequences to one length before they are stacked",
        )


def _judged(
    name: str, value: object, tensor: torch.Tensor | None, batch: Mapping[str, object], expected: Expectations
) -> Malformed | None:
    if tensor is None:
        return None
    found = f"{_dtype(tensor)} {shown_shape(tensor)}"
    if not tensor.numel():
        return Malformed(name, "at least one position", found, "leave batches without sequences out")
    if name in _IDS:
        return _judged_ids(name, value, tensor, batch, found)
    if name == "labels" and expected.labels is LabelKind.NEXT:
        return _judged_labels(value, tensor, found)
    return None


def _judged_ids(
    name: str, value: object, tensor: torch.Tensor, batch: Mapping[str, object], found: str
) -> Malformed | None:
    if not _whole(tensor) or (isinstance(value, torch.Tensor) and tensor.dtype not in _LOOKED_UP):
        return Malformed(name, "int64 (or int32)", found, f"{name} = {name}.long(), where the ids are made")
    flat = any(str(key).startswith("cu_seq") for key in batch)  # sequences end to end, lengths beside them
    if name in _SEQUENCES and not (tensor.dim() in (2, 3) or (flat and tensor.dim() == 1)):
        return Malformed(name, "[N, L]", found, "give one row of positions for each sequence")
    return None


def _judged_labels(value: object, tensor: torch.Tensor, found: str) -> Malformed | None:
    if _whole(tensor) and (not isinstance(value, torch.Tensor) or tensor.dtype in _COMPARED):
        return None
    return Malformed("labels", "int64", found, "labels = labels.long(), where the labels are made")


def _whole(tensor: torch.Tensor) -> bool:
    """Whether it holds integers."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _disagreeing(
    tensors: Mapping[str, torch.Tensor], batch: Mapping[str, object], expected: Expectations
) -> Iterator[Malformed]:
    """Tensors that must have the shape of the ids that they stand beside, and do not."""
    for ids, mask in _SEQUENCES.items():
        if ids in tensors and mask in tensors and "past_key_values" not in batch:
            yield from _unlike(mask, tensors[mask], ids, tensors[ids])
    if expected.labels is LabelKind.NEXT and {"labels", "input_ids"} <= tensors.keys():
        yield from _unlike("labels", tensors["labels"], "input_ids", tensors["input_ids"])


def _unlike(name: str, tensor: torch.Tensor, beside: str, ids: torch.Tensor) -> Iterator[Malformed]:
    if ids.dim() == 2 and tensor.dim() <= 2 and tensor.shape != ids.shape:
        yield Malformed(
            name,
            expected=f"{shown_shape(ids)}, the shape of {beside}",
            found=f"{_dtype(tensor)} {shown_shape(tensor)}",
            fix=f"make {name} of {beside}, position for position",
        )
