"""config.json and generation_config.json: shape of the fields, and every field that names token ids."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokaudit.contract import Document, IdField, Role
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.text import json_value

# Parts of a composite configuration that describe the text model, whose ids are the tokenizer's.
TEXT_SECTIONS = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("decoder",),
    ("generator",),
    ("text_encoder",),
    ("thinker_config",),
    ("thinker_config", "text_config"),
    ("vlm_config", "text_config"),
)

# Ids of another vocabulary than the tokenizer's: audio codes, a unit vocoder, labels of a classifier.
_FOREIGN = re.compile(r"^(t2u|codebook|codec|tts_codec|vocoder|audio_latent|speech_unit|insert_layer|blank)_")
_ID_NAME = re.compile(r"_token_(id|ids|index)$")
_OBJECTS = frozenset(path[0] for path in TEXT_SECTIONS) - {"text_encoder", "generator"}
_ID_LISTS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_decoder_ids")


def malformed_fields(config: Document) -> Iterator[Unreadable]:
    """Fields of config.json whose JSON type no loader can use; what depends on them cannot be decided."""
    for section in (config, *(part for _, part in _parts(config))):
        for key, value in section.data.items():
            problem = _problem(key, value)
            if problem:
                yield _malformed(section.at.child(key), problem)


def unstated_size(config: Document) -> Iterator[Unreadable]:
    """A ``vocab_size`` of null, where no part has another; classes without a table of tokens state it so."""
    if "vocab_size" in config.data and not config.has("vocab_size") and not any(_parts(config)):
        yield _malformed(config.at.child("vocab_size"), "expected a number of rows, found null")


def _malformed(at: Location, problem: str) -> Unreadable:
    hint = "correct the field in config.json"
    return Unreadable("config-type", at.file, f"{at.pointer}: {problem}", hint=hint)


def _problem(key: str, value: object) -> str:
    if key == "vocab_size" and value is not None and (type(value) is not int or value < 0):
        return f"expected a number of rows, found {json_value(value)}"
    if key == "model_type" and not isinstance(value, str):
        return f"expected a text, found {json_value(value)}"
    if key in ("tie_word_embeddings", "tie_encoder_decoder") and not isinstance(value, (bool, type(None))):
        return f"expected true or false, found {json_value(value)} (loaders read any text as true)"
    if key in ("torch_dtype", "dtype") and not isinstance(value, (str, type(None), dict)):
        return f"expected a dtype's name, found {json_value(value)}"
    if key == "architectures" and not isinstance(value, (list, type(None))):
        return f"expected a list of class names, found {json_value(value)}"
    if key in _OBJECTS and not isinstance(value, (dict, type(None))):
        return f"expected an object, found {json_value(value)}"
    return ""


def _parts(config: Document) -> Iterator[tuple[str, Document]]:
    """The parts for the text model, each with its path: "thinker_config.text_config"."""
    for path in TEXT_SECTIONS:
        try:
            yield ".".join(path), config.section(*path)
        except FactMissing:
            continue


def id_fields(document: Document, *, generation: bool) -> Iterator[IdField]:
    """Every field that names token ids: of the top, and (config.json) of the parts for the text model."""
    yield from _fields_of(document, "", generation)
    if not generation:
        for path, part in _parts(document):
            yield from _fields_of(part, path, generation)


def _fields_of(document: Document, section: str, generation: bool) -> Iterator[IdField]:
    for name, value in document.data.items():
        # Private fields (Idefics 3 saves `_pad_token_id`) are what a class keeps for itself: no loader asks.
        if name.startswith("_") or _FOREIGN.match(name):
            continue
        if not (_ID_NAME.search(name) or name in _ID_LISTS):
            continue
        ids, malformed = _ids(name, value)
        yield IdField(
            name=name,
            role=_role(name),
            ids=ids,
            at=document.at.child(name),
            generation=generation,
            section=section,
            malformed=malformed,
            is_list=isinstance(value, list),
            null=value is None,
        )


def _role(name: str) -> Role | None:
    return next((role for role in Role if name == f"{role.value}_token_id"), None)


def _ids(name: str, value: object) -> tuple[tuple[int, ...], str]:
    """The ids in a field's value, and what in it is no id."""
    if value is None:
        return (), ""
    if name == "forced_decoder_ids" and isinstance(value, list):
        value = [pair[1] for pair in value if isinstance(pair, list) and len(pair) == 2]
        return _ids("", [id for id in value if id is not None])
    if name == "bad_words_ids" and isinstance(value, list):
        value = [id for word in value for id in (word if isinstance(word, list) else [word])]
    members = value if isinstance(value, list) else [value]
    ids = tuple(id for id in members if type(id) is int)
    wrong = next((id for id in members if type(id) is not int), None)
    if len(ids) == len(members):
        return ids, ""
    return ids, f"{json_value(wrong)} is no token id"


def default_field(name: str, section: str, ids: tuple[int, ...], at: Location, *, pads: bool) -> IdField:
    """The field that a configuration class fills in where the file is silent.

    ``pads`` says that the class makes it the padding index of its input table.
    """
    return IdField(
        name, _role(name), ids, at, section=section, is_list=len(ids) > 1, by_default=True, padding_index=pads
    )
