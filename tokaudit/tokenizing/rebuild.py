"""What transformers 5 makes of a tokenizer.json when the tokenizer class builds the pipeline anew.

A class with a constructor of its own (Llama, Qwen2, GPT-2, BERT, T5 ...) takes only the vocabulary, the
merges and the post-processor from tokenizer.json. Normalizer, pre-tokenizer and the model's options come from
the constructor, and the added tokens from ``added_tokens_decoder`` where tokenizer_config.json has one.
The recipes state what the constructors of transformers 5.24 set (models/*/tokenization_*.py); a test compares
each of them with the class itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tokaudit.contract import AddedToken
from tokaudit.findings import Location
from tokaudit.tokenizing.renumber import effective_ids

Json = Mapping[str, object]

SPACE = "\u2581"  # the mark that SentencePiece writes for a space

_ENGLISH_ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
_QWEN2_WORDS = (
    rf"(?i:{_ENGLISH_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN3_5_WORDS = (
    rf"(?i:{_ENGLISH_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CLIP_WORDS = (
    rf"<\|startoftext\|>|<\|endoftext\|>|{_ENGLISH_ENDINGS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a constructor is told: tokenizer_config.json, the special tokens by field name, and from
    tokenizer.json the charsmap of its first Precompiled normalizer and the pieces of a Unigram vocabulary."""

    config: Json
    special: Mapping[str, str]
    charsmap: str | None
    pieces: tuple[tuple[str, float], ...]

    def flag(self, name: str, default: bool) -> bool:
        value = self.config.get(name)
        return value if isinstance(value, bool) else default

    def text(self, name: str, default: str) -> str:
        return self.special.get(name, default)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts that a constructor sets itself."""

    model: Json
    normalizer: Json | None
    pre_tokenizer: Json | None


Recipe = Callable[[Settings], Pipeline]


def rebuilds(name: str) -> bool:
    """Whether it is known what the class builds."""
    return name in RECIPES


def built_kind(name: str) -> str:
    """The kind of tokenizer that the class is for, in the words of ``Pipeline.kind``; "" if unknown."""
    recipe = RECIPES.get(name)
    if recipe is None:
        return ""
    pipeline = recipe(Settings({}, {}, None, ()))
    kind = str(pipeline.model["type"])
    if kind != "BPE":
        return kind
    steps = _steps(pipeline.pre_tokenizer, "pretokenizers")
    bytes_ = any(step["type"] == "ByteLevel" for step in steps)
    return "byte-level BPE" if bytes_ else "SentencePiece BPE"


def rebuilt(
    document: Json,
    name: str,
    tokenizer_config: Json,
    special: Mapping[str, str],
    added: Iterable[AddedToken],
) -> dict[str, object] | None:
    """The tokenizer.json that the class would write after loading this one.

    ``special`` are the special tokens by field name as loaders read them, ``added`` the added tokens in the
    order in which the class adds them (``added_again``). None where it is not known what the class builds,
    or where the class cannot take the vocabulary.
    """
    model = document.get("model")
    recipe = RECIPES.get(name)
    if recipe is None or not isinstance(model, Mapping):
        return None
    pipeline = recipe(Settings(tokenizer_config, special, _charsmap(document), _pieces(model)))
    vocab = _vocabulary(model.get("vocab"), str(pipeline.model["type"]))
    if vocab is None:
        return None
    own: dict[str, object] = {**pipeline.model, "vocab": vocab}
    if own["type"] == "BPE":
        own["merges"] = model.get("merges", [])
    return {
        **document,
        "added_tokens": _serialised(vocab, added),
        "normalizer": pipeline.normalizer,
        "pre_tokenizer": pipeline.pre_tokenizer,
        "model": own,
    }


def added_again(declared: Iterable[AddedToken], special: Iterable[str]) -> tuple[AddedToken, ...]:
    """Added tokens in the order in which a rebuilding class adds them.

    ``declared`` are those of ``added_tokens_decoder``, or of tokenizer.json where there is none; they go by
    their declared ids, and of two with one id the last counts. ``special`` tokens that are not among them
    follow.
    """
    by_id = {token.id: token for token in declared}
    ordered = {by_id[id].content: by_id[id] for id in sorted(by_id)}
    nowhere = Location("")
    for content in special:
        if content not in ordered:
            ordered[content] = AddedToken(0, content, nowhere, special=True, normalized=False)
    return tuple(ordered.values())


def differences(document: Json, other: Json) -> tuple[str, ...]:
    """The parts in which two documents mean something else: "normalizer", "pre_tokenizer", "model" ..."""
    left, right = _meaning(document), _meaning(other)
    return tuple(part for part in left if left[part] != right[part])


# What the classes build.


def _byte_level(add_prefix_space: bool, *, use_regex: bool = True) -> Json:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _metaspace(scheme: str, *, split: bool = True) -> Json:
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def _sequence_of(kind: str, steps: Iterable[Json]) -> Json:
    return {"type": "Sequence", kind: list(steps)}


def _normalizers(*steps: Json) -> Json:
    return _sequence_of("normalizers", steps)


def _pre_tokenizers(*steps: Json) -> Json:
    return _sequence_of("pretokenizers", steps)


def _split(pattern: Json, behavior: str, *, invert: bool = False) -> Json:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def _replace(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _strip(*, left: bool, right: bool) -> Json:
    return {"type": "Strip", "strip_left": left, "strip_right": right}


def _precompiled(charsmap: str) -> Json:
    return {"type": "Precompiled", "precompiled_charsmap": charsmap}


_NFC: Json = {"type": "NFC"}
_NFKD: Json = {"type": "NFKD"}
_LOWERCASE: Json = {"type": "Lowercase"}
_STRIP_ACCENTS: Json = {"type": "StripAccents"}
_WHITESPACE_SPLIT: Json = {"type": "WhitespaceSplit"}
_ONE_SPACE = _replace({"Regex": " {2,}"}, " ")
_LATEX_QUOTES = (_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"'))


def _bpe(**options: object) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **options,
    }


def _unigram(unk_id: int) -> Json:
    return {"type": "Unigram", "unk_id": unk_id, "byte_fallback": False}


def _byte_level_bpe(add_prefix_space: bool, normalizer: Json | None = None) -> Recipe:
    def recipe(settings: Settings) -> Pipeline:
        return Pipeline(_bpe(), normalizer, _byte_level(settings.flag("add_prefix_space", add_prefix_space)))

    return recipe


def _cohere(settings: Settings) -> Pipeline:
    digits: Json = {"type": "Digits", "individual_digits": True}
    bytes_ = _byte_level(settings.flag("add_prefix_space", False))
    return Pipeline(_bpe(), _NFC, _pre_tokenizers(digits, bytes_))


def _nougat(settings: Settings) -> Pipeline:
    punctuation = r"""[\(\)\[\]\{\}]|([!\"#\$%\&'\*\+,\-\./:;<=>\?\\\^_`\|\~])\1*"""
    return Pipeline(
        _bpe(),
        {"type": "NFKC"},
        _pre_tokenizers(
            _split({"String": "SPL1T-TH1S-Pl3A5E"}, "Removed"),
            {"type": "Digits", "individual_digits": True},
            _split({"String": punctuation}, "Isolated"),
            _split({"String": "\n"}, "Isolated"),
            _byte_level(False),
        ),
    )


def _qwen(words: str) -> Recipe:
    def recipe(settings: Settings) -> Pipeline:
        bytes_ = _byte_level(settings.flag("add_prefix_space", False), use_regex=False)
        return Pipeline(_bpe(), _NFC, _pre_tokenizers(_split({"Regex": words}, "Isolated"), bytes_))

    return recipe


def _clip(settings: Settings) -> Pipeline:
    return Pipeline(
        _bpe(end_of_word_suffix="</w>", unk_token=settings.text("unk_token", "<|endoftext|>")),
        _normalizers(_NFC, _replace({"Regex": r"\s+"}, " "), _LOWERCASE),
        _pre_tokenizers(_split({"Regex": _CLIP_WORDS}, "Removed", invert=True), _byte_level(False)),
    )


def _llama(settings: Settings) -> Pipeline:
    legacy = settings.flag("legacy", False)
    scheme = ("always" if legacy else "first") if settings.flag("add_prefix_space", True) else "never"
    return Pipeline(_bpe(fuse_unk=True, byte_fallback=True), None, _metaspace(scheme, split=False))


def _code_llama(settings: Settings) -> Pipeline:
    model = _bpe(fuse_unk=True, byte_fallback=True, unk_token=settings.text("unk_token", "<unk>"))
    scheme = "first" if settings.flag("add_prefix_space", True) else "never"
    return Pipeline(model, None, _metaspace(scheme, split=False))


def _gemma(settings: Settings) -> Pipeline:
    return Pipeline(
        _bpe(fuse_unk=True, byte_fallback=True, unk_token=settings.text("unk_token", "<unk>")),
        _replace({"String": " "}, SPACE),
        _split({"String": " "}, "MergedWithPrevious"),
    )


def _siglip2(settings: Settings) -> Pipeline:
    gemma = _gemma(settings)
    return Pipeline(
        gemma.model, _normalizers(_LOWERCASE, _replace({"String": " "}, SPACE)), gemma.pre_tokenizer
    )


def _sentencepiece_bpe(settings: Settings) -> Pipeline:
    """NLLB and Reformer."""
    model = _bpe(fuse_unk=True, unk_token=settings.text("unk_token", "<unk>"))
    clean = _normalizers(_precompiled(settings.charsmap), _ONE_SPACE) if settings.charsmap else None
    return Pipeline(model, clean, _metaspace("always"))


def _seamless(settings: Settings) -> Pipeline:
    return Pipeline(
        _bpe(fuse_unk=True, unk_token=settings.text("unk_token", "<unk>")),
        _normalizers(
            _replace({"Regex": r"[\n\r\t]"}, " "),
            {"type": "NFKC"},
            _strip(left=False, right=True),
            _replace({"Regex": f" +{SPACE}"}, SPACE),
            _replace({"Regex": f"^{SPACE}+$"}, ""),
            _replace({"Regex": " {2,}"}, SPACE),
        ),
        _metaspace("first"),
    )


def _bert(
    *, do_lower_case: bool = True, unk_token: str = "[UNK]", clean_text_setting: bool = False
) -> Recipe:
    def recipe(settings: Settings) -> Pipeline:
        accents = settings.config.get("strip_accents")
        return Pipeline(
            {
                "type": "WordPiece",
                "unk_token": settings.text("unk_token", unk_token),
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
            },
            {
                "type": "BertNormalizer",
                "clean_text": settings.flag("clean_text", True) if clean_text_setting else True,
                "handle_chinese_chars": settings.flag("tokenize_chinese_chars", True),
                "strip_accents": accents if isinstance(accents, bool) else None,
                "lowercase": settings.flag("do_lower_case", do_lower_case),
            },
            {"type": "BertPreTokenizer"},
        )

    return recipe


def _word_end_bpe(normalizer: Json) -> Recipe:
    """OpenAI GPT and HerBERT."""

    def recipe(settings: Settings) -> Pipeline:
        model = _bpe(end_of_word_suffix="</w>", unk_token=settings.text("unk_token", "<unk>"))
        return Pipeline(model, normalizer, {"type": "BertPreTokenizer"})

    return recipe


def _bert_normalizer(*, lowercase: bool, strip_accents: bool | None) -> Json:
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": strip_accents,
        "lowercase": lowercase,
    }


def _words_of_pieces(scheme: str) -> Json:
    return _pre_tokenizers(_WHITESPACE_SPLIT, _metaspace(scheme))


def _prefixed(settings: Settings) -> str:
    return "always" if settings.flag("add_prefix_space", True) else "never"


def _t5(unk_id: int) -> Recipe:
    def recipe(settings: Settings) -> Pipeline:
        clean = _precompiled(settings.charsmap) if settings.charsmap else None
        return Pipeline(_unigram(unk_id), clean, _words_of_pieces("always"))

    return recipe


def _udop(settings: Settings) -> Pipeline:
    return Pipeline(
        _unigram(_index(settings, "unk_token", "<unk>", otherwise=2)), None, _words_of_pieces("always")
    )


def _mbart(settings: Settings) -> Pipeline:
    return Pipeline(_unigram(3), None, _words_of_pieces("always"))


def _xlm_roberta(settings: Settings) -> Pipeline:
    clean = _precompiled(settings.charsmap) if settings.charsmap else None
    return Pipeline(_unigram(3), clean, _words_of_pieces(_prefixed(settings)))


def _camembert(settings: Settings) -> Pipeline:
    clean = _precompiled(settings.charsmap) if settings.charsmap else None
    unk_id = _index(settings, "unk_token", "<unk>", otherwise=0)
    return Pipeline(_unigram(unk_id), clean, _words_of_pieces(_prefixed(settings)))


def _barthez(settings: Settings) -> Pipeline:
    clean = _normalizers(_replace({"Regex": r"\s{2,}|[\n\r\t]"}, " "), _NFC, _strip(left=False, right=True))
    return Pipeline(_unigram(3), clean, _metaspace(_prefixed(settings)))


def _deberta_v2(settings: Settings) -> Pipeline:
    clean = [
        *([_LOWERCASE] if settings.flag("do_lower_case", False) else []),
        _replace({"Regex": r"\s{2,}|[\n\r\t]"}, " "),
        _NFC,
        _strip(left=False, right=True),
    ]
    scheme = "always" if settings.flag("add_prefix_space", True) else "first"
    punctuation: list[Json] = [{"type": "Punctuation", "behavior": "Isolated"}]
    return Pipeline(
        _unigram(_scoreless_index(settings, "unk_token", "[UNK]", otherwise=1)),
        _normalizers(*clean),
        _pre_tokenizers(*(punctuation if settings.flag("split_by_punct", False) else []), _metaspace(scheme)),
    )


def _big_bird(settings: Settings) -> Pipeline:
    return Pipeline(
        _unigram(_scoreless_index(settings, "unk_token", "<unk>", otherwise=100)),
        _normalizers(_strip(left=False, right=False), _replace({"Regex": " {2,}"}, SPACE)),
        _metaspace(_prefixed(settings)),
    )


def _quotes_and_accents(settings: Settings, *, keep_accents: bool, do_lower_case: bool) -> list[Json]:
    return [
        *([] if settings.flag("keep_accents", keep_accents) else [_NFKD, _STRIP_ACCENTS]),
        *([_LOWERCASE] if settings.flag("do_lower_case", do_lower_case) else []),
        *([_precompiled(settings.charsmap)] if settings.charsmap else []),
    ]


def _albert(settings: Settings) -> Pipeline:
    clean = _quotes_and_accents(settings, keep_accents=False, do_lower_case=True)
    return Pipeline(_unigram(1), _normalizers(*_LATEX_QUOTES, *clean), _words_of_pieces(_prefixed(settings)))


def _rembert(settings: Settings) -> Pipeline:
    clean = _quotes_and_accents(settings, keep_accents=True, do_lower_case=False)
    return Pipeline(
        _unigram(2), _normalizers(*_LATEX_QUOTES, _ONE_SPACE, *clean), _metaspace(_prefixed(settings))
    )


def _xlnet(settings: Settings) -> Pipeline:
    clean = [
        _NFKD,
        _STRIP_ACCENTS,
        *([_LOWERCASE] if settings.flag("do_lower_case", False) else []),
        *([_precompiled(settings.charsmap)] if settings.charsmap else []),
    ]
    return Pipeline(_unigram(0), _normalizers(*_LATEX_QUOTES, *clean), _words_of_pieces("always"))


def _pegasus(settings: Settings) -> Pipeline:
    clean = _precompiled(settings.charsmap) if settings.charsmap else _replace({"Regex": r"\n"}, " ")
    unk_id = _scoreless_index(settings, "unk_token", "<unk>", otherwise=-1)
    return Pipeline(_unigram(unk_id), _normalizers(clean, _ONE_SPACE), _metaspace("always"))


def _xglm(settings: Settings) -> Pipeline:
    clean = [*([_precompiled(settings.charsmap)] if settings.charsmap else []), _ONE_SPACE]
    return Pipeline(_unigram(3), _normalizers(*clean), _metaspace(_prefixed(settings)))


def _layout_xlm(settings: Settings) -> Pipeline:
    clean = _normalizers(_strip(left=False, right=True), _replace({"Regex": " {2,}"}, SPACE))
    return Pipeline(_unigram(3), clean, _metaspace(_prefixed(settings)))


def _index(settings: Settings, field: str, default: str, *, otherwise: int) -> int:
    wanted = settings.text(field, default)
    return next((index for index, (piece, _) in enumerate(settings.pieces) if piece == wanted), otherwise)


def _scoreless_index(settings: Settings, field: str, default: str, *, otherwise: int) -> int:
    """The place of a piece whose score is exactly 0, as some constructors look for it."""
    wanted = (settings.text(field, default), 0.0)
    return settings.pieces.index(wanted) if wanted in settings.pieces else otherwise


RECIPES: Mapping[str, Recipe] = {
    "AlbertTokenizer": _albert,
    "BarthezTokenizer": _barthez,
    "BertTokenizer": _bert(),
    "BigBirdTokenizer": _big_bird,
    "BlenderbotTokenizer": _byte_level_bpe(add_prefix_space=True),
    "CLIPTokenizer": _clip,
    "CamembertTokenizer": _camembert,
    "CodeGenTokenizer": _byte_level_bpe(add_prefix_space=False),
    "CodeLlamaTokenizer": _code_llama,
    "CohereTokenizer": _cohere,
    "DebertaTokenizer": _byte_level_bpe(add_prefix_space=False),
    "DebertaV2Tokenizer": _deberta_v2,
    "DistilBertTokenizer": _bert(),
    "FunnelTokenizer": _bert(unk_token="<unk>", clean_text_setting=True),
    "GPT2Tokenizer": _byte_level_bpe(add_prefix_space=False),
    "GPTNeoXTokenizer": _byte_level_bpe(add_prefix_space=False, normalizer=_NFC),
    "GemmaTokenizer": _gemma,
    "HerbertTokenizer": _word_end_bpe(_bert_normalizer(lowercase=False, strip_accents=False)),
    "LasrTokenizer": _t5(unk_id=3),
    "LayoutLMv2Tokenizer": _bert(),
    "LayoutLMv3Tokenizer": _byte_level_bpe(add_prefix_space=True),
    "LayoutXLMTokenizer": _layout_xlm,
    "LlamaTokenizer": _llama,
    "MBartTokenizer": _mbart,
    "MPNetTokenizer": _bert(),
    "NllbTokenizer": _sentencepiece_bpe,
    "NougatTokenizer": _nougat,
    "OpenAIGPTTokenizer": _word_end_bpe(_bert_normalizer(lowercase=True, strip_accents=None)),
    "PegasusTokenizer": _pegasus,
    "Qwen2Tokenizer": _qwen(_QWEN2_WORDS),
    "Qwen3_5Tokenizer": _qwen(_QWEN3_5_WORDS),
    "ReformerTokenizer": _sentencepiece_bpe,
    "RemBertTokenizer": _rembert,
    "RobertaTokenizer": _byte_level_bpe(add_prefix_space=False),
    "SeamlessM4TTokenizer": _seamless,
    "Siglip2Tokenizer": _siglip2,
    "SplinterTokenizer": _bert(),
    "T5Tokenizer": _t5(unk_id=2),
    "UdopTokenizer": _udop,
    "VideoPrismTokenizer": _t5(unk_id=2),
    "WhisperTokenizer": _byte_level_bpe(add_prefix_space=False),
    "XGLMTokenizer": _xglm,
    "XLMRobertaTokenizer": _xlm_roberta,
    "XLNetTokenizer": _xlnet,
}


# Reading tokenizer.json.


def _steps(stage: object, members: str) -> list[dict[str, object]]:
    """The steps of a stage, sequences unfolded."""
    if not isinstance(stage, Mapping):
        return []
    inner = stage.get(members)
    if stage.get("type") == "Sequence" and isinstance(inner, list):
        return [step for part in inner for step in _steps(part, members)]
    return [dict(stage)]


def _charsmap(document: Json) -> str | None:
    for step in _steps(document.get("normalizer"), "normalizers"):
        charsmap = step.get("precompiled_charsmap")
        if step.get("type") == "Precompiled" and isinstance(charsmap, str):
            return charsmap
    return None


def _pieces(model: Json) -> tuple[tuple[str, float], ...]:
    vocab = model.get("vocab")
    if not isinstance(vocab, list):
        return ()
    return tuple((entry[0], entry[1]) for entry in vocab if isinstance(entry, list) and len(entry) == 2)


def _vocabulary(vocab: object, kind: str) -> object:
    """The vocabulary in the form that the class's model takes; None where it cannot take it."""
    if kind == "Unigram":
        return vocab if isinstance(vocab, list) else None
    if isinstance(vocab, list):
        return {entry[0]: index for index, entry in enumerate(vocab) if isinstance(entry, list) and entry}
    return vocab if isinstance(vocab, dict) else None


def _serialised(vocab: object, added: Iterable[AddedToken]) -> list[dict[str, object]]:
    tokens = list(added)
    contents = [token.content for token in tokens]
    if isinstance(vocab, dict):
        ids = effective_ids(vocab, contents)
    else:
        pieces = vocab if isinstance(vocab, list) else []
        base = {piece[0]: index for index, piece in enumerate(pieces)}
        ids = effective_ids(base, contents, base_tokens=len(pieces))
    return [
        {
            "id": ids[token.content],
            "content": token.content,
            "single_word": token.single_word,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "special": token.special,
        }
        for token in tokens
        if token.content in ids
    ]


# Comparing documents.

_DEFAULTS: Mapping[str, Json] = {
    "ByteLevel": {"add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "Metaspace": {"split": True},
    "Split": {"invert": False},
    "Punctuation": {"behavior": "Isolated"},
}
_OFFSETS_ONLY = ("trim_offsets", "str_rep")
_OLD_SENTENCEPIECE = [
    {"type": "Prepend", "prepend": SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
]


def _meaning(document: Json) -> dict[str, object]:
    """What decides the encoding of a text, spelt one way: defaults filled in, offsets left out."""
    normalizer = [_spelt_out(step) for step in _steps(document.get("normalizer"), "normalizers")]
    pre_tokenizer = [_spelt_out(step) for step in _steps(document.get("pre_tokenizer"), "pretokenizers")]
    if normalizer == _OLD_SENTENCEPIECE and not pre_tokenizer:
        normalizer, pre_tokenizer = [], [dict(_metaspace("first", split=False))]
    for step in pre_tokenizer:
        if step.get("type") == "Metaspace" and step.get("prepend_scheme") == "always":
            step["prepend_scheme"] = "first"  # they differ only after a special token
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": _model_options(document.get("model")),
        "added_tokens": _added(document.get("added_tokens")),
    }


def _spelt_out(step: dict[str, object]) -> dict[str, object]:
    spelt = {**_DEFAULTS.get(str(step.get("type")), {}), **step}
    if spelt.get("type") == "Metaspace" and "add_prefix_space" in spelt:
        spelt.setdefault("prepend_scheme", "always" if spelt["add_prefix_space"] else "never")
        del spelt["add_prefix_space"]
    return {name: value for name, value in spelt.items() if name not in _OFFSETS_ONLY}


def _model_options(model: object) -> dict[str, object]:
    if not isinstance(model, Mapping):
        return {}
    options = {name: value for name, value in model.items() if name not in ("type", "vocab", "merges")}
    return {name: value for name, value in options.items() if value not in (None, False, "")}


def _added(tokens: object) -> list[object]:
    if not isinstance(tokens, list):
        return []
    named = {token.get("content"): token.get("id") for token in tokens if isinstance(token, Mapping)}
    return sorted(named.items(), key=str)
