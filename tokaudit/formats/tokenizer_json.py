"""tokenizer.json, the file of the Hugging Face `tokenizers` library, read by tokaudit itself.

Source of the format: the library's own serialisation (``tokenizers/src/tokenizer/serialization.rs``).
Nothing in the file is executed; what the library makes of it is asked in the isolated process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokaudit.contract import (
    AddedToken,
    Document,
    Emission,
    Fact,
    Pipeline,
    TokenTable,
    Witness,
)
from tokaudit.findings import Location
from tokaudit.text import json_kind, json_value, shown

LARGEST_ID = 2**32 - 1  # the library keeps ids in 32 bits


@dataclass(frozen=True)
class TokenizerFile:
    """What tokenizer.json states. ``problems`` are parts that no loader can accept, the first cause first."""

    base: TokenTable | None
    added: TokenTable
    pipeline: Pipeline
    emissions: tuple[Emission, ...]
    problems: tuple[Fact[str], ...]


def read(document: Document) -> TokenizerFile:
    """Take the facts out of a parsed tokenizer.json; damage is collected, never raised."""
    problems: list[Fact[str]] = []
    model_at = document.at.child("model")
    model = document.data.get("model")
    if not isinstance(model, dict):
        problems.append(Fact(f"the model is {json_kind(model)} and not an object", model_at))
        model = {}
    base = _base_table(model, model_at, problems)
    added = _added_table(document, problems)
    pipeline = Pipeline(document, _model_type(model))
    return TokenizerFile(base, added, pipeline, tuple(_emissions(pipeline)), tuple(problems))


def _model_type(model: dict[str, object]) -> str:
    """The model's type; files of before 2020 leave it out, their fields tell."""
    stated = model.get("type")
    if isinstance(stated, str):
        return stated
    if "merges" in model:
        return "BPE"
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _base_table(model: dict[str, object], at: Location, problems: list[Fact[str]]) -> TokenTable | None:
    vocab_at = at.child("vocab")
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        # One C-speed pass over the types; the slow walk runs only where something is wrong.
        if {type(id) for id in vocab.values()} <= {int} and (
            not vocab or (min(vocab.values()) >= 0 and max(vocab.values()) <= LARGEST_ID)
        ):
            return TokenTable(Witness.BASE, vocab_at, vocab)
        good = {content: id for content, id in vocab.items() if is_id(id)}
        bad = next(content for content, id in vocab.items() if not is_id(id))
        words = f"the id of {shown(bad)} is {json_value(vocab[bad])}, not an integer from 0 to {LARGEST_ID}"
        problems.append(Fact(words, vocab_at.child(bad)))
        return TokenTable(Witness.BASE, vocab_at, good)
    if isinstance(vocab, list):
        pieces: dict[str, int] = {}
        for index, entry in enumerate(vocab):
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
                problems.append(Fact("an entry is not a [piece, score] pair", vocab_at.child(index)))
                return None
            pieces[entry[0]] = index
        return TokenTable(Witness.BASE, vocab_at, pieces, style="index")
    problems.append(Fact(f"the vocabulary is {json_kind(vocab)}", vocab_at))
    return None


def is_id(value: object) -> bool:
    """Whether a JSON value can be a token id for the library (an unsigned 32-bit integer, no bool)."""
    return type(value) is int and 0 <= value <= LARGEST_ID


def _added_table(document: Document, problems: list[Fact[str]]) -> TokenTable:
    at = document.at.child("added_tokens")
    stated = document.data.get("added_tokens")
    entries: list[AddedToken] = []
    if isinstance(stated, list):
        for index, entry in enumerate(stated):
            where = at.child(index)
            if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
                problems.append(Fact("an added token is not an object with a content", where))
            elif not is_id(entry.get("id")):
                words = f"the id of {shown(entry['content'])} is {json_value(entry.get('id'))}, not an id"
                problems.append(Fact(words, where.child("id")))
            else:
                entries.append(added_token(entry["id"], entry, where))
    elif stated is not None:
        problems.append(Fact(f"added_tokens is {json_kind(stated)} and not a list", at))
    return entry_table(Witness.ADDED, at, entries, style="index")


