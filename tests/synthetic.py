"""A report on a large model that nobody trained: its rows, and tokens that look like those of a real one."""

from __future__ import annotations

import math
import random
from array import array

from tokaudit.contract import Missing, Neighbour, RowClass, Table, TableKind, TableValues, Tensor, Values
from tokaudit.report import Report, Summary, TableFacts, Tokens

HIDDEN = 4096
_ONSETS = (
    "b",
    "c",
    "d",
    "f",
    "g",
    "h",
    "j",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "w",
    "st",
    "tr",
    "ch",
    "sh",
    "pl",
)
_VOWELS = ("a", "e", "i", "o", "u", "ea", "io", "ou", "\u00e9", "\u00fc")
_CODAS = ("", "", "n", "r", "s", "t", "l", "ng", "nt", "st", "ck", "tion", "ment", "er", "ing", "ed")


def texts(count: int, chance: random.Random) -> list[str]:
    """So many different texts: words with and without the space before them, pieces, other scripts, code."""
    found: dict[str, None] = {chr(code): None for code in range(33, 127)}
    while len(found) < count:
        kind = chance.random()
        if kind < 0.75:
            syllables = chance.choices((1, 2, 3), (4, 5, 2))[0]
            word = "".join(
                chance.choice(_ONSETS) + chance.choice(_VOWELS) + chance.choice(_CODAS)
                for _ in range(syllables)
            )
            word = word.capitalize() if chance.random() < 0.25 else word
            found["\u0120" + word if chance.random() < 0.6 else word] = None
        elif kind < 0.9:
            first = chance.choice((0x4E00, 0x430, 0x3B1, 0x5D0, 0xAC00))
            found["".join(chr(first + chance.randrange(24)) for _ in range(chance.randint(1, 6)))] = None
        else:
            signs = "(){}[];:=+-*/<>&|!?.,_#$%^~\"'\\"
            found["".join(chance.choice(signs) for _ in range(chance.randint(2, 6)))] = None
    return list(found)[:count]


def report(rows: int = 128_000, added: int = 40, reserved: int = 300, padding: int = 512) -> Report:
    """Two tables of so many rows; the last ids are added tokens, reserved ones, and padding."""
    chance = random.Random(7)
    base = rows - added - reserved - padding
    contents = texts(base, chance)
    contents += [f"<|tool_{place}|>" for place in range(added)]
    contents += [f"<|reserved_special_token_{place}|>" for place in range(reserved)]
    new = range(base, base + added)
    kept = range(base + added, rows - padding)
    tables = (
        _table(TableKind.INPUT, "model.embed_tokens.weight", rows, new, kept, padding, chance),
        _table(TableKind.OUTPUT, "lm_head.weight", rows, new, kept, padding, chance),
    )
    facts = tuple(
        TableFacts(
            one.table.name, rows, HIDDEN, "BF16", "model.safetensors", rows * HIDDEN * 2, one.table.kind
        )
        for one in tables
    )
    summary = Summary(
        architecture="LlamaForCausalLM",
        model_type="llama",
        tokenizer_kind="byte-level BPE",
        base_tokens=base,
        added_tokens=added + reserved,
        required_rows=rows - padding,
        vocab_size=rows,
        input=facts[0],
        output=facts[1],
        tied=False,
        weights_bytes=16_000_000_000,
        weights_files=4,
        input_rows=rows,
        tables=facts,
        values=Values(tables, {}),
        tokens=Tokens(
            texts=dict(enumerate(contents)),
            added=frozenset([*new, *kept]),
            special=frozenset(new[:8]),
            reserved=frozenset(kept),
            referred_by={new[0]: ("the eos token", "config.json eos_token_id")},
        ),
    )
    return Report("synthetic", summary, (), (), (), (), ())


def _table(
    kind: TableKind, name: str, rows: int, new: range, kept: range, padding: int, chance: random.Random
) -> TableValues:
    norms = array("d", (_trained(id, rows, chance) for id in range(rows)))
    classes = array("H", [RowClass.IN_USE.value]) * rows
    for id in range(rows - padding, rows):
        norms[id] = chance.gauss(0.32, 0.004)
        classes[id] = RowClass.PADDING.value
    for id in kept:
        norms[id] = chance.gauss(0.33, 0.004)
        classes[id] = RowClass.RESERVED.value
    for id in new:
        norms[id] = chance.gauss(0.9, 0.02)
    signs = {}
    for id in chance.sample(range(new[0] // 100, new[0]), new[0] // 300):
        norms[id] = chance.gauss(0.34, 0.01)
        classes[id] |= RowClass.UNDER_TRAINED.value
        signs[id] = f"norm {norms[id]:.3g}, like the {padding + len(kept)} unused rows"
    tensor = Tensor(name, "BF16", (rows, HIDDEN), "model.safetensors", 0, rows * HIDDEN * 2)
    return TableValues(
        table=Table(kind, tensor, 0, rows, HIDDEN, Missing("made up")),
        first_id=0,
        norms=norms,
        largest=array("d", (norm / 8 for norm in norms)),
        classes=classes,
        non_finite={},
        identical=(),
        typical_norm=1.02,
        spread=0.1,
        signs=signs,
        indicators_or=Missing("made up"),
        new={
            id: tuple(Neighbour(chance.randrange(new[0]), 0.9 - 0.1 * place) for place in range(3))
            for id in new[-32:]
        },
    )


def _trained(id: int, rows: int, chance: random.Random) -> float:
    """Frequent tokens have shorter rows, as in models that were trained."""
    return (0.7 + 0.35 * math.log1p(id) / math.log1p(rows)) * math.exp(chance.gauss(0, 0.06))
