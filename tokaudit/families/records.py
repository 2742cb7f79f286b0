"""The family data: what is known of one architecture's tables, and how a configuration finds its record.

data/families.jsonl holds one class a line and is never parsed as a whole: its bytes are searched for the
class or the model type, and only the lines that match are decoded. tools/make_families.py writes it from
measurements of every class of transformers; families whose code lies beside their weights stand there as
data. A line holds, with what is empty left out:

    class, type      a name in `architectures`, and the `model_type` ("" for any)
    like             the class whose record this one shares; nothing else follows
    if               config fields that must have these values for the line to count
    loaders          per generation of loaders, the newest first, how it reads the tie flags
    generates        the class has output embeddings and produces text with them
    input, output, bias, others, extra_inputs
                     its tables; several entries, or `{i}` in a name, are several tables
    defaults, ids    what the configuration class fills in for size fields, and for token ids
    pads             `pad_token_id` becomes the padding index of the input table
    borrows          whose input table the class uses where the checkpoint holds none
    rows_of          a tensor with one value per token id that says which row each one has

A table is its names on disk in order of preference, `rows` and `width` as expressions over config fields (a
list of rows is a choice), the `axis` that runs over token ids, the number of dimensions `ndim` where it is
not 2, the `group` of ids it is indexed by where they are not the input table's, `aliases` under which the
input table may be stored instead, `tied_to` for the table an output shares storage with where that is not
the input table, and `copy` for one that is the input table once loaded.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokaudit.contract import Document
from tokaudit.errors import FactMissing

# Classes that produce text, by name, for those that have no record of their own.
GENERATES = re.compile(r"For(CausalLM|ConditionalGeneration|Seq2SeqLM)|LMHead|LanguageModelHead")

# Classes that work on images, sounds or numbers, by name: a language model's relative without its tables.
OTHER_TASKS = re.compile(
    r"For(Image|Video|Audio|Object|Semantic|Instance|Universal|Depth|Keypoint|Pose|Masked(Image|Video)|CTC|XVector"
    r"|Time|Prediction|Regression|ZeroShot|Normal|Spoken|SpeechToSpeech)"
    r"|(Vision|Image|Audio|Speech|Video|Acoustic)(Model|Encoder|Transformer)(WithProjection)?$|Backbone$"
)

_EAGLE = re.compile(r"eagle", re.IGNORECASE)
_EAGLE_RECORD = "LlamaForCausalLMEagle3"


@dataclass(frozen=True, slots=True)
class TableRecord:
    names: tuple[str, ...]
    rows: tuple[str, ...]
    width: str = ""
    axis: int = 0
    ndim: int = 2
    group: str = ""
    aliases: tuple[str, ...] = ()
    tied_to: tuple[str, ...] = ()
    copy: bool = False


@dataclass(frozen=True, slots=True)
class TieRule:
    """How one generation of loaders reads the tie flags of a class.

    ``rule`` is "flag" or "top" (the top of the config), "sub" (its ``section``), "or" (either), "always" or
    "never". ``absent`` is what counts where no flag is stated, ``top_absent`` what a silent top counts for
    in "or". ``names`` are the fields that are read, the first stated one counts.
    """

    rule: str
    absent: bool = False
    top_absent: bool = False
    section: str = ""
    names: tuple[str, ...] = ("tie_word_embeddings",)


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    type: str
    loaders: Mapping[str, TieRule]
    generates: bool
    input: tuple[TableRecord, ...]
    output: tuple[TableRecord, ...]
    bias: tuple[TableRecord, ...]
    others: tuple[TableRecord, ...]
    extra_inputs: tuple[TableRecord, ...]
    defaults: Mapping[str, int]
    ids: Mapping[str, int | list[int]]
    pads: bool
    borrows: str
    rows_of: str
    condition: Mapping[str, bool]

    @property
    def section(self) -> str:
        """The part of a composite config that sizes the input table: "text_config", "" for a plain one."""
        return section_of(self.input)

    @property
    def output_section(self) -> str:
        """The part that sizes the output table; that of the input table where there is none."""
        return section_of(self.output or self.input)

    @property
    def is_pair(self) -> bool:
        """Whether an encoder and a decoder of any two classes form the model."""
        return self.output_section != self.section


@dataclass(frozen=True, slots=True)
class Match:
    """A record, and whether it is known to hold for the class.

    It is where the class has it, belongs to the same family (a `*ForSequenceClassification` and its base),
    or is the one that the model type stands for; otherwise only the model type is the same.
    """

    record: Record
    known: bool


def section_of(tables: tuple[TableRecord, ...]) -> str:
    """The config section that the first table's rows come from."""
    fields = re.findall(r"[A-Za-z_][\w.]*", tables[0].rows[0]) if tables and tables[0].rows else []
    return fields[0].rpartition(".")[0] if fields else ""


