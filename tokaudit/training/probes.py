"""Whether a lookup is a plain gather of its table, and an output a plain product with its own.

A few rows are asked for, and compared with what the table says. What is done beside that is named where it
can be told: a factor, a soft cap, a wrapper of PEFT, a hook; a table that is quantised or not in memory is
named and not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.nn import functional

from tokaudit.contract.module import Deviation, DeviationKind, Probed
from tokaudit.findings import Location
from tokaudit.text import first_line, listed
from tokaudit.training.undisturbed import gradient_hooks_of, hooks_of, undisturbed
from tokaudit.training.unwrapping import callee, core, layers, readable

IDS = 16
HIDDEN_STATES = 4
MOST_ONE_HOT = 1 << 24  # values of a table; of a larger one the product is made with the asked rows alone
_CAPS = 60  # halvings of the interval a soft cap is looked for in


def sampled_ids(rows: int, wanted: Iterable[int] = ()) -> list[int]:
    """Ids spread over all rows, the first and the last among them, and the wanted ones."""
    spread = {round(step * (rows - 1) / (IDS - 1)) for step in range(IDS)}
    return sorted(spread | {id for id in wanted if 0 <= id < rows})


def probe_lookup(module: nn.Module, weight: torch.Tensor, ids: list[int], at: Location) -> Probed:
    """Compare ``module(ids)`` with ``E[ids]`` and with ``one_hot(ids) @ E``."""
    found = list(_hooks(module, at))
    reason = _not_asked(module, weight)
    if reason is not None:
        return Probed((*found, Deviation(*reason, at)))
    if not readable(weight):
        return Probed(tuple(found), "the input embeddings are cut in shards")
    asked = torch.tensor(ids, device=weight.device)
    try:
        with undisturbed(module, weight.device):
            given = callee(module)(asked)
            gathered = weight[asked]
            by_product = _one_hot(asked, weight) @ _rows_for(asked, weight)
    except Exception as error:
        return Probed(tuple(found), f"the lookup of {len(ids)} ids failed: {first_line(error)}")
    if not _equal(by_product, gathered) and bool(gathered.isfinite().all()):
        words = "holds values that are not finite: 0 times them is not 0 in a product with one-hot rows"
        found.append(Deviation(DeviationKind.UNEXPLAINED, words, at))
    if not _equal(given, gathered):
        found.append(_explained(module, given, gathered, weight.shape[1], at))
    return Probed(tuple(found))


def probe_projection(
    module: nn.Module, weight: torch.Tensor | None, bias: torch.Tensor | None, at: Location
) -> Probed:
    """Compare ``module(h)`` with ``h @ W.T + b`` for a few normally distributed h."""
    found = list(_hooks(module, at))
    reason = _not_asked(module, weight)
    if weight is None or reason is not None:
        packed = (DeviationKind.PACKED, f"has no plain table ({type(core(module)).__name__})")
        return Probed((*found, Deviation(*(reason or packed), at)))
    if not readable(weight):
        return Probed(tuple(found), "the output embeddings are cut in shards")
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(HIDDEN_STATES, weight.shape[1], generator=generator).to(weight)
    try:
        with undisturbed(module, weight.device):
            given = callee(module)(hidden)
            product = functional.linear(hidden, weight, bias)
    except Exception as error:
        return Probed(
            tuple(found), f"the output for {HIDDEN_STATES} hidden states failed: {first_line(error)}"
        )
    if not _equal(given, product):
        found.append(_explained(module, given, product, weight.shape[1], at))
    return Probed(tuple(found))


def gradient_hooks(weight: torch.Tensor, at: Location) -> Iterator[Deviation]:
    """The hooks that change a table's gradient, as one that leaves out old rows."""
    names = gradient_hooks_of(weight)
    if names:
        yield Deviation(DeviationKind.HOOKED, f"has a hook on its gradient: {listed(names)}", at)


# --- what keeps a table from being asked ----------------------------------------------------------------


def _not_asked(module: nn.Module, weight: torch.Tensor | None) -> tuple[DeviationKind, str] | None:
    inner = core(module)
    if any(hasattr(layer, "_hf_hook") for layer in layers(module)):
        return DeviationKind.ABSENT, "is placed by accelerate, which moves the table for each call"
    if weight is None:
        return None
    if weight.is_meta:
        return DeviationKind.ABSENT, "has no values: its table is on the meta device"
    kind = type(weight.data).__name__
    if not weight.is_floating_point() or weight.is_quantized or weight.element_size() < 2:
        return DeviationKind.PACKED, f"is quantised: {type(inner).__name__} of {_dtype(weight)} values"
    if kind not in ("Tensor", "Parameter", "DTensor"):
        return DeviationKind.PACKED, f"has a table of a class of its own: {kind}"
    return None


