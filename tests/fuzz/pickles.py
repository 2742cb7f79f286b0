"""States of optimizers: as torch saves them, pickles put together from opcodes, and archives around them."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import tarfile
from collections import OrderedDict
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st

from fuzz import headers
from fuzz.archives import METHODS, members, repacked
from fuzz.values import TEXTS, bitten

Files = dict[str, bytes]

MARKER = "tokaudit-fuzz-was-here"  # a file that commands in these pickles would make
KEPT = st.sampled_from(
    ["exp_avg", "exp_avg_sq", "momentum_buffer", "step", "row_var", "col_var", "exp_avg_sq_row"]
)
PARAMETERS = (
    st.integers(0, 3) | st.sampled_from(["model.embed_tokens.weight", "lm_head.weight", "0", "1"]) | TEXTS
)
PLACES = ["", "", "", "optimizer_state_dict", "optimizer", "optimizer_states", "optim", "other"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.complex64, torch.bool]


# What torch saves ------------------------------------------------------------------------------------------


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Of any shape and dtype: a view, a parameter, transposed, or without storage."""
    shape = draw(
        st.sampled_from([(320, 8), (8, 320), (320,), (8,), ()])
        | st.lists(st.integers(0, 3), max_size=4).map(tuple)
    )
    found = torch.zeros(shape, dtype=draw(st.sampled_from(DTYPES)))
    match draw(st.integers(0, 7)):
        case 0 if found.dim() == 2:
            return found.t()
        case 1 if found.dim():
            return found[: found.shape[0] // 2]
        case 2 if found.is_floating_point():
            return torch.nn.Parameter(found)
        case 3:
            return found.to("meta")
        case 4:
            return found.expand(2, *found.shape)
        case _:
            return found


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats()
    | st.complex_numbers(max_magnitude=9)
    | st.lists(st.integers(-1, 9), max_size=3)
    | st.lists(st.integers(0, 9), max_size=3).map(torch.Size)
    | st.binary(max_size=3).map(bytearray)
    | st.sampled_from([torch.float32, torch.device("cpu"), torch.strided, {1, 2}])
    | TEXTS
)


@st.composite
def states(draw: st.DrawFn) -> Any:
    """The state of an optimizer, or of a run around it."""
    sound = st.dictionaries(KEPT, tensors(), min_size=1, max_size=3)
    any_kept = st.dictionaries(KEPT | TEXTS, tensors() | PLAIN, max_size=3)
    state = draw(st.dictionaries(PARAMETERS, sound | sound | any_kept | PLAIN, min_size=1, max_size=3))
    if draw(st.integers(0, 4)) == 0:
        state = OrderedDict(state)
    if draw(st.integers(0, 9)) == 0 and state:
        state[7] = state[next(iter(state))]  # one object twice
    found: Any = {"state": state, "param_groups": [{"lr": 0.1, "params": list(state)}]}
    place = draw(st.sampled_from(PLACES))
    if place:
        found = {"epoch": 3, place: [found] if place == "optimizer_states" else found}
    return found


def saved(document: Any, *, zipped: bool = True, protocol: int = 2) -> bytes:
    out = io.BytesIO()
    torch.save(document, out, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)
    return out.getvalue()


SAVED = st.builds(saved, states(), zipped=st.booleans(), protocol=st.sampled_from([2] * 6 + [3, 4, 5]))


@cache
def _sample() -> bytes:
    kept = {
        "step": torch.tensor(1.0),
        "exp_avg": torch.zeros(3, 2),
        "exp_avg_sq": torch.nn.Parameter(torch.zeros(3, 2)),
    }
    return saved({"state": {0: kept, 1: OrderedDict(kept)}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]})


# Archives --------------------------------------------------------------------------------------------------


def with_pickle(archive: bytes, data: bytes) -> bytes:
    """The archive with another pickle in it."""
    return repacked(
        [(name, data if name.endswith("/data.pkl") else held) for name, held in members(archive).items()]
    )


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """What torch saved, packed by another hand: names, methods and copies that torch does not write."""
    found = list(members(saved(draw(states()))).items())
    match draw(st.integers(0, 5)):
        case 0:
            found.append(draw(st.sampled_from(found)))
        case 1:
            found.append(
                (draw(st.sampled_from(["other/data.pkl", "../data.pkl", "/data.pkl", "data.pkl"])), b"N.")
            )
        case 2:
            del found[draw(st.integers(0, len(found) - 1))]
        case 3:
            place = draw(st.integers(0, len(found) - 1))
            found[place] = (draw(TEXTS.filter(_is_a_name) | st.just("archive/DATA.pkl")), found[place][1])
        case 4:
            found = draw(st.permutations(found))
    data = repacked(found, draw(METHODS), draw(st.sampled_from([b"", b"x", b"PK\x05\x06"])))
    return draw(st.just(data) | st.just(data) | bitten(st.just(data)))


