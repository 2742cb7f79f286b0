"""Whether the output table shares the input table's storage, as each generation of loaders reads the flags.

The rules were measured on transformers 5.24 and 4.57. A flag that a configuration leaves out counts as its
class's default, which for a section is the default of the model type that the section names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokaudit.contract import Document, Fact, Missing, Tie, TieReading
from tokaudit.errors import FactMissing
from tokaudit.families import records
from tokaudit.families.records import Record, TieRule

# Fields that classes outside transformers tie by.
FLAG_NAMES = (
    "tie_word_embeddings",
    "weight_tying",
    "tie_embeddings",
    "tie_embedding",
    "share_input_output_layers",
)


def read_tie(config: Document, record: Record, output_stored: bool) -> Tie | Missing:
    """How the class ties its tables. ``output_stored`` tells whether the files hold an output table."""
    if not record.output:
        return Missing(f"{record.name} has no output embeddings")
    if not record.input:
        return Missing(f"{record.name} has no input embeddings")
    if not record.loaders and not record.generates:  # FLAVA: its flag says tied and its class never ties
        return Missing(f"how {record.name} ties its tables is not known")
    if not record.loaders:
        return guess_tie(config, record.section)
    flags: dict[str, Fact[bool]] = {}
    for rule in record.loaders.values():
        # The top of an encoder-decoder pair has a flag that ties nothing: transformers 5 always writes it.
        flags |= _stated(config, rule, top=(rule.rule, rule.section) != ("sub", "decoder"))
    readings = tuple(_reading(config, loader, rule, output_stored) for loader, rule in record.loaders.items())
    newest = next(iter(record.loaders.values()))
    return Tie(
        flags=flags,
        readings=readings,
        always=newest.rule == "always",
        by_default=not flags,
    )


def guess_tie(config: Document, section: str) -> Tie | Missing:
    """The tie of a class whose way to read the flags is not known: what they say, where one is stated."""
    flags = {
        f"{part}.{name}" if part else name: fact
        for part in dict.fromkeys(("", section))
        for name in FLAG_NAMES
        for fact in _boolean(config, part, name)
    }
    if not flags:
        return Missing("the configuration states no tie flag, and the class's default is not known")
    path, fact = next(iter(flags.items()))
    return Tie(flags, (TieReading("loaders in general", fact.value, f"{path} is {_word(fact.value)}"),))


def _stated(config: Document, rule: TieRule, *, top: bool = True) -> Mapping[str, Fact[bool]]:
    parts = [part for part in (rule.section, "") if part or top or not rule.section]
    parts.sort(key=bool)
    return {
        f"{part}.{name}" if part else name: fact
        for part in parts
        for name in rule.names
        for fact in _boolean(config, part, name)
    }


def _reading(config: Document, loader: str, rule: TieRule, output_stored: bool) -> TieReading:
    if rule.rule == "never":
        return TieReading(loader, False, "the class never ties")
    if rule.rule == "always":
        return _always(config, loader, rule, output_stored)
    top, why_top = _flag(config, rule, "")
    sub, why_sub = _flag(config, rule, rule.section)
    if rule.rule == "sub":
        return TieReading(loader, sub, why_sub)
    if rule.rule == "or":
        tied_by_sub = sub and not top
        return TieReading(loader, top or sub, why_sub if tied_by_sub else why_top)
    return TieReading(loader, top, why_top)


def _always(config: Document, loader: str, rule: TieRule, output_stored: bool) -> TieReading:
    """T5: the flag scales the decoder's output; a stored output table that differs is kept all the same.

    transformers 5 writes `scale_decoder_outputs` for what the flag meant before, and then a flag that is
    true beside an output table of its own.
    """
    stated = _stated(config, rule)
    untied = any(not fact.value for fact in stated.values()) or config.has("scale_decoder_outputs")
    if output_stored and untied:
        return TieReading(loader, False, "the class ties unless another output table is stored")
    return TieReading(loader, True, "the class ties whatever the flag says")


def _flag(config: Document, rule: TieRule, section: str) -> tuple[bool, str]:
    """The value that counts at the top or in the section, and why."""
    inside = section if isinstance(config.data.get(section.partition(".")[0]), dict) else ""
    for name in rule.names:
        for fact in _boolean(config, inside, name):
            return fact.value, f"{inside + '.' if inside else ''}{name} is {_word(fact.value)}"
    default = rule.absent
    if rule.rule == "or" and not section:
        default = rule.top_absent
    elif inside:
        default = _section_default(config, inside, default)
    path = f"{inside}.{rule.names[0]}" if inside else rule.names[0]
    return default, f"{path} is not stated, and {_word(default)} by default"


def _section_default(config: Document, section: str, otherwise: bool) -> bool:
    """The default of the model type that a section names."""
    model_type = records.text_field(config, *section.split("."), "model_type")
    for record in records.by_type(model_type):
        for rule in record.loaders.values():
            if rule.rule in ("flag", "top") and not rule.section:
                return rule.absent
    return otherwise


def _boolean(config: Document, section: str, name: str) -> Iterator[Fact[bool]]:
    path = (*section.split("."), name) if section else (name,)
    try:
        yield config.boolean(*path)
    except FactMissing:
        return


def _word(value: bool) -> str:
    return "true" if value else "false"
