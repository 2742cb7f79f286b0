"""The gradient of one table by the paths that it came through, row by row.

An input path is a gather, so its gradient is a sum of the rows that come back at the lookups: it is added up
for the rows that were visited, [visited, hidden]. An output path is a matrix product, whose gradient autograd
makes as [rows, hidden] anyway: it is what the input path leaves of the parameter's gradient. That both add up
is then no matter of course but checked: for one random direction v the output path along v is

    (logits' gradient)^T (hidden states v)

which costs one product of a matrix and a vector, and must, with the input rows along v, be the parameter's
gradient along v, in every row (Freivalds' test of a matrix product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from tokaudit.contract import Missing
from tokaudit.contract.ledger import Residual

CHUNK = 2**18  # values that are worked on at once: they stay in the processor's cache
WIDENED = 2**22  # values that are widened at once
LEAST_TOLERANCE = 1e-3  # what sums in another order make of float32
ROUNDINGS = 16  # units of the coarsest type that took part
FLOOR = 1e-3  # of the largest row: smaller ones are held to this
SAMPLED = 1024

NOT_CALLED = Missing("the output module is not called: what the lookups leave is taken for the output path")


@dataclass(frozen=True)
class StepGradients:
    """L2 norms by row, [rows] each: through either path, and of their sum."""

    through_input: torch.Tensor
    through_output: torch.Tensor
    whole: torch.Tensor


class TableGradients:
    """Collects what reaches one parameter of [rows, hidden] between two clearings of its ``grad``.

    ``unverified`` says why the output path cannot be watched, where it cannot. ``keep_local`` keeps a copy of
    the gradient as backward left it, for runs that mix in those of other processes afterwards.
    """

    def __init__(
        self,
        parameter: torch.Tensor,
        *,
        gives_logits: bool,
        unverified: Missing | None = None,
        keep_local: bool = False,
    ) -> None:
        self.parameter = parameter
        self.gives_logits = gives_logits
        self.unverified = unverified
        self.keep_local = keep_local
        self.wide = torch.float64 if parameter.dtype == torch.float64 else torch.float32
        self.rows, self.hidden = parameter.shape
        self.direction = _direction(self.hidden).to(parameter.device, self.wide)
        self.epsilon = torch.finfo(parameter.dtype).eps
        self.excess = self.zeros()  # the worst residual of each row over its tolerance
        self.relative = self.zeros()
        self.masked = self.zeros().bool()
        self.local: torch.Tensor | None = None
        self.open = False  # whether a backward pass has begun to bring gradients
        self._clear()

    def zeros(self) -> torch.Tensor:
        """A number for each row."""
        return torch.zeros(self.rows, dtype=self.wide, device=self.parameter.device)

    def forget(self) -> None:
        """Drop what was collected for a step that does not come."""
        self.open = False
        self.local = None
        self._clear()

    def _clear(self) -> None:
        self.saw_logits = False
        self.ids = torch.empty(0, dtype=torch.long, device=self.parameter.device)
        self.looked = self.direction.new_empty(0, self.hidden)  # the input path, of the rows of these ids
        self.lookups = self.direction.new_empty(0)  # how many summands each has
        self.output = self.zeros()  # the output path along the direction
        self.left: torch.Tensor | None = None  # the gradient along the direction, as backward left it

    # --- during backward ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A gradient comes in. What was collected before the pass counts as long as ``grad`` holds it."""
        if self.open:
            return
        self.open = True
        gradient = self.parameter.grad
        if gradient is None or not _values(gradient).any():
            self._clear()

    def add_input(self, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """Gradients [n, hidden] that came back at the lookups of ids [n]."""
        self.begin()
        self._computed_in(gradient)
        once = self.direction.new_ones(len(ids))
        self.ids, self.looked, self.lookups = _summed(
            torch.cat([self.ids, ids]),
            torch.cat([self.looked, gradient.to(self.wide)]),
            torch.cat([self.lookups, once]),
        )

    def along(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [n, hidden] along the direction, [n]."""
        self._computed_in(hidden)
        with self._exactly():
            return hidden.to(self.wide) @ self.direction

    def add_output(self, along: torch.Tensor, gradient: torch.Tensor) -> None:
        """The gradient [n, rows] of the logits of hidden states that are [n] along the direction."""
        self.begin()
        self.saw_logits = True
        self._computed_in(gradient)
        with self._exactly():
            for part, rows in self._widened(gradient):
                self.output.addmv_(rows.T, along[part])

    def end(self) -> None:
        """The pass has added to ``grad``."""
        self.open = False
        gradient = self.parameter.grad
        if gradient is not None:
            self.left = self._along(gradient)
            self.local = gradient.detach().clone() if self.keep_local else None

    def _exactly(self) -> torch.autocast:
        """The loop's autocast does not reach in here."""
        return torch.autocast(self.parameter.device.type, enabled=False)

    def _computed_in(self, tensor: torch.Tensor) -> None:
        """Notes the roundings that a tensor brings along."""
        self.epsilon = max(self.epsilon, torch.finfo(tensor.dtype).eps)

    # --- at the step ----------------------------------------------------------------------------------------

    def take(self, scale: float = 1.0) -> StepGradients:
        """Split the gradient that the optimizer gets now, and note how far the paths are from adding up.

        ``scale`` is the factor that the optimizer itself is going to take out of it.
        """
        self.open = False
        gradient = self.local if self.keep_local else self.parameter.grad
        if gradient is None:
            return StepGradients(self.zeros(), self.zeros(), self.zeros())
        whole, along = self._norms(gradient), self._along(gradient)
        factor = self._factor(along)
        through_input, through_output = self.zeros(), self.zeros()
        through_input[self.ids] = abs(factor) * torch.linalg.vector_norm(self.looked, dim=1)
        if self.gives_logits:
            through_output = whole.clone()
            through_output[self.ids] = self._remainders(gradient, factor)
        with self._exactly():
            captured = factor * self.output.index_add(0, self.ids, self.looked @ self.direction)
        if self.gives_logits and not self.saw_logits and self.unverified is None:
            self.unverified = NOT_CALLED
        masked = (whole == 0) & (captured != 0)
        self.masked |= masked
        through_input[masked] = through_output[masked] = 0
        self._verify(along, captured.masked_fill(masked, 0), through_input + through_output, whole)
        if self.unverified is not None:
            through_output[through_output <= LEAST_TOLERANCE * whole] = 0  # rounding is no path
        return StepGradients(through_input / scale, through_output / scale, whole / scale)

    def residual(self) -> Residual | Missing:
        """The worst row of all steps. Where one path was not watched, and there is one, the reason."""
        id = int(self.excess.argmax())
        excess, relative = float(self.excess[id]), float(self.relative[id])
        beyond = int((self.excess > 1).sum())
        if beyond and self.unverified is not None:
            return self.unverified
        return Residual(id, relative, relative / excess if excess else LEAST_TOLERANCE, beyond)

    def _norms(self, gradient: torch.Tensor) -> torch.Tensor:
        """The norm of each row, [rows]."""
        return self._by_row(gradient, lambda rows: torch.linalg.vector_norm(rows, dim=1))

    def _along(self, gradient: torch.Tensor) -> torch.Tensor:
        """Each row along the direction, [rows]."""
        return self._by_row(gradient, lambda rows: rows @ self.direction)

    def _by_row(
        self, gradient: torch.Tensor, measure: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        found = self.zeros()
        ids = gradient.coalesce().indices()[0] if gradient.is_sparse else None
        with self._exactly():
            for part, rows in self._widened(_values(gradient)):
                found[part if ids is None else ids[part]] = measure(rows)
        return found

    def _widened(self, table: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """The table in the type that is computed in: as it is, or a copy of one part after the other."""
        if table.dtype == self.wide:
            yield slice(0, len(table)), table
            return
        for part in parts(table, WIDENED):
            yield part, table[part].to(self.wide)

    def _factor(self, along: torch.Tensor) -> float:
        """What every row of the gradient was multiplied by since backward: by unscaling and by clipping.

        The median over the rows in which most came back, so that a few rows that changed in another way do
        not count.
        """
        if self.left is None:
            return 1.0
        most = self.left.abs().topk(min(SAMPLED, self.rows)).indices
        most = most[(self.left[most] != 0) & (along[most] != 0)]
        return float((along[most] / self.left[most]).median()) if len(most) else 1.0

    def _remainders(self, gradient: torch.Tensor, factor: float) -> torch.Tensor:
        """Norms of what the input path leaves of the rows that it reached."""
        found = self.direction.new_empty(len(self.ids))
        for part in parts(self.looked):
            rows = gradient[self.ids[part]].to(self.wide) - factor * self.looked[part]
            found[part] = torch.linalg.vector_norm(rows, dim=1)
        return found

    def _verify(
        self, along: torch.Tensor, captured: torch.Tensor, paths: torch.Tensor, whole: torch.Tensor
    ) -> None:
        size = torch.maximum(paths, whole)
        relative = (along - captured).abs() / size.clamp(min=FLOOR * float(size.max()))
        relative = relative.nan_to_num(nan=0.0)  # nothing of nothing
        tolerance = self.zeros() + max(LEAST_TOLERANCE, ROUNDINGS * self.epsilon)
        # A table of 16 bits sums in 16 bits: one rounding for each lookup.
        rounding = torch.finfo(self.parameter.dtype).eps
        tolerance[self.ids] = tolerance[self.ids].maximum(rounding * self.lookups)
        excess = relative / tolerance
        self.relative = torch.where(excess > self.excess, relative, self.relative)
        self.excess = torch.maximum(excess, self.excess)


def _direction(hidden: int) -> torch.Tensor:
    """Always the same one; the random numbers of the run are left alone."""
    return torch.randn(hidden, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """[rows, hidden]; of a sparse gradient the rows that it holds."""
    gradient = gradient.detach()
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def parts(table: torch.Tensor, values: int = CHUNK) -> Iterator[slice]:
    """Stretches of the first axis that hold so many values."""
    step = max(1, values // max(1, table.shape[1]))
    return (slice(begin, begin + step) for begin in range(0, len(table), step))


def _summed(
    ids: torch.Tensor, rows: torch.Tensor, counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows [n, hidden] and counts [n] added up by id: ids [m], [m, hidden], [m]."""
    found, places = torch.unique(ids, return_inverse=True)
    return (
        found,
        rows.new_zeros(len(found), rows.shape[1]).index_add_(0, places, rows),
        counts.new_zeros(len(found)).index_add_(0, places, counts),
    )