def _is_a_name(text: str) -> bool:
    return "\0" not in text and text.isascii() and bool(text)


# Programs --------------------------------------------------------------------------------------------------

GLOBALS = st.sampled_from(
    [
        *(
            ("posix", "system"),
            ("os", "system"),
            ("builtins", "eval"),
            ("builtins", "exec"),
            ("builtins", "open"),
        ),
        *(
            ("builtins", "getattr"),
            ("builtins", "__import__"),
            ("subprocess", "Popen"),
            ("__builtin__", "apply"),
        ),
        *(("torch", "Size"), ("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict")),
        *(
            ("torch.nn.parameter", "Parameter"),
            ("torch.hub", "load"),
            ("numpy", "load"),
            ("_codecs", "encode"),
        ),
        *(
            ("torch.storage", "_load_from_bytes"),
            ("torch", "FloatStorage"),
            ("torch", "os.system"),
            ("torch", ""),
        ),
        *(("builtins", "set"), ("builtins", "dict"), ("builtins", "list"), ("builtins", "bytearray")),
        *(
            ("torch.distributed.checkpoint.metadata", "Metadata"),
            ("pathlib", "PosixPath"),
            ("", ""),
            ("a\x1b", "b"),
        ),
        *(
            ("torch", "__class__"),
            ("torch", "args"),
            ("torch", "a\0b"),
            ("torch", "\u202e"),
            ("torch", "x" * 400),
        ),
    ]
)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def _global(name: tuple[str, str], *, stacked: bool) -> bytes:
    if stacked:
        return _text(name[0]) + _text(name[1]) + b"\x93"
    return b"c" + "\n".join((*name, "")).encode("utf-8", "surrogatepass")


PUSHED = (
    st.sampled_from([b"N", b"\x88", b"\x89", b"(", b")", b"}", b"]", b"\x8f", b"K\x03", b"J\xff\xff\xff\xff"])
    | st.sampled_from(
        [b"I01\n", b"I5\n", b"L5L\n", b"F1.5\n", b"V\\u0041\n", b"S'a'\n", b"Pstorage\n", b"C\x01a"]
    )
    | st.sampled_from(
        [b"\x8a\x02\xff\x7f", b"\x8b" + struct.pack("<i", 5000) + b"\x7f" * 5000, b"I" + b"9" * 5000 + b"\n"]
    )
    | st.sampled_from(["state", "exp_avg", f"touch {MARKER}", f"open('{MARKER}', 'w')", MARKER, "size"]).map(
        _text
    )
    | TEXTS.map(_text)
    | st.builds(_global, GLOBALS, stacked=st.booleans())
)
WORKED = st.sampled_from(
    [bytes([code]) for code in b"RbdlutseaoQ0210\x81\x92\x85\x86\x87\x90\x91\x94"]
    + [
        b"q\0",
        b"h\0",
        b"q\1",
        b"h\1",
        b"j\xff\xff\xff\xff",
        b"r\xff\xff\xff\x7f",
        b"g0\n",
        b"p0\n",
        b"\x82\1",
        b".",
    ]
    + [
        b"iposix\nsystem\n",
        b"itorch\nSize\n",
        b"\x95" + b"\xff" * 8,
        b"\x8e" + struct.pack("<Q", 2**40),
        b"\x80\x09",
    ]
    + [b"B\xff\xff\xff\x7f", b"\x97", b"\x98", b"\x8d" + b"\xff" * 8, b"\x96" + struct.pack("<Q", 2**33)]
)
PROGRAMS = st.lists(PUSHED | PUSHED | WORKED, max_size=14).map(b"".join)

CALLS = st.builds(
    lambda name, argument, stacked, how: _global(name, stacked=stacked) + _text(argument) + how,
    GLOBALS,
    st.sampled_from([f"touch {MARKER}", f"open('{MARKER}', 'w')", MARKER, "a"]),
    st.booleans(),
    st.sampled_from(
        [b"\x85R", b"\x85\x81", b"\x85}\x92", b"\x85b", b"\x85R}b", b"\x85R(K\1K\2u", b"\x85R(K\1e"]
    ),
)