@cache
def by_class(name: str) -> tuple[Record, ...]:
    """The records of a class, the most usual model type first."""
    found = []
    for line in _lines('{"class":' + json.dumps(name, ensure_ascii=False) + ","):
        if "like" in line:
            found += [record for record in by_class(line["like"]) if not record.condition]
        else:
            found.append(_record(line))
    return tuple(found)


@cache
def by_type(model_type: str) -> tuple[Record, ...]:
    """The records of every class of a model type; those of its generating classes first."""
    if not model_type:
        return ()
    lines = _lines(',"type":' + json.dumps(model_type, ensure_ascii=False) + ",")
    found = [record for line in lines for record in _records_of(line)]
    return tuple(sorted(found, key=lambda record: (bool(record.condition), not record.generates)))


def _records_of(line: Mapping[str, Any]) -> tuple[Record, ...]:
    return by_class(line["like"])[:1] if "like" in line else (_record(line),)


def find(config: Document, stored: Container[str]) -> Match | None:
    """The record for a configuration: by class and model type, by a class like it, by model type alone.

    ``stored`` are the names of the checkpoint's tensors; they decide which class is meant where a
    configuration names none.
    """
    name, model_type = class_name(config), text_field(config, "model_type")
    own = [record for record in by_class(name) if _holds(config, record.condition)]
    if own:
        return Match(next((record for record in own if record.type == model_type), own[0]), known=True)
    if _EAGLE.search(name):
        return Match(by_class(_EAGLE_RECORD)[0], known=True)
    related = [record for record in by_type(model_type) if _holds(config, record.condition)]
    chosen = _relative(name, related or list(by_class(_stem(name) + "Model")), stored)
    return None if chosen is None else Match(chosen, known=not name or _stem(name) == _stem(chosen.name))


def _stem(name: str) -> str:
    """The family's part of a class name: "Llama" of LlamaForSequenceClassification."""
    return re.sub(r"(For[A-Z]\w*|LMHeadModel|WithProjection|(Text)?Model\w*)$", "", name)


def _relative(name: str, related: list[Record], stored: Container[str]) -> Record | None:
    """The record that a class without its own shares: of a language model, or of the base."""
    with_output = [record for record in related if record.output]
    bases = [record for record in related if record.input and not record.output]
    stores_output = any(name in stored for record in with_output for name in record.output[0].names)
    generates = bool(GENERATES.search(name)) if name else stores_output
    ordered = with_output + bases if generates else bases + with_output
    return next(iter(ordered), None)


def class_name(config: Document) -> str:
    """The first class that the configuration names; "" where it names none."""
    names = config.data.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def text_field(config: Document, *path: str) -> str:
    try:
        return config.string(*path).value
    except FactMissing:
        return ""


def _holds(config: Document, condition: Mapping[str, bool]) -> bool:
    return all(config.data.get(name) is value for name, value in condition.items())


@cache
def _data() -> bytes:
    data = pkgutil.get_data("tokaudit.families", "data/families.jsonl")
    assert data is not None
    return data


def _lines(marker: str) -> Iterator[dict[str, Any]]:
    """Decode the lines that hold the marker."""
    data, wanted = _data(), marker.encode()
    at = data.find(wanted)
    while at >= 0:
        start, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        yield json.loads(data[start:stop])
        at = data.find(wanted, stop)


def _record(line: Mapping[str, Any]) -> Record:
    return Record(
        name=line["class"],
        type=line["type"],
        loaders={name: _tie_rule(rule) for name, rule in line["loaders"].items()},
        generates=line.get("generates", False),
        input=_tables(line, "input"),
        output=_tables(line, "output"),
        bias=_tables(line, "bias"),
        others=_tables(line, "others"),
        extra_inputs=_tables(line, "extra_inputs"),
        defaults=line.get("defaults", {}),
        ids=line.get("ids", {}),
        pads=line.get("pads", False),
        borrows=line.get("borrows", ""),
        rows_of=line.get("rows_of", ""),
        condition=line.get("if", {}),
    )


def _tables(line: Mapping[str, Any], kind: str) -> tuple[TableRecord, ...]:
    return tuple(_table(entry) for entry in line.get(kind, ()))


def _table(entry: Mapping[str, Any]) -> TableRecord:
    rows = entry.get("rows", "")
    return TableRecord(
        names=tuple(entry["names"]),
        rows=tuple(rows) if isinstance(rows, list) else (rows,) if rows else (),
        width=entry.get("width", ""),
        axis=entry.get("axis", 0),
        ndim=entry.get("ndim", 2),
        group=entry.get("group", ""),
        aliases=tuple(entry.get("aliases", ())),
        tied_to=tuple(entry.get("tied_to", ())),
        copy=entry.get("copy", False),
    )


def _tie_rule(rule: Mapping[str, Any]) -> TieRule:
    return TieRule(
        rule=rule["rule"],
        absent=rule.get("absent", False),
        top_absent=rule.get("top_absent", False),
        section=rule.get("section", ""),
        names=tuple(rule.get("names", ("tie_word_embeddings",))),
    )
