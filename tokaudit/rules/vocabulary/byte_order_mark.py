from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokaudit.contract import Contract, Document
from tokaudit.findings import Claim, Finding, Location, Severity
from tokaudit.rule import Rule
from tokaudit.text import listed

# Measured with transformers 5.24 and PEFT 0.21; those of tokenizer.json are TA405's.
_MODEL = "AutoModel of transformers does not load the model"
_TOKENIZER = "AutoTokenizer of transformers does not load the tokenizer"
_REFUSED: Mapping[str, str] = {
    "config.json": "AutoModel and AutoTokenizer of transformers do not load it",
    "generation_config.json": "transformers loads the model without it: its stop ids and settings are lost",
    "tokenizer_config.json": _TOKENIZER,
    "chat_template.json": "AutoProcessor of transformers does not load the processor",
    "adapter_config.json": "PEFT does not load the adapter",
}
_WITHOUT_DECODER = ("special_tokens_map.json", "added_tokens.json")
_WITHOUT_TOKENIZER_JSON = ("vocab.json",)


class ByteOrderMark(Rule):
    """A JSON file begins with a byte order mark, which loaders refuse.

    ## What it finds

    A UTF-8 byte order mark (the bytes EF BB BF) before `config.json`, `generation_config.json`,
    `tokenizer_config.json`, `chat_template.json`, `adapter_config.json` or the index of the weights; before
    `special_tokens_map.json` and `added_tokens.json` where loaders read them, which is without
    `added_tokens_decoder` in `tokenizer_config.json`; and before `vocab.json` where there is no
    `tokenizer.json`. In `tokenizer.json` it is TA405.

    ## Why it matters

    Python's JSON reader takes such a file for damaged. transformers then does not load the model or the
    tokenizer, or goes on without `generation_config.json` and says nothing. tokaudit reads the file as if the
    mark were not there, so that the rest can be audited.

    ## How to fix it

    Save the file as UTF-8 without a byte order mark. Editors on Windows write it, and PowerShell's
    `-Encoding utf8` does.
    """

    code = "TA418"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        refused = _refused(contract)
        found = {file: refused[file] for file in contract.marked if file in refused}
        if found:
            yield self.finding(
                f"{listed(list(found), 3)} {'begin' if len(found) > 1 else 'begins'} with a byte order mark",
                [Claim(Location(file), f"begins with EF BB BF: {words}") for file, words in found.items()],
                why="loaders take the file for damaged JSON",
                fix="save it as UTF-8 without a byte order mark",
                subject=next(iter(found)),
            )


def _refused(contract: Contract) -> Mapping[str, str]:
    """What comes of a mark before each file that loaders read."""
    settings = contract.tokenizer_config_or
    decoder = isinstance(settings, Document) and "added_tokens_decoder" in settings.data
    tokenizer = (
        *(() if decoder else _WITHOUT_DECODER),
        *(() if "tokenizer.json" in contract.tokenizer_files else _WITHOUT_TOKENIZER_JSON),
    )
    indexes = (file for file in contract.marked if file.endswith(".index.json"))
    return {**_REFUSED, **dict.fromkeys(tokenizer, _TOKENIZER), **dict.fromkeys(indexes, _MODEL)}
