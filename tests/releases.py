"""Well-known releases as directories: fixtures/releases.json holds what their files say.

Each entry has `config`, `generation_config`, `tokenizer_config`, the name of a chat template under
fixtures/templates, the shapes of its `tables`, and a `tokenizer`: its `kind`, the size of the `base`
vocabulary, `names` of ids in it, `added` tokens (special), `plain` ones (not special), a format for
`reserved` ones, which fill the ids up to a number, and `post`, what the post-processor puts around a text.
The ids are those of the releases. What is tested is the same with the ordinary tokens in the middle taken
out, so that the vocabulary is small; ids and rows above them move down by a multiple of 64.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from models import FIXTURES, _builder

Release = dict[str, Any]

RELEASES: list[Release] = json.loads((FIXTURES / "releases.json").read_text("utf-8"))
BASE = 1400  # ordinary tokens that are kept, up to 63 more
_LOW = 300  # the tokens that are taken out begin here
_COUNTED = ("token", "vocab", "bad_words", "decoder_ids")
_CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def build_release(release: Release, out: Path) -> Path:
    """Write the release with a small vocabulary."""
    tokenizer = release["tokenizer"]
    small = _Smaller(tokenizer.get("base", 0), tokenizer.get("keep", BASE))
    out.mkdir(parents=True, exist_ok=True)
    added = _added(tokenizer)
    settings = dict(release.get("tokenizer_config") or {})
    if release.get("layout") == "v4":
        settings["added_tokens_decoder"] = {
            str(small.id(token["id"])): {key: value for key, value in token.items() if key != "id"}
            for token in added
        }
    template = release.get("template")
    if template:
        settings["chat_template"] = (FIXTURES / "templates" / f"{template}.jinja").read_text("utf-8")
    files = {
        "config.json": small.config(release["config"]),
        "generation_config.json": small.config(release.get("generation_config")),
        "tokenizer_config.json": settings or None,
    }
    if tokenizer["kind"] == "vocab.json":
        files["vocab.json"] = _contents(tokenizer, small)
        (out / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    elif tokenizer["kind"] == "none":
        (out / "vocabulary.left.out").touch()  # the release has one, in a form that is not made small here
    else:
        files["tokenizer.json"] = _tokenizer(tokenizer, small, added)
    for name, data in files.items():
        if data is not None:
            (out / name).write_text(json.dumps(data, ensure_ascii=False), "utf-8")
    for name, text in (release.get("files") or {}).items():
        (out / name).write_text(small.text(text), "utf-8")
    _weights(out / "model.safetensors", release, small)
    return out


class _Smaller:
    """The numbers of a release whose base vocabulary has ``base`` tokens, moved down."""

    def __init__(self, base: int, keep: int) -> None:
        self.shift = max(base - keep, 0) // 64 * 64
        self.first = base - keep + _LOW

    def id(self, id: int) -> int:
        return id - self.shift if self.shift and id >= self.first else id

    def config(self, data: Any, key: str = "") -> Any:
        if isinstance(data, dict):
            return {name: self.config(value, name) for name, value in data.items()}
        if isinstance(data, list):
            return [self.config(value, key) for value in data]
        counted = type(data) is int and any(word in key for word in _COUNTED)
        return self.id(data) if counted else data

    def text(self, text: str) -> str:
        data = json.loads(text)
        return json.dumps({key: self.id(value) for key, value in data.items()} if data else data)


def _added(tokenizer: Release) -> list[dict[str, Any]]:
    """Every added token by id; ids between the base and the last one are filled with reserved tokens."""
    special = {**tokenizer.get("added", {}), **tokenizer.get("after", {}), **tokenizer.get("more", {})}
    plain = {**tokenizer.get("plain", {}), **tokenizer.get("filler", {})}
    taken = {id: text for text, id in {**plain, **special}.items()}
    last = max([*taken, tokenizer.get("end", 0) - 1, tokenizer.get("unusedto", 0) - 1])
    number = 0
    for wanted, first, end in (
        tokenizer.get("reserved", ["", 0, 0]),
        tokenizer.get("reserved2", ["", 0, 0]),
        ["<|dummy_%d|>", 0, last + 1],
    ):
        number = first
        for id in range(tokenizer.get("base", 0), min(end, last + 1) if not wanted else max(end, 0)):
            if wanted and id not in taken:
                while wanted % number in taken.values():
                    number += 1
                taken[id] = wanted % number
    return [
        {
            "id": id,
            "content": taken[id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": taken[id] not in plain,
        }
        for id in sorted(taken)
    ]


def _contents(tokenizer: Release, small: _Smaller) -> dict[str, int]:
    """The base vocabulary: names at their ids, the alphabet of the kind, and words."""
    names = {small.id(id): text for text, id in tokenizer.get("names", {}).items()}
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,'!?"
    bytes_ = _builder.byte_alphabet()
    alphabet = {
        "sentencepiece": [f"<0x{byte:02X}>" for byte in range(256)] + ["\u2581", *letters],
        "wordpiece": [*letters, *(f"##{letter}" for letter in letters)],
        "unigram": ["\u2581", *letters],
        "clip": [*bytes_, *(f"{byte}</w>" for byte in bytes_)],
    }.get(tokenizer["kind"], bytes_)
    rest = iter([*alphabet, *(f"Zq{number}" for number in range(300_000))])
    free = (text for text in rest if text not in tokenizer.get("names", {}))
    size = small.id(tokenizer["base"])
    return {names[id] if id in names else next(free): id for id in range(size)}


def _tokenizer(tokenizer: Release, small: _Smaller, added: list[dict[str, Any]]) -> dict[str, Any]:
    kind, vocabulary = tokenizer["kind"], _contents(tokenizer, small)
    added = [{**token, "id": small.id(token["id"])} for token in added]
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bpe = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": vocabulary, "merges": [],
    }  # fmt: skip
    normalizer = None
    pre: dict[str, Any] | None = byte_level
    decoder: dict[str, Any] = byte_level
    model: dict[str, Any] = bpe
    unknown = next((text for text in ("<unk>", "[UNK]", "<|unk|>", "<UNK>") if text in vocabulary), None)
    if kind == "sentencepiece":
        gemma = "<bos>" in vocabulary
        space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        prepend = {"type": "Prepend", "prepend": "\u2581"}
        normalizer = space if gemma else {"type": "Sequence", "normalizers": [prepend, space]}
        pre = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        pre = pre if gemma else None
        back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
        strip = [] if gemma else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
        decoder = {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]}
        model = {**bpe, "byte_fallback": True, "fuse_unk": True, "unk_token": unknown}
    elif kind == "unigram":
        pieces = [[text, 0.0 if id < 5 else -float(id % 97)] for text, id in vocabulary.items()]
        model = {
            "type": "Unigram",
            "unk_id": vocabulary[unknown or ""],
            "vocab": pieces,
            "byte_fallback": False,
        }
        pre = decoder = metaspace
    elif kind == "wordpiece":
        model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 100, "vocab": vocabulary}  # fmt: skip
        normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                      "strip_accents": None, "lowercase": True}  # fmt: skip
        pre, decoder = {"type": "BertPreTokenizer"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}
    elif kind == "clip":
        model = {**bpe, "end_of_word_suffix": "</w>", "unk_token": "<|endoftext|>"}
        pre = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _CLIP}, "behavior": "Removed", "invert": True},
            {**byte_level, "add_prefix_space": False},
        ]}  # fmt: skip
        normalizer = {"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]}  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": tokenizer.get("normalizer", normalizer),
        "pre_tokenizer": tokenizer.get("pre_tokenizer", pre),
        "post_processor": _post_processor(tokenizer, small, added),
        "decoder": decoder,
        "model": {**model, **tokenizer.get("model", {})},
    }


def _post_processor(
    tokenizer: Release, small: _Smaller, added: list[dict[str, Any]]
) -> dict[str, Any] | None:
    post = tokenizer.get("post")
    if not post:
        return None
    ids = {token["content"]: token["id"] for token in added}
    ids |= {text: small.id(id) for text, id in tokenizer.get("names", {}).items()}
    steps = [
        {"Sequence" if step == "$A" else "SpecialToken": {"id": step.removeprefix("$"), "type_id": 0}}
        for step in post
    ]
    special = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in post if text != "$A"}
    second = [{"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": steps,
        "pair": [*steps, *second],
        "special_tokens": special,
    }


def _weights(file: Path, release: Release, small: _Smaller) -> None:
    """Tables of the right shapes: zeros that take no space on the disk, a first value where they differ."""
    config = release["config"]
    untied = [config, *(part for part in config.values() if isinstance(part, dict))]
    apart = config["model_type"] != "vision-encoder-decoder" and any(
        part.get("tie_word_embeddings") is False for part in untied
    )
    header: dict[str, Any] = {}
    at, marks = 0, []
    for number, (name, shape) in enumerate(release["tables"].items()):
        counted = [small.id(shape[0]), *(small.id(size) if len(shape) == 2 and shape[0] == 1 else size
                                         for size in shape[1:])]  # fmt: skip
        length = 2
        for size in counted:
            length *= size
        header[name] = {"dtype": "BF16", "shape": counted, "data_offsets": [at, at + length]}
        if apart and number and "layers." not in name and "coder.embed" not in name:
            marks.append(at)
        at += length
    encoded = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(encoded)) + encoded)
        start = out.tell()
        out.truncate(start + at)
        for mark in marks:
            out.seek(start + mark)
            out.write(b"\x80\x3f")
