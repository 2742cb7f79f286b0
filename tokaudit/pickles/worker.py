"""The child process: reads the shapes in a file of torch without torch, and without making any object of it.

``tokaudit.pickles.process`` starts it; ``tokaudit.isolation.child`` says how they talk. The first answer is
the only one: ``{"layout": ..., "parameters": [[name, {tensor: shape}], ...], "instead": ""}``, the name a
number where the file has no names. A sound file without an optimizer's state has no layout, and ``instead``
says what it holds, if that is known.

A pickle is a program. This one is run by Python's own unpickler with every class it asks for replaced by
one that keeps its arguments and does nothing; nothing is imported, and a file that asks for a class outside
of the libraries that write such files is refused. The tensors' bytes are never read.

The files:

- torch.save: a zip archive whose ``NAME/data.pkl`` is the pickle; before torch 1.6 five pickles in a row (a
  magic number, a version, the system, the object, the names of storages).
- torch.distributed.checkpoint: ``.metadata`` is a pickle of a ``Metadata``, whose ``state_dict_metadata`` has
  the size of each tensor by its name.
- DeepSpeed: ``*_model_states.pt`` has ``param_shapes``; the moments themselves are one flat tensor.

What `torch.load(weights_only=True)` loads and this refuses:

- an archive that Python cannot open: torch's own reader of archives passes over some damage; torch writes
  none.
- a compressed pickle: torch stores everything as it is; a pickle may grow a thousandfold when it is unpacked.
- several pickles in one archive: which of them a version of torch reads is not stated anywhere.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, BinaryIO

# As in tokaudit.tokenizing.worker: this very tokaudit.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tokaudit.isolation.child import confined, respond

sys.path.append(sys.path.pop(0))

LARGEST_PICKLE = 1 << 28  # bytes; 100,000 parameters take some 60 MB
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MOST_DIMENSIONS = 64

# Whose classes may stand in such a file, as stand-ins; of builtins only containers and numbers.
LIBRARIES = frozenset(
    ("torch", "torchao", "collections", "pathlib", "numpy", "_codecs", "argparse", "deepspeed", "accelerate",
     "transformers", "bitsandbytes", "megatron", "lightning", "pytorch_lightning", "lightning_fabric")
)  # fmt: skip
BUILTINS = frozenset(("set", "frozenset", "bytearray", "complex", "dict", "list", "tuple", "slice", "range"))

# Where the shape stands in the arguments of torch's functions that make tensors anew.
REBUILT = {
    "_rebuild_tensor": 2,
    "_rebuild_tensor_v2": 2,
    "_rebuild_tensor_v3": 2,
    "_rebuild_qtensor": 2,
    "_rebuild_meta_tensor_no_storage": 1,
}
WRAPPED = ("_rebuild_parameter", "_rebuild_parameter_with_state")
NESTED = (
    "optimizer_state_dict",
    "optimizer",
    "optimizer_states",
    "optim",
)  # of hand-written loops, Lightning
SCHEDULER = {"last_epoch", "_last_lr"}  # of torch.optim.lr_scheduler, which transformers uses
RANDOM = ({"python", "cpu"}, {"random_state", "torch_manual_seed"})  # of transformers, of Accelerate
DISTRIBUTED = re.compile(r"(?:.*\.)?state\.(.+)\.([^.]+)")

Shape = list[int]
Parameters = list[tuple[str | int, dict[str, Shape]]]


class Inert(dict):  # type: ignore[type-arg]
    """Stands in for an object of a class: keeps what it would be made of, and does nothing.

    A dict, so that the items of an OrderedDict find a place.
    """

    called = ""

    def __new__(cls, *args: object, **keywords: object) -> Inert:
        self = super().__new__(cls)
        self.args = args
        self.state = {}
        return self

    def __init__(self, *args: object, **keywords: object) -> None:
        """Take anything."""

    args: tuple[object, ...]
    state: Any

    def __setstate__(self, state: object) -> None:
        self.state = state

    def append(self, item: object) -> None:
        """Items of a list are of no interest."""

    extend = add = append
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


@cache
def stand_in(name: str) -> type[Inert]:
    return type(name, (Inert,), {"called": name})


class Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Inert]:
        library = module.partition(".")[0]
        if library not in LIBRARIES and not (library in ("builtins", "__builtin__") and name in BUILTINS):
            raise ValueError(f"it asks for {module}.{name}, which no state of an optimizer needs")
        return stand_in(name)

    def persistent_load(self, pid: object) -> Inert:
        """A storage: its bytes are not read."""
        return Inert()


def main() -> None:
    document, answers = confined()
    respond(answers, partial(shapes, document))


def shapes(fd: int) -> object:
    with open(fd, "rb", closefd=False) as file:
        document = load(file)
    layout, parameters = found_in(document)
    return {"layout": layout, "parameters": parameters, "instead": "" if layout else instead(document)}


def load(file: io.BufferedReader) -> object:
    """The object that the file holds, made of stand-ins. Raises ValueError."""
    file.seek(0)
    head = file.read(512)
    file.seek(0)
    if head.startswith(b"PK"):
        return unpickled(io.BytesIO(from_zip(file)))
    if head[257:262] == b"ustar":
        raise ValueError(
            "it is a tar archive, as torch wrote before 0.1.10: save it again with a newer torch"
        )
    if not head.startswith(b"\x80"):
        raise ValueError("it is neither an archive that torch wrote nor a pickle")
    first = unpickled(file)
    if first != LEGACY_MAGIC or isinstance(first, bool):
        return first
    for _ in range(2):  # the version and the system
        unpickled(file)
    return unpickled(file)


def unpickled(file: BinaryIO) -> object:
    try:
        return Reader(file).load()
    except (pickle.UnpicklingError, EOFError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"it is not a sound pickle: {type(error).__name__}: {error}") from None


def from_zip(file: io.BufferedReader) -> bytes:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+/data\.pkl", name)]
            if len(names) != 1:
                raise ValueError("it is an archive without the one data.pkl that torch writes")
            entry = archive.getinfo(names[0])
            if entry.file_size > LARGEST_PICKLE or entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"its {names[0]} is not stored as torch stores it")
            return archive.read(entry)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ValueError(f"it is a damaged archive: {error}") from None


def found_in(document: object) -> tuple[str, Parameters]:
    """The layout of the file, and what is kept of which parameter."""
    if isinstance(document, Inert) and document.called == "Metadata":
        known = document.state.get("state_dict_metadata") if isinstance(document.state, dict) else None
        return ("", []) if only_model(known) else ("distributed checkpoint", distributed(known))
    if not isinstance(document, dict):
        return "", []
    if "param_shapes" in document:
        return "DeepSpeed", deepspeed(document["param_shapes"])
    for state in states(document):
        return "torch", [(key, tensors(kept)) for key, kept in state.items() if isinstance(key, (str, int))]
    return "", []


def states(document: Mapping[object, object]) -> Iterator[Mapping[object, object]]:
    """The state of each optimizer: of the document itself, or of those that it holds."""
    candidates: list[object] = [document]
    for name in NESTED:
        inner = document.get(name)
        candidates += inner if isinstance(inner, list) else [inner]
    for candidate in candidates:
        if isinstance(candidate, dict) and isinstance(candidate.get("state"), dict):
            yield candidate["state"]


def tensors(kept: object) -> dict[str, Shape]:
    if not isinstance(kept, dict):
        return {}
    pairs = ((name, shape_of(value)) for name, value in kept.items())
    return {str(name): shape for name, shape in pairs if shape is not None}


def shape_of(value: object) -> Shape | None:
    """The shape of a tensor's stand-in, or of a torch.Size; None for anything else."""
    for _ in range(8):
        if not isinstance(value, Inert) or value.called not in WRAPPED or not value.args:
            break
        value = value.args[0]
    if isinstance(value, Inert):
        called, args = value.called, value.args
        if called == "_rebuild_from_type_v2" and len(args) > 2 and isinstance(args[2], tuple):
            called, args = getattr(args[0], "called", ""), args[2]
        place = 0 if called == "Size" else REBUILT.get(called)
        value = args[place] if place is not None and place < len(args) else None
        if isinstance(value, Inert) and value.called == "Size" and value.args:
            value = value.args[0]
    if not isinstance(value, (tuple, list)) or len(value) > MOST_DIMENSIONS:
        return None
    lengths = [length for length in value if type(length) is int and length >= 0]
    return lengths if len(lengths) == len(value) else None


