from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Document, pickled_weights
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import counted, listed, shown


class UnsafeWeights(Rule):
    """Pickled weights lie in the directory, or its configuration asks for code from it.

    ## What it finds

    `pytorch_model*.bin`, `*.pt`, `*.pth`, `*.ckpt` and other pickles beside or instead of safetensors
    (tokaudit never opens them; the state of a training run does not count), and `auto_map` in `config.json`
    or `tokenizer_config.json`, which names Python classes that `trust_remote_code=True` would run.

    ## Why it matters

    A pickle can run any code while it is loaded, and so can the files behind `auto_map`. Both are normal in
    released models: this note says that the directory asks for that trust.

    ## How to fix it

    Convert the weights to safetensors and delete the pickles. For `auto_map`, read the code before you pass
    `trust_remote_code=True`, pin the revision, or use a class that transformers itself has.
    """

    code = "TA710"
    severity = Severity.NOTE

    def check(self, contract: Contract) -> Iterator[Finding]:
        pickles = pickled_weights(contract.files)
        if pickles:
            yield self.finding(
                f"{counted(len(pickles), 'pickled weights file')}, not opened: "
                f"{listed([shown(file) for file in pickles], 3)}",
                [Claim(Location(file), "is a pickle") for file in pickles[:3]],
                why="unpickling a stranger's file can run any code",
                fix="convert the weights to safetensors and delete the pickles",
                subject="pickles",
            )
        for document in (contract.config_or, contract.tokenizer_config_or):
            if isinstance(document, Document) and document.has("auto_map"):
                yield self.finding(
                    f"{document.at.file} asks for classes that bring code of their own (auto_map)",
                    [document.value("auto_map").says("names Python classes")],
                    why="trust_remote_code=True runs that code",
                    fix="read the code and pin its revision before trusting it",
                    subject=f"auto_map in {document.at.file}",
                )
