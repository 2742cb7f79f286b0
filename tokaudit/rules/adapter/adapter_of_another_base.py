from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, present
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class AdapterOfAnotherBase(Rule):
    """The base has none of the modules that the adapter adapts.

    ## What it finds

    An adapter's modules (`model.layers.0.self_attn.q_proj` ...) against the names of the base's tensors. A
    module counts as there if its last word (`q_proj`), or `experts` before it, stands in any of those names,
    so that other prefixes, quantised layers and fused experts do not matter; so does one that is a table of
    token rows. Only an adapter of which not one module is there is reported. Whole modules
    (`modules_to_save`) are left out: a new head is in no base.

    ## Why it matters

    PEFT refuses to load the adapter: its target modules are not found in the base model.

    ## How to fix it

    Apply it to the model that it was trained on: `base_model_name_or_path` in `adapter_config.json` names it.
    """

    code = "TA806"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        adapter = contract.adapter
        modules, words = present(adapter.modules_or), present(adapter.base.words_or)
        if not modules:
            raise FactMissing("the adapter adapts no module")
        if not any(map(str.isdecimal, words)):
            raise FactMissing("the base's weights have no layers")
        tables = {table.module for table in adapter.tables}
        if any(module in tables or _is_there(module, words) for module in modules):
            return
        base, first = adapter.base, next(iter(modules))
        names = list(dict.fromkeys(_last_word(module) for module in modules))
        yield self.finding(
            f"no module that the adapter adapts is in the base: {listed([shown(name) for name in names])} "
            f"({counted(len(modules), 'module')})",
            [
                Claim(modules[first].at, f"adapts {shown(first)}"),
                Claim(base.at(Location("")), "has no such module"),
                *base.claims,
            ],
            why="PEFT refuses to load it: its target modules are not found in the base model",
            fix="apply it to the model that it was trained on",
        )


def _last_word(module: str) -> str:
    """The last word of a module's name that is no number."""
    return next((word for word in reversed(module.split(".")) if not word.isdecimal()), module)


def _is_there(module: str, words: frozenset[str]) -> bool:
    return _last_word(module) in words or ("experts" in words and "experts" in module.split("."))
