"""What a model expects of a batch: which ids have rows, which tokens pad and end a text, what labels are."""

from __future__ import annotations

import enum
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from tokaudit.contract import is_placeholder
from tokaudit.contract.data import IGNORED
from tokaudit.errors import UsageError
from tokaudit.training.tables import LiveTables, Named, find_tables
from tokaudit.training.unwrapping import core, text_config, unwrapped

# Tables of positions and segments whose rows the ids of a batch select as they are.
_SIDE_TABLES = {
    "wpe": "position_ids",
    "position_embeddings": "position_ids",
    "token_type_embeddings": "token_type_ids",
}
_CLASSES = re.compile(r"Classification|QuestionAnswering|MultipleChoice|NextSentence|ForPreTraining$")
_DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
_MOVES = re.compile(r"\bself\.loss_function\(|\bshift|\[\.\.\., 1:")


class LabelKind(enum.Enum):
    """What labels are, and where they stand."""

    NEXT = "beside the inputs; the model moves them by one"
    SAME = "beside the inputs, as in masked language models"
    DECODED = "beside the inputs of the decoder"
    CLASSES = "classes, and no token ids"
    UNKNOWN = "token ids where they have the shape of the inputs"


@dataclass(frozen=True, slots=True)
class Bound:
    """Ids are below ``rows``; ``by`` says what table that is."""

    rows: int
    by: str


@dataclass(frozen=True)
class Expectations:
    """What a batch is measured against.

    ``bounds`` are by the name of a tensor of the batch. ``placeholders`` are ids that the model class
    replaces before the lookup. ``moves_labels`` is False for a module that nothing shows to move its labels,
    ``attends_all`` True for one that reads padding wherever no mask is given, ``known`` for a model of
    transformers. ``tokenizer`` gives the texts of ids.
    """

    bounds: Mapping[str, Bound]
    pad_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    ignore_id: int = IGNORED
    labels: LabelKind = LabelKind.UNKNOWN
    moves_labels: bool = True
    attends_all: bool = False
    known: bool = False
    placeholders: tuple[int, ...] = ()
    tokenizer: object = field(default=None, repr=False)

    def content(self, id: int) -> str | None:
        """The text of an id's token, where the tokenizer tells it."""
        for name in ("convert_ids_to_tokens", "id_to_token"):
            ask = getattr(self.tokenizer, name, None)
            if callable(ask) and 0 <= id < _length(self.tokenizer):
                found = ask(id)
                return found if isinstance(found, str) else None
        return None


def expectations(
    model_or_rows: nn.Module | int,
    *,
    pad_id: int | None = None,
    eos_id: int | Iterable[int] | None = None,
    tokenizer: object = None,
    ignore_id: int = IGNORED,
    input: Named = None,
    output: Named = None,
) -> Expectations:
    """What the model, or a number of rows alone, expects.

    Tokens that are not given come from the tokenizer, and then from the model's configuration. Raises
    UsageError for a model whose tables are not found (``input`` and ``output`` name them), for a number of
    rows below 1, and for a tokenizer that is a path.
    """
    if isinstance(tokenizer, str | os.PathLike):
        raise UsageError(
            f"expected a tokenizer, found {type(tokenizer).__name__}",
            hint="load it: AutoTokenizer.from_pretrained(...)",
        )
    if isinstance(model_or_rows, nn.Module):
        return _of_model(model_or_rows, pad_id, eos_id, tokenizer, ignore_id, input, output)
    if type(model_or_rows) is not int or model_or_rows < 1:
        raise UsageError(
            f"expected a model or its number of rows, found {model_or_rows!r}", hint="give the live module"
        )
    bound = Bound(model_or_rows, "the rows that were given")
    return Expectations(
        bounds=dict.fromkeys(("input_ids", "decoder_input_ids", "labels"), bound),
        pad_id=_first(pad_id, getattr(tokenizer, "pad_token_id", None)),
        eos_ids=_all(eos_id, getattr(tokenizer, "eos_token_id", None)),
        ignore_id=ignore_id,
        tokenizer=tokenizer,
    )


