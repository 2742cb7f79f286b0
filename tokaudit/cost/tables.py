"""The arithmetic of a vocabulary's cost. Nothing here reads a file.

A quantity that the files do not tell is a `Missing` with its reason, and so is every sum that holds one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tokaudit.contract import DTYPE_BITS, Missing, TableKind

Amount = int | Missing

# The names by which dtypes are asked for, and those of the safetensors format.
DTYPES: Mapping[str, str] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float8": "F8_E4M3"}

# Bytes for each parameter in training, by convention: weights, gradients, master weights, Adam's two moments.
MIXED = (2, 2, 4, 8)  # 16-bit weights and gradients; the optimizer holds float32 copies (ZeRO, 2020)
FULL = (4, 4, 0, 8)  # everything in float32
HALF = (2, 2, 0, 4)  # everything in 16 bits, the moments too


@dataclass(frozen=True, slots=True)
class Part:
    """A table of the vocabulary. ``width`` counts the values of a row, ``values`` those of the table.

    ``stored`` are its bytes in the files, scales of a packed one included. One that ``grows`` follows the
    model's own vocabulary; one that is ``shared`` has the parameters of another part.
    """

    kind: TableKind
    name: str
    rows: Amount
    width: Amount
    values: Amount
    dtype: str
    stored: Amount
    packed: str = ""
    grows: bool = True
    shared: bool = False

    @property
    def parameters(self) -> Amount:
        return 0 if self.shared else self.values

    def with_rows(self, rows: int) -> Part:
        """The table with so many rows; one that does not grow stays as it is."""
        if not self.grows or rows == self.rows:
            return self
        values = scaled(self.width, rows)
        stored: Amount = Missing(f"{self.name} is packed ({self.packed}), so more rows have no known size")
        if not self.packed and isinstance(values, int):
            stored = values * DTYPE_BITS[self.dtype] // 8 if self.stored else 0
        return replace(self, rows=rows, values=values, stored=stored)


@dataclass(frozen=True, slots=True)
class Rest:
    """The model without its vocabulary: parameters, and bytes in the files."""

    parameters: Amount
    stored: Amount


@dataclass(frozen=True, slots=True)
class Positions:
    """What logits are computed for: ``batch`` texts of ``length`` tokens, in ``dtype`` (of DTYPES)."""

    batch: int = 1
    length: int = 2048
    dtype: str = "float32"

    def bytes(self, rows: Amount, stretch: float = 1.0) -> Amount:
        """Of one copy of the logits; ``stretch`` is how much longer than ``length`` the texts are."""
        each = DTYPE_BITS[DTYPES[self.dtype]] // 8
        return rows if isinstance(rows, Missing) else round(self.batch * self.length * stretch * rows * each)


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table of one vocabulary, beside the rest of the model. ``main`` has the rows of the input table.

    ``output`` is the part that gives the logits, Missing where there is none. ``tied`` is None where that is
    not known.
    """

    parts: tuple[Part, ...]
    main: Part
    output: Part | Missing
    tied: bool | None
    rest: Rest

    @property
    def rows(self) -> Amount:
        return self.main.rows

    @property
    def logits_rows(self) -> Amount:
        return self.output if isinstance(self.output, Missing) else self.output.rows

    def parameters(self, *kinds: TableKind) -> Amount:
        """Of all parts, or of those of some kinds. What is shared counts once."""
        return total(part.parameters for part in self.parts if not kinds or part.kind in kinds)

    @property
    def stored(self) -> Amount:
        return total(part.stored for part in self.parts)

    @property
    def tie_saves(self) -> Amount:
        """The parameters of an output table beside the input table, had or spared."""
        if isinstance(self.output, Missing):
            return self.output
        if self.tied is None:
            return Missing("whether the tables are tied is not known")
        same = self.output.rows == self.main.rows and self.output.width == self.main.width
        if not (self.tied or same):
            return Missing("input and output embeddings differ in shape")
        return self.output.values

    @property
    def share(self) -> float | Missing:
        """Of the whole model's parameters, 0 to 1."""
        return _share(self.parameters(), self.rest.parameters)

    @property
    def stored_share(self) -> float | Missing:
        """Of the bytes of the whole model's weights, 0 to 1."""
        return _share(self.stored, self.rest.stored)

    def with_rows(self, rows: int) -> Tables:
        """The same model with so many rows in every table that follows its vocabulary."""
        if rows == self.rows:
            return self
        output = self.output if isinstance(self.output, Missing) else self.output.with_rows(rows)
        parts = tuple(part.with_rows(rows) for part in self.parts)
        return replace(self, parts=parts, main=self.main.with_rows(rows), output=output)


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum; the first Missing where there is one."""
    result = 0
    for amount in amounts:
        if isinstance(amount, Missing):
            return amount
        result += amount
    return result


def scaled(amount: Amount, factor: int) -> Amount:
    return amount if isinstance(amount, Missing) else amount * factor


def _share(part: Amount, rest: Amount) -> float | Missing:
    if isinstance(part, Missing):
        return part
    return rest if isinstance(rest, Missing) else part / max(1, part + rest)


def rounded_up(rows: int, multiple: int | None) -> int:
    return rows if multiple is None else -(-rows // multiple) * multiple


def plain_tables(rows: int, hidden: int, dtype: str, *, tied: bool) -> Tables:
    """The tables of a model of which only these numbers are known; ``dtype`` is of DTYPES."""
    values = rows * hidden
    stored = values * DTYPE_BITS[DTYPES[dtype]] // 8
    given = Part(TableKind.INPUT, "input embeddings", rows, hidden, values, DTYPES[dtype], stored)
    output = replace(
        given, kind=TableKind.OUTPUT, name="output embeddings", shared=tied, stored=0 if tied else stored
    )
    unknown = Missing("of the model only the vocabulary is known")
    return Tables((given, output), given, output, tied, Rest(unknown, unknown))
