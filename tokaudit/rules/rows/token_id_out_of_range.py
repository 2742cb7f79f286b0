from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract
from tokaudit.findings import Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.rows._beyond import row_limit, shown_strays, stray_tokens
from tokaudit.text import counted, listed, named


class TokenIdOutOfRange(Rule):
    """A token that will be used has an id past the last row of the input embeddings.

    ## What it finds

    Token ids at or above the number of input rows, where the token matters: it stands in the base
    vocabulary, has a role (bos, eos, pad, unk, sep, cls; mask in a `*ForMaskedLM` model), is named by
    an id field of `config.json` or `generation_config.json`, is emitted by the post-processor, is
    printed by the chat template, or occurs in the data that `--data` names. What counts is the largest
    id + 1 over every file that gives ids, never a count of tokens. Image, audio and video placeholders
    are left to `unused-token-out-of-range`: their model classes swap them before the lookup. A base
    token that is also an added special token (the `<mask>` of bart-large-cnn) only matters when
    something refers to it. Without the weights, the rows that `config.json` asks for count.

    ## Why it matters

    The lookup of such an id fails: an `IndexError` on a CPU, a device-side assert on a GPU that also
    poisons every later call. It happens at the first batch that needs padding, or at the first text
    that contains the token, which may be hours into a run.

    ## How to fix it

    Give the ids rows: `tokaudit resize SRC DST --rows N` with N the largest id + 1 (add
    `--pad-to-multiple-of 64` to keep a round number). If the tokenizer is the wrong one, take the one
    that the checkpoint was trained with. If the token was added by mistake, take its entry out of the
    tokenizer's files and use an existing token in its role.
    """

    code = "TA101"
    severity = Severity.ERROR

    def check(self, contract: Contract) -> Iterator[Finding]:
        limit = row_limit(contract)
        strays = stray_tokens(contract, limit)
        found = len(strays.mattering)
        if not found:
            return
        shown = shown_strays(contract, strays.mattering)
        past = found + len(strays.unused)
        plain = found > 1 and contract.references.keys().isdisjoint(strays.mattering)
        what = f"{found} tokens of the base vocabulary" if plain else counted(found, "token id")
        names = [named(stray.id, stray.content) if plain else stray.words for stray in shown]
        yield self.finding(
            f"{what} {'has' if found == 1 else 'have'} no row: {listed(names, total=found)}; {limit.words}",
            [*(stray.claim for stray in shown[:3]), limit.claim, *shown[0].references],
            why="looking such an id up fails: an IndexError on a CPU, a device-side assert on a GPU",
            fix=f"`tokaudit resize SRC DST --rows {strays.rows_needed}` gives {counted(past, 'id')} a row; "
            "or use the tokenizer that belongs to this checkpoint",
        )
