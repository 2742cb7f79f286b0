from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Contract, Tensor
from tokaudit.errors import FactMissing
from tokaudit.families.wrappers import IN_FRONT, WRAPPERS
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.storage._damage import tensors
from tokaudit.text import listed, shown

# Names that no model uses for a part of its own give a wrapper away anywhere in a tensor's name.
_UNMISTAKABLE = re.compile(
    r"(?:^|\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)
_ADAPTER_FILE = re.compile(r"adapter(_model)?\b.*")


class WrapperPrefix(Rule):
    """Tensor names carry the prefix of a training wrapper.

    ## What it finds

    Names that begin with `_orig_mod.`, `module.`, `_fsdp_wrapped_module.`, `base_model.model.` or several
    of them, and the unmistakable ones among these in the middle of a name. `module.` and
    `base_model.model.` count when every tensor has them. Adapter files are left alone: `base_model.model.`
    is how they are meant to be.

    ## Why it matters

    transformers finds none of its tensors under such names: it warns about missing and unexpected keys and
    goes on with a randomly initialised model.

    ## How to fix it

    Save the inner module: `model._orig_mod.save_pretrained(...)` or
    `accelerator.unwrap_model(model).save_pretrained(...)`; for PEFT `model.merge_and_unload()` first. For a
    file that exists, load it, take the prefix off every name with `name.removeprefix(...)`, and save it.
    """

    code = "TA706"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        stored = [t for t in contract.checkpoint.tensors.values() if not _ADAPTER_FILE.fullmatch(t.file)]
        if not stored:
            raise FactMissing("the weights are an adapter's, whose names carry a prefix by design")
        common = _common_prefix(stored)
        wrapped = [t for t in stored if common or _UNMISTAKABLE.search(t.name)]
        if not wrapped:
            return
        found = _UNMISTAKABLE.search(wrapped[0].name)
        prefix = common or (f"{found[1]}." if found else "")
        by = [wrapper for name, wrapper in WRAPPERS.items() if f"{name}." in prefix]
        yield self.finding(
            f"{tensors(len(wrapped))} of {len(stored)} carry the prefix {shown(prefix)} "
            f"of a training wrapper ({', '.join(by)}): {listed([shown(t.name) for t in wrapped], 2)}",
            [t.says(f"named with {shown(prefix)}") for t in wrapped[:3]],
            why="loaders find none of these tensors and go on with random values",
            fix=f"save the model inside the wrapper, or rename the tensors without {shown(prefix)}",
            subject=prefix,
        )


def _common_prefix(stored: list[Tensor]) -> str:
    """The wrappers' prefix that every tensor has; "" where there is none."""
    first = IN_FRONT.match(stored[0].name)
    if first is None or not all(tensor.name.startswith(first[0]) for tensor in stored):
        return ""
    return first[0]