def _dtype(weight: torch.Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def _hooks(module: nn.Module, at: Location) -> Iterator[Deviation]:
    names = [name for layer in layers(module) for name in hooks_of(layer)]
    if names:
        yield Deviation(
            DeviationKind.HOOKED, f"is called with hooks, which were not asked: {listed(names)}", at
        )


# --- comparing and explaining ---------------------------------------------------------------------------


def _one_hot(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if weight.numel() > MOST_ONE_HOT:
        return torch.eye(len(ids), dtype=weight.dtype, device=weight.device)
    one_hot = torch.zeros(len(ids), len(weight), dtype=weight.dtype, device=weight.device)
    return one_hot.scatter_(1, ids[:, None], 1)


def _rows_for(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight[ids] if weight.numel() > MOST_ONE_HOT else weight


def _equal(left: object, right: torch.Tensor) -> bool:
    """Equal but for rounding: kernels add in another order, and tensor cores round what they multiply."""
    if not isinstance(left, torch.Tensor) or left.shape != right.shape:
        return False
    slack = max(torch.finfo(right.dtype).eps, 1e-3 if right.is_cuda else 1e-5)
    scale = float(right.abs().amax()) if right.numel() else 1.0
    near = 4 * slack * (scale if math.isfinite(scale) else 1.0)
    return bool(torch.allclose(left.to(right.dtype), right, rtol=4 * slack, atol=near, equal_nan=True))


def _explained(module: nn.Module, given: object, plain: torch.Tensor, hidden: int, at: Location) -> Deviation:
    """What makes ``given`` of the plain result, as far as that can be told."""
    if not isinstance(given, torch.Tensor) or given.shape != plain.shape:
        what = f"the shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else type(given).__name__
        return _unlike(module, f"gives {what} and not {tuple(plain.shape)}", at)
    factor = _factor(given, plain)
    if factor is not None:
        is_root = math.isclose(factor, math.sqrt(hidden), rel_tol=0.01)
        root = f" (the square root of {hidden})" if is_root else ""
        return Deviation(DeviationKind.SCALED, f"multiplies by {factor:.6g}{root}", at)
    cap = _cap(given, plain)
    if cap is not None:
        return Deviation(
            DeviationKind.CAPPED, f"caps softly at {cap:.4g}: {cap:.4g} * tanh(x / {cap:.4g})", at
        )
    adapter = adapter_of(module)
    if adapter:
        return Deviation(DeviationKind.ADAPTED, f"adds what PEFT's {adapter} has learned", at)
    most = float((given.double() - plain.double()).abs().amax())
    return _unlike(module, f"gives other values, by up to {most:.3g}", at)


def _unlike(module: nn.Module, words: str, at: Location) -> Deviation:
    """Something else: by design where the class is one of transformers."""
    kind = type(core(module))
    if kind.__module__.partition(".")[0] == "transformers":
        return Deviation(
            DeviationKind.OF_ITS_CLASS, f"{words}: {kind.__name__} computes it in its own way", at
        )
    return Deviation(DeviationKind.UNEXPLAINED, words, at)


def adapter_of(module: nn.Module) -> str:
    """The class of PEFT's wrapper around a table, as ``lora.Embedding``; "" without one."""
    for layer in layers(module):
        package, *path = type(layer).__module__.split(".")
        if package == "peft":
            tuner = f"{path[1]}." if path[0] == "tuners" else ""
            return tuner + type(layer).__name__
    return ""


def _factor(given: torch.Tensor, plain: torch.Tensor) -> float | None:
    """The number that all plain values were multiplied by, if there is one."""
    factor = float((given.double() * plain.double()).sum() / plain.double().square().sum())
    scaled = (plain.double() * factor).to(plain.dtype)
    return factor if math.isfinite(factor) and factor and _equal(given, scaled) else None


def _cap(given: torch.Tensor, plain: torch.Tensor) -> float | None:
    """The c of ``c * tanh(plain / c)``, if that is what was done: found at the largest value."""
    place = plain.abs().flatten().argmax()
    top, capped = float(plain.flatten()[place].abs()), float(given.flatten()[place].abs())
    if not 0 < capped < top:
        return None
    low, high = capped, 1e6 * top
    for _ in range(_CAPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if middle * math.tanh(top / middle) < capped else (low, middle)
    return low if _equal(given, (low * (plain.double() / low).tanh()).to(plain.dtype)) else None
