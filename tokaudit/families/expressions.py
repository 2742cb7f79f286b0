"""Row counts and widths as expressions over config fields: "text_config.vocab_size + 8".

An expression is a sum or difference of products of whole numbers, fields and `len(field)`; "a or b" takes
the first alternative whose fields are stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokaudit.contract import Document, Fact, Missing, RowCount
from tokaudit.errors import FactMissing

Default = Callable[[str], int | None]


def evaluate(expression: str, config: Document, default: Default) -> RowCount | Missing:
    """The value of an expression, with the fields it was made from.

    ``default`` gives what the configuration class fills in for a field that the file leaves out; such a
    field is a term too, at the place where it would stand.
    """
    alternatives = expression.split(" or ")
    for alternative in alternatives:
        found = _sum(alternative, config, lambda field: None)
        if isinstance(found, RowCount):
            return found
    return _sum(alternatives[0], config, default) if expression else Missing("no config field gives its size")


def _sum(expression: str, config: Document, default: Default) -> RowCount | Missing:
    total, terms, by_default = 0, [], False
    try:
        for sign, product in _signed(expression):
            value = sign
            for factor in product.split(" * "):
                if factor.isdigit():
                    value *= int(factor)
                    continue
                fact, filled_in = _fact(factor, config, default)
                value *= fact.value
                terms.append(fact)
                by_default |= filled_in
            total += value
    except FactMissing as missing:
        return Missing(missing.reason)
    return RowCount(total, expression, tuple(terms), by_default)


def _signed(expression: str) -> Iterator[tuple[int, str]]:
    """The products of a sum, each with 1 or -1."""
    for number, part in enumerate(expression.replace(" - ", " + -").split(" + ")):
        yield (-1, part[1:]) if number and part.startswith("-") else (1, part)


def _fact(factor: str, config: Document, default: Default) -> tuple[Fact[int], bool]:
    """A field, or the length of a list, and whether the value is the class's default."""
    measured = factor.removeprefix("len(").removesuffix(")")
    path = place(config, measured)
    if measured != factor:
        stated = config.value(*path) if config.has(*path) else None
        if stated is not None and isinstance(stated.value, list):
            return Fact(len(stated.value), stated.at), False
    elif config.has(*path):
        return config.integer(*path), False
    filled_in = default(factor)
    if filled_in is None:
        raise FactMissing(f"{config.at.child(*path)} is not stated")
    return Fact(filled_in, config.at.child(*path)), True


def place(config: Document, field: str) -> tuple[str | int, ...]:
    """Where a field of a section stands: at the top in configs of older versions, which had no sections."""
    steps: list[str | int] = [int(step) if step.isdigit() else step for step in field.split(".")]
    if len(steps) > 1 and not isinstance(config.data.get(str(steps[0])), (dict, list)):
        return (steps[-1],)
    return tuple(steps)
