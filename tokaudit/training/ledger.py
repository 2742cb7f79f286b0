"""A ledger of training steps: what reached each row, through which path, and how far the row moved."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import nn

from tokaudit.contract import Contract
from tokaudit.contract.ledger import Ledger, LedgerRow
from tokaudit.errors import UsageError
from tokaudit.report import Report
from tokaudit.text import counted
from tokaudit.training.gradients import StepGradients
from tokaudit.training.live import saved_name
from tokaudit.training.records import NO_STEP, records
from tokaudit.training.tables import Named, find_tables
from tokaudit.training.unwrapping import bare_optimizer, core, unwrapped


class GradientLedger:
    """Records, row by row, what training steps do to a model's tables. A context manager around the steps.

        with GradientLedger(model, tokenizer, new_ids=[320, 321], optimizer=optimizer) as ledger:
            for batch in batches:
                model(**batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        print(ledger)

    For each id: how often it was visited as input; the norm of the gradient that came through the input path
    and through the output path, as the optimizer got it; how far the row moved. `tokaudit.contract.Ledger`
    says what is added up. In a tied table both paths must add up to the parameter's gradient, which is
    checked in each row at each step (TA933).

    ``tokenizer`` (transformers or tokenizers) names ids and tells the pad id where ``pad_id`` does not.
    ``new_ids`` are the ids whose rows are to be told from old ones. ``input`` and ``output`` are the modules
    of the tables or their names, where `find_tables` cannot tell. With ``optimizer`` steps are noticed;
    without, ``step()`` has to be called after each one, before the gradients are cleared.

    Beside some numbers for each row it holds one copy of each trained table, and the gradients of the rows
    that the step has visited. A model under torch.compile runs uncompiled within the window.

    Raises UsageError for a model whose tables cannot be followed: none of them trained, sharded (FSDP,
    DTensor), replicated (DataParallel), or made by a parametrization.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: object = None,
        *,
        new_ids: Iterable[int] = (),
        pad_id: int | None = None,
        input: Named = None,
        output: Named = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        _refuse_wrappers(model)
        self._model = model
        optimizer = bare_optimizer(optimizer)
        self._optimizer = optimizer
        tables = find_tables(model, input=input, output=output)
        self._lookups = _holders(model, nn.Embedding, tables.input_weight, tables.input_module)
        self._heads = _holders(model, nn.Linear, tables.output_weight, tables.output_module)
        names = {id(held): saved_name(name) for name, held in unwrapped(model).named_parameters()}
        self._records = records(tables, names)
        self._trained = [record for record in self._records if record.trained]
        if not self._trained:
            raise UsageError(
                f"none of the tables takes a gradient: {', '.join(r.name for r in self._records)}",
                hint="the ledger follows tables that are trained; adapters keep rows of their own",
            )
        if optimizer is not None:
            for record in self._trained:
                record.find_group(optimizer)
        self._input = next(record for record in self._records if record.looked_up)
        self._output = next((record for record in self._records if record.gives_logits), None)
        self.visits = torch.zeros(tables.rows, dtype=torch.long, device=tables.input_weight.device)
        self.new_ids = _checked(new_ids, tables.rows)
        self.pad_id = getattr(tokenizer, "pad_token_id", None) if pad_id is None else pad_id
        self._contents = _contents(tokenizer)
        self.steps = self.passes = 0
        self._taken: tuple[int, list[StepGradients]] | None = None
        self._window: ExitStack | None = None

    # --- the window -----------------------------------------------------------------------------------------

    def __enter__(self) -> GradientLedger:
        if self._window is not None:
            raise UsageError("this ledger is open already", hint="open one ledger at a time on a model")
        with ExitStack() as opening:
            for record in self._records:
                record.open()
                opening.callback(record.close)
            if _compiled(self._model):
                opening.enter_context(torch.compiler.set_stance("force_eager"))
            for handle in self._hooks():
                opening.callback(handle.remove)
            self._window = opening.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        window, self._window = self._window, None
        if window is not None:
            window.close()

    def _hooks(self) -> Iterable[torch.utils.hooks.RemovableHandle]:
        for lookup in self._lookups:
            yield lookup.register_forward_hook(self._looked_up, with_kwargs=True)
        if self._output is not None and self._output.trained:
            for head in self._heads:
                yield head.register_forward_hook(self._gave_logits, with_kwargs=True)
        for record in self._trained:
            yield record.parameter.register_post_accumulate_grad_hook(record.ended)  # type: ignore[no-untyped-call]
        yield self._trained[0].parameter.register_post_accumulate_grad_hook(self._passed)  # type: ignore[no-untyped-call]
        if self._optimizer is not None:
            yield self._optimizer.register_step_pre_hook(self._before_step)
            yield self._optimizer.register_step_post_hook(self._after_step)

    # --- hooks ----------------------------------------------------------------------------------------------

    def _looked_up(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
    ) -> None:
        ids = args[0] if args else kwargs.get("input")
        if not (isinstance(ids, torch.Tensor) and isinstance(output, torch.Tensor)):
            return
        if not torch.is_grad_enabled():
            return
        flat = ids.detach().reshape(-1).to(torch.long)
        if not self._input.trained:
            self._visit(flat)
            return

        def arrived(gradient: torch.Tensor) -> None:
            self._visit(flat)
            self._input.came_in(module, flat, gradient.detach().reshape(len(flat), -1))

        _at_lookup(output, self._input.parameter, arrived)

    def _visit(self, ids: torch.Tensor) -> None:
        self.visits.index_add_(0, ids, torch.ones_like(ids))

    def _gave_logits(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object
    ) -> None:
        hidden = args[0] if args else kwargs.get("input")
        record = self._output
        if record is None or not (isinstance(hidden, torch.Tensor) and isinstance(output, torch.Tensor)):
            return
        if not output.requires_grad:
            return
        gradients = record.gradients
        along = gradients.along(hidden.detach().reshape(-1, gradients.hidden))

        def arrived(gradient: torch.Tensor) -> None:
            gradients.add_output(along, gradient.detach().reshape(-1, gradients.rows))

        output.register_hook(arrived)  # type: ignore[no-untyped-call]

    def _passed(self, parameter: torch.Tensor) -> None:
        self.passes += 1

    # --- steps ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _before_step(self, *_: object) -> None:
        self._taken = self._take()

    def _after_step(self, *_: object) -> None:
        self.step()

    def _take(self) -> tuple[int, list[StepGradients]]:
        """The gradients of the step that is about to be made, or was just made; after how many passes."""
        scale = getattr(self._optimizer, "grad_scale", None)  # of fused optimizers, which unscale themselves
        scale = 1.0 if scale is None else float(scale)
        return self.passes, [record.gradients.take(scale) for record in self._trained]

    @torch.no_grad()
    def step(self) -> None:
        """Note a step of the optimizer. With ``optimizer`` this happens by itself.

        Raises UsageError outside of the window, and where the gradients were cleared already.
        """
        if self._window is None:
            raise UsageError("this ledger is not open", hint="call step() within `with GradientLedger(...)`")
        if self._optimizer is None and all(record.parameter.grad is None for record in self._trained):
            raise UsageError(
                "there is no gradient: step() came after the gradients were cleared",
                hint="call it between optimizer.step() and optimizer.zero_grad()",
            )
        if self._taken is None or self._taken[0] != self.passes:  # a closure made the gradients in the step
            self._taken = self._take()
        for record, split in zip(self._trained, self._taken[1], strict=True):
            record.stepped(split)
        self._taken = None
        self.steps += 1

    # --- what was recorded ----------------------------------------------------------------------------------

    @property
    def facts(self) -> Ledger:
        """What was recorded so far, frozen."""
        return Ledger(
            steps=self.steps,
            passes=self.passes,
            visits=array("q", self.visits.tolist()),
            tables=tuple(record.facts(self.steps) for record in self._records),
            new_ids=self.new_ids,
            pad_id=self.pad_id,
            contents=self._contents,
            pad_starts=self.pad_id in _decoder_starts(unwrapped(self._model)),
        )

    def rows(self) -> tuple[LedgerRow, ...]:
        """One row for each id."""
        return tuple(self.facts.rows())

    def report(self) -> Report:
        """What the rules about training steps (TA93x) find."""
        return report(self.facts, type(unwrapped(self._model)).__name__)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `tokaudit rows --ledger`; docs/training.md describes it. Raises CannotWrite."""
        from tokaudit.training.ledger_file import save

        save(self.facts, path)

    def __str__(self) -> str:
        """A table of the rows that matter: the one of padding, new ones, and those that moved the most."""
        from tokaudit.reporters import View
        from tokaudit.reporters._ledger import as_text

        return as_text(self.facts, View())


def report(ledger: Ledger, name: str) -> Report:
    """The report of the rules about training steps; ``name`` says of which model."""
    from tokaudit.audit import run, select_rules

    contract = Contract.without_files(name, "a ledger holds training steps and no files")
    contract = replace(contract, ledger_or=ledger if ledger.steps else NO_STEP)
    return run(contract, select_rules(("TA93",)))


def _refuse_wrappers(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.DataParallel):
            raise UsageError(
                "nn.DataParallel copies the model in each step, and hooks do not see the copies",
                hint="use DistributedDataParallel, or the plain model for the window of the ledger",
            )
        if type(module).__name__ in ("FullyShardedDataParallel", "FSDPModule"):
            raise UsageError(
                "the model is sharded (FSDP): no process holds whole rows of gradients",
                hint="keep the ledger in a run on one device, or under DistributedDataParallel",
            )


def _holders(
    model: nn.Module, kind: type[nn.Module], table: torch.Tensor | None, named: nn.Module | None
) -> list[nn.Module]:
    """Every module of the kind that holds the table: encoder and decoder may have one each."""
    if table is None or named is None:
        return []
    chosen = core(named)
    return [
        module
        for module in dict.fromkeys((chosen, *model.modules()))
        if module is chosen or (isinstance(module, kind) and module._parameters.get("weight") is table)
    ]


def _compiled(model: nn.Module) -> bool:
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def _at_lookup(output: torch.Tensor, table: torch.Tensor, arrived: Callable[[torch.Tensor], None]) -> None:
    """Have the gradient of the lookup itself, which what the module does next (a scale) is in already."""
    queue = [output.grad_fn]
    while queue:
        node = queue.pop()
        if node is None:
            continue
        followers = [following for following, _ in node.next_functions]
        ours = any(getattr(following, "variable", None) is table for following in followers)
        if ours and node.name().startswith("EmbeddingBackward"):
            node.register_prehook(lambda gradients: arrived(gradients[0]))
            return
        queue += followers
    output.register_hook(arrived)  # type: ignore[no-untyped-call]


def _checked(ids: Iterable[int], rows: int) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(int(id) for id in ids))
    for id in found:
        if not 0 <= id < rows:
            raise UsageError(f"new_ids: there is no row {id}", hint=f"the table has {counted(rows, 'row')}")
    return found


def _decoder_starts(model: nn.Module) -> set[int]:
    """The ids that a model of transformers puts before the labels that its decoder reads."""
    configs = (getattr(model, "config", None), getattr(model, "generation_config", None))
    starts = (getattr(config, "decoder_start_token_id", None) for config in configs)
    return {start for start in starts if isinstance(start, int)}


def _contents(tokenizer: object) -> dict[int, str]:
    """The texts of tokens by id, from a tokenizer of transformers or of tokenizers."""
    vocabulary = getattr(tokenizer, "get_vocab", None)
    return {id: content for content, id in vocabulary().items()} if callable(vocabulary) else {}
