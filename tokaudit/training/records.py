"""The tables of a ledger as parameters: what reached each within a step, and the sums over steps."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import torch
from torch import nn

from tokaudit.contract import Missing
from tokaudit.contract.ledger import TableLedger
from tokaudit.errors import UsageError
from tokaudit.training.gradients import StepGradients, TableGradients, parts
from tokaudit.training.tables import LiveTables
from tokaudit.training.unwrapping import core

NO_OUTPUT = Missing(
    "no output module is known: what the lookups leave of the gradient is taken for the output path"
)
NOT_TRAINED = Missing("the table takes no gradient")
NO_STEP = Missing("no optimizer step was recorded")


class Record:
    """One table: what reaches it within a step, and the sums over steps."""

    def __init__(
        self,
        parameter: torch.Tensor,
        name: str,
        *,
        looked_up: bool = False,
        gives_logits: bool = False,
        unverified: Missing | None = None,
    ) -> None:
        self.parameter = parameter
        self.name = name
        self.looked_up = looked_up
        self.gives_logits = gives_logits
        self.trained = parameter.requires_grad
        self.optimizer, self.weight_decay = "", 0.0
        self.before: torch.Tensor | None = None
        if self.trained:
            _refuse_tensor(parameter, name)
            self.gradients = TableGradients(
                parameter,
                gives_logits=gives_logits,
                unverified=unverified,
                keep_local=_distributed(),
            )
            self.through_input, self.through_output = self.gradients.zeros(), self.gradients.zeros()
            self.updates, self.untouched = self.gradients.zeros(), self.gradients.zeros()

    def find_group(self, optimizer: torch.optim.Optimizer) -> None:
        """Note the optimizer's settings. Raises UsageError where it does not hold the table."""
        groups = [
            group
            for group in optimizer.param_groups
            if any(held is self.parameter for held in group["params"])
        ]
        if not groups:
            raise UsageError(
                f"the optimizer ({type(optimizer).__name__}) does not hold {self.name}",
                hint="give the optimizer that trains the table, made after the tables were tied",
            )
        self.optimizer = type(optimizer).__name__
        decay = groups[0].get("weight_decay", 0.0)
        self.weight_decay = float(decay) if isinstance(decay, int | float) else 0.0

    def open(self) -> None:
        if self.trained:
            self.before = self.parameter.detach().clone()

    def close(self) -> None:
        self.before = None
        if self.trained:
            self.gradients.forget()

    def came_in(self, module: nn.Module, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """The gradient [n, hidden] of a lookup of ids [n], as the module's options pass it on."""
        if getattr(module, "scale_grad_by_freq", False):
            _, places, counts = torch.unique(ids, return_inverse=True, return_counts=True)
            gradient = gradient / counts[places].unsqueeze(1)
        padding = getattr(module, "padding_idx", None)
        if padding is not None:
            kept = ids != padding
            ids, gradient = ids[kept], gradient[kept]
        self.gradients.add_input(ids, gradient)

    def ended(self, parameter: torch.Tensor) -> None:
        self.gradients.end()

    def stepped(self, split: StepGradients) -> None:
        """Add a step to the sums; the table is as the step left it."""
        moved = self._moved()
        self.through_input += split.through_input
        self.through_output += split.through_output
        self.updates += moved
        self.untouched += moved.masked_fill(split.whole != 0, 0)

    def _moved(self) -> torch.Tensor:
        """How far each row is from where the last step left it, [rows]; remembers where it is now."""
        moved = self.gradients.zeros()
        before = self.before
        assert before is not None  # open() made it
        for part in parts(before):
            now = self.parameter[part]
            moved[part] = torch.linalg.vector_norm(now.to(moved.dtype) - before[part].to(moved.dtype), dim=1)
            before[part] = now
        return moved

    def facts(self, steps: int) -> TableLedger:
        rows = len(self.parameter)
        if not self.trained:
            nothing = array("d", bytes(8 * rows))
            return TableLedger(
                *(self.name, self.looked_up, self.gives_logits, False),
                *(nothing, nothing, nothing, nothing),
                residual_or=NOT_TRAINED,
            )
        return TableLedger(
            name=self.name,
            looked_up=self.looked_up,
            gives_logits=self.gives_logits,
            trained=True,
            input_gradients=_array(self.through_input),
            output_gradients=_array(self.through_output),
            updates=_array(self.updates),
            untouched=_array(self.untouched),
            residual_or=self.gradients.residual() if steps else NO_STEP,
            masked=int(self.gradients.masked.sum()),
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )


def _array(numbers: torch.Tensor) -> array[float]:
    return array("d", numbers.tolist())


def records(tables: LiveTables, names: Mapping[int, str]) -> list[Record]:
    """The tables as parameters: one where input and output share it, else one for each."""
    given, output = tables.input_weight, tables.output_weight
    name = names.get(id(given), f"{tables.input_name}.weight")
    if output is None:
        return [Record(given, name, looked_up=True, gives_logits=True, unverified=NO_OUTPUT)]
    unverified = _unverified(tables.output_module)
    if output is given:
        return [Record(given, name, looked_up=True, gives_logits=True, unverified=unverified)]
    output_name = names.get(id(output), f"{tables.output_name}.weight")
    return [
        Record(given, name, looked_up=True),
        Record(output, output_name, gives_logits=True, unverified=unverified),
    ]


def _unverified(module: nn.Module | None) -> Missing | None:
    """Why the logits of this module are not plain products with its table."""
    if module is None or isinstance(core(module), nn.Linear):
        return None
    return Missing(f"the output module is a {type(core(module)).__name__}, not an nn.Linear")


def _refuse_tensor(parameter: torch.Tensor, name: str) -> None:
    if hasattr(parameter, "device_mesh"):
        raise UsageError(
            f"{name} is a DTensor: no process holds whole rows of gradients",
            hint="keep the ledger in a run on one device, or under DistributedDataParallel",
        )
    if not (parameter.is_leaf and parameter.is_floating_point() and parameter.dim() == 2):
        raise UsageError(
            f"{name} is no parameter but computed from others (by a parametrization or an adapter)",
            hint="the gradient belongs to those; train the table itself to follow it",
        )


def _distributed() -> bool:
    """Whether other processes have a part in the gradients."""
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return there and torch.distributed.get_world_size() > 1