def instead(document: object) -> str:
    """What else a file of a training run holds, in words; "" for what nobody knows."""
    if isinstance(document, Inert) and document.called == "Metadata":
        return "the weights of a model alone"
    if isinstance(document, Inert) and document.called.endswith("TrainingArguments"):
        return "the arguments of a training"
    if isinstance(document, Inert) and shape_of(document) is not None:
        return "a tensor"
    if not isinstance(document, dict) or not document:
        return ""
    if document.keys() >= SCHEDULER:
        return "the state of a scheduler"
    if any(document.keys() >= names for names in RANDOM):
        return "the states of random number generators"
    if all(isinstance(key, str) and shape_of(value) is not None for key, value in document.items()):
        return "the weights of a model"
    return ""


def only_model(known: object) -> bool:
    """Whether the names of a distributed checkpoint, as far as there are any, speak of no optimizer."""
    if not isinstance(known, dict) or not known:
        return False
    return not any("optim" in str(name) or "state" in str(name) for name in known)


def distributed(known: object) -> Parameters:
    """Tensors called ``optim.state.PARAMETER.exp_avg``, by parameter."""
    found: dict[str, dict[str, Shape]] = {}
    for name, entry in known.items() if isinstance(known, dict) else ():
        match = DISTRIBUTED.fullmatch(name) if isinstance(name, str) else None
        size = entry.state.get("size") if isinstance(entry, Inert) and isinstance(entry.state, dict) else None
        shape = None if size is None else shape_of(size)
        if match and shape is not None:
            found.setdefault(match[1], {})[match[2]] = shape
    return [(int(name) if name.isdecimal() else name, kept) for name, kept in found.items()]


def deepspeed(groups: object) -> Parameters:
    """The shape of each parameter, in one mapping for each group."""
    members: Iterable[object] = groups if isinstance(groups, list) else [groups]
    found: Parameters = []
    for group in members:
        for name, size in group.items() if isinstance(group, dict) else ():
            shape = shape_of(size)
            if isinstance(name, str) and shape is not None:
                found.append((name, {"param_shapes": shape}))
    return found


if __name__ == "__main__":
    main()