def _of_model(
    model: nn.Module,
    pad_id: int | None,
    eos_id: int | Iterable[int] | None,
    tokenizer: object,
    ignore_id: int,
    input: Named,
    output: Named,
) -> Expectations:
    bare = unwrapped(model)
    config, text = getattr(bare, "config", None), text_config(bare)
    kind = _kind(bare, config)
    return Expectations(
        bounds=_bounds(bare, find_tables(model, input=input, output=output), kind, config),
        pad_id=_first(pad_id, getattr(tokenizer, "pad_token_id", None), getattr(text, "pad_token_id", None)),
        eos_ids=_all(eos_id, getattr(tokenizer, "eos_token_id", None), getattr(text, "eos_token_id", None)),
        ignore_id=ignore_id,
        labels=kind,
        moves_labels=kind is LabelKind.NEXT or (config is None and _moves_labels(bare)),
        attends_all=kind in (LabelKind.DECODED, LabelKind.SAME),
        known=config is not None,
        placeholders=_placeholders(config),
        tokenizer=tokenizer,
    )


def _first(*ids: object) -> int | None:
    """The first that is a token id; configurations write -1 for none."""
    return next((id for id in ids if type(id) is int and id >= 0), None)


def _all(*stated: object) -> tuple[int, ...]:
    """The ids of the first statement that has any."""
    for ids in stated:
        listed = (ids,) if isinstance(ids, int) else tuple(ids) if isinstance(ids, Iterable) else ()
        if listed:
            return listed
    return ()


def _length(tokenizer: object) -> int:
    count = getattr(tokenizer, "get_vocab_size", None)
    return int(count()) if callable(count) else len(tokenizer)  # type: ignore[arg-type]


def _kind(model: nn.Module, config: object) -> LabelKind:
    name = type(model).__name__
    if config is None:
        return LabelKind.UNKNOWN
    if _CLASSES.search(name):
        return LabelKind.CLASSES
    if getattr(config, "is_encoder_decoder", False):
        return LabelKind.DECODED
    if "MaskedLM" in name:
        return LabelKind.SAME
    return LabelKind.NEXT if _moves_labels(model) else LabelKind.UNKNOWN


def _moves_labels(model: nn.Module) -> bool:
    """Whether the class compares logits with the next label, as its source shows.

    Not every causal model of transformers does: XLNet and the decoders of Bart, Marian and TrOCR take labels
    that were moved.
    """
    try:
        source = inspect.getsource(type(model).forward)
    except (OSError, TypeError):
        return False
    return bool(_MOVES.search(_DOCSTRING.sub("", source)))


def _bounds(model: nn.Module, tables: LiveTables, kind: LabelKind, config: object) -> dict[str, Bound]:
    inputs = Bound(tables.rows, f"the input embeddings ({tables.input_name})")
    found = {
        **_side_bounds(model, tables.input_module),
        "input_ids": inputs,
        "decoder_input_ids": (_decoder_bound(model) if kind is LabelKind.DECODED else None) or inputs,
        "labels": _output_bound(tables) or inputs,
    }
    if kind is LabelKind.CLASSES:
        classes = getattr(config, "num_labels", None)
        del found["labels"]
        if type(classes) is int and classes > 1 and type(model).__name__.endswith("Classification"):
            found["labels"] = Bound(classes, "num_labels of the configuration")
    return found


def _output_bound(tables: LiveTables) -> Bound | None:
    if tables.output_module is None:
        return None
    rows = getattr(core(tables.output_module), "out_features", None)
    by = f"the output embeddings ({tables.output_name})"
    return Bound(rows, by) if isinstance(rows, int) else None


def _decoder_bound(model: nn.Module) -> Bound | None:
    """Of a decoder with a table of its own."""
    get_decoder = getattr(model, "get_decoder", None)
    decoder = get_decoder() if callable(get_decoder) else None
    get_table = getattr(decoder, "get_input_embeddings", None)
    table = get_table() if callable(get_table) else None
    rows = getattr(core(table), "num_embeddings", None) if isinstance(table, nn.Module) else None
    return Bound(rows, "the decoder's input embeddings") if isinstance(rows, int) else None


def _side_bounds(model: nn.Module, table: nn.Module) -> dict[str, Bound]:
    """Of the tables of positions and segments that stand beside the input embeddings."""
    for module in model.modules():
        beside = dict(module.named_children())
        if any(child is table for child in beside.values()):
            return {
                ids: Bound(beside[name].num_embeddings, f"the table of {name}")  # type: ignore[arg-type]
                for name, ids in _SIDE_TABLES.items()
                if isinstance(beside.get(name), nn.Embedding)
            }
    return {}


def _placeholders(config: object) -> tuple[int, ...]:
    """Ids that stand for images, audio or video."""
    fields = {} if config is None else vars(config)
    stated = {name: id for name, id in fields.items() if type(id) is int and _names_an_id(name)}
    return tuple(sorted({id for name, id in stated.items() if is_placeholder(name)}))


def _names_an_id(field: str) -> bool:
    return field.endswith(("_token_id", "_token_index"))