def entry_table(witness: Witness, at: Location, entries: Iterable[AddedToken], *, style: str) -> TokenTable:
    """A table of entries that may repeat a content: its first id counts."""
    kept = tuple(entries)
    ids: dict[str, int] = {}
    for entry in kept:
        ids.setdefault(entry.content, entry.id)
    return TokenTable(witness, at, ids, style=style, entries=kept)


def added_token(id: int, entry: dict[str, object], at: Location) -> AddedToken:
    """An added token from its JSON object; absent flags have the library's defaults."""

    def flag(name: str, default: bool) -> bool:
        value = entry.get(name, default)
        return value if isinstance(value, bool) else default

    special = flag("special", False)
    return AddedToken(
        id=id,
        content=str(entry["content"]),
        at=at,
        special=special,
        lstrip=flag("lstrip", False),
        rstrip=flag("rstrip", False),
        normalized=flag("normalized", not special),
        single_word=flag("single_word", False),
    )


def merge_problem(pipeline: Pipeline, base: TokenTable) -> Fact[str] | None:
    """The first merge that makes the library refuse the file; asked only when it did.

    Such a merge is no pair, or has a part or a result that the vocabulary lacks.
    """
    at = pipeline.model.at.child("merges")
    stated = pipeline.model.data.get("merges")
    if stated is None:
        return None
    if not isinstance(stated, list):
        return Fact(f"merges is {json_kind(stated)} and not a list", at)
    prefix = pipeline.model.data.get("continuing_subword_prefix")
    skip = len(prefix) if isinstance(prefix, str) else 0
    for index, merge in enumerate(stated):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) for part in parts)):
            return Fact(f"the merge {json_value(merge)} is not a pair", at.child(index))
        left, right = parts
        lost = next((part for part in (left, right, left + right[skip:]) if part not in base.ids), None)
        if lost is not None:
            needs = f"the merge of {shown(left)} and {shown(right)} needs {shown(lost)}"
            return Fact(f"{needs}, which the vocabulary lacks", at.child(index))
    return None


def _emissions(pipeline: Pipeline) -> Iterator[Emission]:
    """What the post-processor puts around a text: TemplateProcessing, BertProcessing, RobertaProcessing."""
    for stage in pipeline.stages("post_processor"):
        kind = stage.data.get("type")
        if kind == "TemplateProcessing":
            yield from _template_emissions(stage)
        elif kind in ("BertProcessing", "RobertaProcessing"):
            for name, place in (("cls", "start"), ("sep", "end")):
                pair = stage.data.get(name)
                if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and is_id(pair[1]):
                    yield Emission(pair[0], pair[1], stage.at.child(name), place)


def _template_emissions(stage: Document) -> Iterator[Emission]:
    definitions = stage.data.get("special_tokens")
    if not isinstance(definitions, dict):
        return
    places = _places(stage.data.get("single"))
    for name, place in _places(stage.data.get("pair")).items():
        places.setdefault(name, place)
    for name, definition in definitions.items():
        if not isinstance(definition, dict):
            continue
        ids, tokens = definition.get("ids"), definition.get("tokens")
        if not (isinstance(ids, list) and isinstance(tokens, list)):
            continue
        at = stage.at.child("special_tokens", name)
        for content, id in zip(tokens, ids, strict=False):
            if isinstance(content, str) and is_id(id):
                yield Emission(content, id, at, places.get(name, "unused"))


def _places(template: object) -> dict[str, str]:
    """Where each special piece of a template stands: before the first text, after the last, between."""
    steps = [step for step in template if isinstance(step, dict)] if isinstance(template, list) else []
    texts = [index for index, step in enumerate(steps) if "Sequence" in step]
    found: dict[str, str] = {}
    for index, step in enumerate(steps):
        special = step.get("SpecialToken")
        if not isinstance(special, dict) or not isinstance(special.get("id"), str):
            continue
        found.setdefault(special["id"], _place(index, texts))
    return found


def _place(index: int, texts: list[int]) -> str:
    if not texts or index < texts[0]:
        return "start"
    return "end" if index > texts[-1] else "between"