@st.composite
def edited(draw: st.DrawFn) -> bytes:
    """A pickle of torch with operations left out, repeated, exchanged, or put in."""
    data = members(_sample() if draw(st.booleans()) else saved(draw(states())))
    pickled = next(held for name, held in data.items() if name.endswith("/data.pkl"))
    places = [position for _, _, position in pickletools.genops(pickled)] + [len(pickled)]
    steps = [pickled[start:stop] for start, stop in pairwise(places)]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(1, len(steps) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                del steps[place]
            case 1:
                steps.insert(place, steps[draw(st.integers(0, len(steps) - 1))])
            case 2:
                other = draw(st.integers(1, len(steps) - 1))
                steps[place], steps[other] = steps[other], steps[place]
            case 3:
                steps.insert(place, draw(CALLS) + draw(st.sampled_from([b"", b"0"])))
            case _:
                steps.insert(place, draw(PUSHED | WORKED))
        steps.append(b".")
    return b"".join(steps)


def framed(program: bytes) -> bytes:
    return b"\x80\x02" + program + b"."


# A sound state, with something in it that is the result of a program.
WITHIN = st.builds(
    lambda program, key: b"\x80\x02}" + _text("state") + b"}" + key + program + b"ss.",
    CALLS | PROGRAMS,
    st.sampled_from([b"K\0", _text("a"), b")", b"N"]),
)
KEPT_WITHIN = st.builds(
    lambda program: b"\x80\x02}" + _text("state") + b"}K\0}" + _text("exp_avg") + program + b"sss.",
    CALLS | PROGRAMS,
)
PICKLED = PROGRAMS.map(framed) | CALLS.map(framed) | edited() | WITHIN | KEPT_WITHIN
DEEP = st.builds(
    lambda opened, code, closed, times: framed(opened + code * times + closed),
    st.sampled_from([b"", b"}("]),
    st.sampled_from([b"]", b"(", b"\x85", b")\x85", b"}", b"]\x94", b"\x85\x85", b"2"]),
    st.sampled_from([b"", b"K\1u", b"K\1s"]),
    st.sampled_from([10, 2000, 200_000]),
)


def _tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as file:
        info = tarfile.TarInfo("pickle")
        info.size = len(data)
        file.addfile(info, io.BytesIO(data))
    return out.getvalue()


STATE_FILES: st.SearchStrategy[bytes] = (
    SAVED
    | SAVED
    | bitten(SAVED)
    | PICKLED
    | PICKLED.map(lambda data: with_pickle(_sample(), data))
    | PICKLED.map(
        lambda data: (
            pickle.dumps(0x1950A86A20F9469CFC6C, 2)
            + pickle.dumps(1001, 2)
            + framed(b"}")
            + data
            + framed(b"]")
        )
    )
    | archives()
    | DEEP
    | headers.FILES
    | st.sampled_from(
        [
            b"",
            b"PK",
            b"\x80",
            b"\x80\x02",
            _tar(b"\x80\x02N."),
            b"version https://git-lfs.github.com/spec/v1\n",
        ]
    )
)

# Checkpoints that are folders ------------------------------------------------------------------------------


@st.composite
def distributed(draw: st.DrawFn) -> bytes:
    """The .metadata of a distributed checkpoint, made by hand."""
    place = b"torch.distributed.checkpoint.metadata"
    names = draw(st.lists(PARAMETERS, max_size=3))
    program = b"\x80\x02c" + place + b"\nMetadata\n)\x81}" + _text("state_dict_metadata") + b"}"
    for name in names:
        prefix = draw(st.sampled_from(["optim.state.", "state.", "optimizer.optim.state.", "model."]))
        key = _text(f"{prefix}{name}.{draw(KEPT)}") if draw(st.integers(0, 5)) else draw(PUSHED)
        shape = b"".join(b"K" + bytes([size]) for size in draw(st.lists(st.integers(0, 255), max_size=3)))
        size = b"ctorch\nSize\n((" + shape + b"ttR" if draw(st.integers(0, 5)) else draw(PUSHED)
        program += key + b"c" + place + b"\nTensorStorageMetadata\n)\x81}" + _text("size") + size + b"sbs"
    data = program + b"sb."
    return draw(st.just(data) | st.just(data) | bitten(st.just(data)))


@st.composite
def deepspeed(draw: st.DrawFn) -> bytes:
    shapes = st.lists(st.integers(0, 9), max_size=3).map(torch.Size) | PLAIN
    group = st.dictionaries(PARAMETERS, shapes, max_size=3).map(OrderedDict)
    document = {"module": {}, "param_shapes": draw(st.lists(group, max_size=2) | group | PLAIN)}
    return saved(document)


@st.composite
def optimizers(draw: st.DrawFn) -> Files:
    """A file, or a folder of one of the layouts, below ``optimizer/``."""
    match draw(st.integers(0, 7)):
        case 7:
            return {"optimizer/.metadata": draw(distributed())}
        case 6:
            folder = draw(
                st.sampled_from(["global_step5", "global_step5\n", "..", "", "a/b", "\x1b", "x" * 300, "\0"])
            )
            found = {"optimizer/latest": folder.encode()}
            found["optimizer/global_step5/mp_rank_00_model_states.pt"] = draw(deepspeed() | STATE_FILES)
            return found
        case _:
            name = draw(
                st.sampled_from(["optimizer.pt", "optimizer.pt", "optimizer.bin", "optimizer_0/.metadata"])
            )
            return {f"optimizer/{name}": draw(SAVED if draw(st.booleans()) else STATE_FILES)}
