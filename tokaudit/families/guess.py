"""The tables of an unknown architecture, by the names and shapes of its tensors.

The endings are those of every class of transformers and of the public checkpoints with code of their own,
the most usual first. A table's rows must agree with what the configuration states wherever it states
anything; among those that do, the better name wins. Tables of positions, types, pictures, sounds, experts
and layers end in the same words and are left out by the rest of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tokaudit.contract import (
    Checkpoint,
    Document,
    Embeddings,
    Fact,
    Missing,
    RowCount,
    Table,
    TableKind,
    Tensor,
    Tie,
)
from tokaudit.families import records, stored
from tokaudit.families.stored import Stored
from tokaudit.families.tie import guess_tie
from tokaudit.families.wrappers import IN_FRONT

SOURCE = "name and shape"
MOST_CANDIDATES = 10

# The last parts of the names of input tables, without ".weight", the most usual first.
INPUT_ENDINGS = (
    "shared",
    "embed_tokens",
    "word_embeddings",
    "wte",
    "tok_embeddings",
    "token_embedding",
    "token_embeddings",
    "text_token_embedding",
    "embed_in",
    "tokens_embed",
    "word_embedding",
    "input_embedding",
    "input_embeddings",
    "embeddings",
    "embedding",
    "embed",
    "tok_emb",
    "emb",
    "in_out_embed",
    "w",
    "encoder",
)

OUTPUT_ENDINGS = (
    "lm_head",
    "embed_out",
    "unembed",
    "lm_head.decoder",
    "lm_head.out_proj",
    "lm_head.linear",
    "cls.predictions.decoder",
    "predictions.decoder",
    "output_projection",
    "generator_lm_head",
    "proj_out",
    "output_layer",
    "pred_layer.proj",
    "vocab_projector",
    "lm_loss",
    "ff_out",
    "ctc_head",
    "mlm_head",
    "lm_heads",
    "logits_dense",
    "head.decoder",
    "word_embeddings_for_head",
    "output",
    "head",
    "decoder",
    "cls",
    "layer0",
)

# Parts of names that tell a table of something else than the model's tokens.
OTHER_THINGS = re.compile(
    r"(^|[._])(pos|position|positions|positional|type|types|segment|vision|visual(?!_bert)|vit|image|images|img|patch"
    r"|patcher|audio|speech|sound|codec|codebook|mel|unit|vocoder|t2u|talker|qformer|protein|entity"
    r"|pronunciation|shape|ngram|expert|experts|router|gate|per_layer|value|values|timestep|time|relative"
    r"|lora|class|tile|modality|bbox|box|char|hash|depth|draft|mtp|dit|num_speakers|language_embeddings"
    r"|code2wav|token2wav|lang|layers|blocks|h|prior|priors|task|action|detector|seg)([._]|$)"
)

# Config fields that give the rows of the token table, the ones that override the others first.
SIZE_FIELDS = ("padded_vocab_size", "embedding_size", "vocab_size", "src_vocab_size", "n_words", "n_token")
OUTPUT_SIZE_FIELDS = (
    "draft_vocab_size",
    "output_vocab_size",
    "unpadded_vocab_size",
    "decoder_vocab_size",
    "tgt_vocab_size",
)
TEXT_SECTIONS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "decoder",
    "decoder_config",
    "encoder",
    "encoder_config",
    "text_encoder",
    "vlm_config",
    "model_config",
    "semantic_config",
)
# Endings of the tensors that hold a table's values, plain or packed; the first of one table per codebook.
_VALUES = frozenset({"weight", "qweight", "weight_packed", "_weight_qdata", "embedding_quantized", "W_q"})
_BARE = frozenset({"embedding", "embeddings", "in_out_embed"})  # tables whose names end without ".weight"
_BIASES = ("lm_head.bias", "predictions.bias", "predictions.decoder.bias", "final_logits_bias")
_LAST_PARTS = frozenset(ending.rpartition(".")[2] for ending in (*INPUT_ENDINGS, *OUTPUT_ENDINGS))


@dataclass(frozen=True, slots=True)
class _Named:
    """A tensor whose name may be a table's: ``stem`` is the name without what says how it is stored."""

    stem: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class _Fit:
    """A table that some ending fits: ``rank`` counts from the most usual ending."""

    stem: str
    stored: Stored
    rank: int


def embeddings(config: Document | None, checkpoint: Checkpoint | Missing) -> Embeddings:
    """The tables of a class that nothing is known of, or of weights without a configuration."""
    return _Guess(config, checkpoint).embeddings()


def candidates(config: Document | None, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """2-D tensors that might have been meant as the input table, the likeliest first."""
    sizes = {size.value for size in _sizes(config, SIZE_FIELDS)}
    likely: list[tuple[bool, int, Tensor]] = []
    for named in _names_of_tables(tensors):
        rank = _rank(named.stem, INPUT_ENDINGS)
        if rank is not None and len(named.tensor.shape) == 2 and not OTHER_THINGS.search(named.stem):
            likely.append((named.tensor.shape[0] not in sizes, rank, named.tensor))
    if not likely:
        fitting = (
            tensor for tensor in tensors.values() if len(tensor.shape) == 2 and tensor.shape[0] in sizes
        )
        likely = [(False, 0, tensor) for tensor in fitting]
    likely.sort(key=lambda entry: entry[:2])
    return tuple(tensor for _, _, tensor in likely[:MOST_CANDIDATES])


# --- sizes that the configuration states ---------------------------------------------------------------


def _sections(config: Document) -> Iterator[str]:
    """The parts of the configuration that describe a text model, as paths; text parts may nest once."""
    for name in TEXT_SECTIONS:
        part = config.data.get(name)
        if isinstance(part, dict):
            if isinstance(part.get("text_config"), dict):
                yield f"{name}.text_config"
            yield name


def _sizes(config: Document | None, fields: Iterable[str]) -> Iterator[Fact[int]]:
    """Every stated size of a token table, those of the text part first.

    Beside a text encoder, a decoder speaks another vocabulary (Parler-TTS): audio codes.
    """
    if config is None:
        return
    for section in (*sorted(_sections(config), key=lambda name: name != "text_encoder"), ""):
        for field in fields:
            path = (*filter(None, section.split(".")), field)
            if field == "embedding_size" and not _is_a_row_count(config, path):
                continue
            if config.has(*path) and type(config.value(*path).value) is int:
                yield config.integer(*path)


def _is_a_row_count(config: Document, path: tuple[str, ...]) -> bool:
    """OLMo's embedding_size counts rows and is at least vocab_size; ALBERT's is a width."""
    other = (*path[:-1], "vocab_size")
    if not (config.has(*path) and config.has(*other)):
        return False
    size, vocabulary = config.value(*path).value, config.value(*other).value
    return type(size) is int and type(vocabulary) is int and size >= vocabulary


def _expected(sizes: tuple[Fact[int], ...], rows: int | None) -> RowCount | Missing:
    """The stated size that the table has, else the first one."""
    if not sizes:
        return Missing("no field of the configuration states the number of rows")
    fact = next((size for size in sizes if size.value == rows), sizes[0])
    return RowCount(fact.value, fact.at.field, (fact,))


# --- names ---------------------------------------------------------------------------------------------


def _names_of_tables(tensors: Mapping[str, Tensor]) -> list[_Named]:
    """The tensors whose names end like a table's: few, of the many that a checkpoint may hold."""
    found = []
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        if last not in _VALUES:
            if last not in _BARE:
                continue
            stem = name
        stem = stem.removesuffix(".0")
        if stem.rpartition(".")[2] in _LAST_PARTS and not IN_FRONT.match(stem):
            found.append(_Named(stem, tensor))
    return found


def _rank(stem: str, endings: tuple[str, ...]) -> int | None:
    for rank, ending in enumerate(endings):
        if stem == ending or stem.endswith("." + ending):
            return rank
    return None


def is_input_name(module: str) -> bool:
    """Whether a module of that name is an input table wherever there is one."""
    rank = _rank(module, INPUT_ENDINGS)
    return rank is not None and rank < _STRONG


def is_output_name(module: str) -> bool:
    """The same for an output table."""
    rank = _rank(module, OUTPUT_ENDINGS)
    return rank is not None and rank < _STRONG_OUTPUT


# --- tables --------------------------------------------------------------------------------------------


class _Guess:
    """One configuration and checkpoint, with what follows from the names and shapes."""

    def __init__(self, config: Document | None, checkpoint: Checkpoint | Missing) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.tensors = {} if isinstance(checkpoint, Missing) else checkpoint.tensors
        self.sizes = tuple(_sizes(config, SIZE_FIELDS))
        self.output_sizes = tuple(_sizes(config, OUTPUT_SIZE_FIELDS))
        self.names = _names_of_tables(self.tensors)

    def embeddings(self) -> Embeddings:
        given = self.input()
        output = self.output(given)
        tie = self.tie()
        inverted = given is None and output is not None and isinstance(tie, Tie) and tie.tied
        others = () if given else candidates(self.config, self.tensors)
        name = "" if self.config is None else records.class_name(self.config)
        return Embeddings(
            architecture=name,
            known=False,
            source=SOURCE,
            input_or=given or self.missing("input", output if inverted else None),
            output_or=output or self.missing("output"),
            biases=tuple(self.biases(output or given)),
            secondary=tuple(self.copies(given)),
            extra_inputs=(),
            tie_or=tie,
            vocab_sizes=tuple(self.describing(given)),
            candidates=others,
            generates=bool(records.GENERATES.search(name)),
            language_model=bool(given) or self.needs_input(name, others),
            inverted=inverted,
            tie_partner_or=given or self.missing("input"),
            expected_input_or=_expected(self.sizes, None),
        )

    def needs_input(self, name: str, others: tuple[Tensor, ...]) -> bool:
        return bool(others or self.sizes) and not records.OTHER_TASKS.search(name)

    def tie(self) -> Tie | Missing:
        if self.config is None:
            return Missing("there is no config.json")
        return guess_tie(self.config, next(iter(_sections(self.config)), ""))

    def missing(self, side: str, stands_in: Table | None = None) -> Missing:
        if isinstance(self.checkpoint, Missing):
            return self.checkpoint
        if stands_in is not None:
            return Missing(f"only the output embeddings {stands_in.name} are stored")
        return Missing(f"no tensor has the name and shape of {side} embeddings")

    def fits(self, endings: tuple[str, ...]) -> list[_Fit]:
        """Every 2-D tensor, packed ones included, whose name has an ending and nothing against it."""
        found = {}
        for named in self.names:
            rank = _rank(named.stem, endings)
            if rank is None or named.stem in found or OTHER_THINGS.search(named.stem):
                continue
            name = named.tensor.name
            plain = name if name in (named.stem, f"{named.stem}.0.weight") else f"{named.stem}.weight"
            table = stored.find(self.tensors, plain)
            if table is not None and (
                table.packed or len(table.tensor.shape) == 2 or not all(table.tensor.shape)
            ):
                found[named.stem] = _Fit(named.stem, table, rank)
        return list(found.values())

    def input(self) -> Table | None:
        stated = {size.value for size in self.sizes}

        def allowed(fit: _Fit) -> bool:
            """A weak name needs the stated rows; a strong one half of the smallest stated number."""
            rows = fit.stored.rows_or
            if not stated:
                return fit.rank < _WEAK
            if isinstance(rows, int) and rows not in stated:
                return fit.rank < _STRONG and 2 * rows >= min(stated)
            return rows in stated or fit.rank < _STRONG

        def order(fit: _Fit) -> tuple[bool, bool, int, int]:
            fitting = not stated or fit.stored.rows_or in stated
            return not fitting, "decoder" in fit.stem.split("."), fit.rank, fit.stem.count(".")

        found = sorted(filter(allowed, self.fits(INPUT_ENDINGS)), key=order)
        return _table(TableKind.INPUT, found[0].stored, self.sizes) if found else None

    def output(self, given: Table | None) -> Table | None:
        stated = {size.value for size in (*self.sizes, *self.output_sizes)}
        if given is not None and isinstance(given.rows_or, int):
            stated.add(given.rows_or)

        def allowed(fit: _Fit) -> bool:
            """A weak name needs the stated rows; a strong one about as many, as after half a resize."""
            rows, strong = fit.stored.rows_or, fit.rank < _STRONG_OUTPUT
            if not isinstance(rows, int):
                return strong
            return rows in stated or (strong and any(size <= 2 * rows <= 4 * size for size in stated))

        def order(fit: _Fit) -> tuple[bool, int, int]:
            return fit.stored.rows_or not in stated, fit.rank, fit.stem.count(".")

        found = sorted(filter(allowed, self.fits(OUTPUT_ENDINGS)), key=order)
        found = [fit for fit in found if given is None or fit.stored.tensor != given.tensor]
        if not found:
            return None
        table = _table(TableKind.OUTPUT, found[0].stored, (*self.output_sizes, *self.sizes))
        own = isinstance(table.expected, RowCount) and table.expected.terms[0] in self.output_sizes
        return replace(table, group="output") if own else table

    def biases(self, table: Table | None) -> Iterator[Table]:
        """One value per row of the output side, under its table's name or one of the usual ones."""
        if table is None or not isinstance(table.rows_or, int):
            return
        beside = table.name.removesuffix(".weight") + ".bias"
        for name, tensor in self.tensors.items():
            if not (name == beside or name.endswith(_BIASES)) or OTHER_THINGS.search(name):
                continue
            flat = len(tensor.shape) == 1
            found = stored.find(self.tensors, name, axis=0 if flat else 1, ndim=1 if flat else 2)
            if found is not None:
                bias = _table(TableKind.BIAS, found, ())
                yield replace(bias, expected=table.expected, group=table.group)

    def copies(self, given: Table | None) -> Iterator[Table]:
        """Further tables of the input table's name and width: an encoder's, a decoder's, a layer's."""
        if given is None:
            return
        ending = _stem_ending(given.name)
        names = (f"{ending}.weight", "embed_tokens.weight", "shared_head.head.weight")
        for name, tensor in self.tensors.items():
            if (
                name.endswith(names)
                and name != given.name
                and _COPIES.search(name)
                and tensor.shape[1:] == given.tensor.shape[1:]
            ):
                found = stored.find(self.tensors, name)
                if found is not None:
                    yield replace(_table(TableKind.SECONDARY, found, ()), expected=given.expected)

    def describing(self, given: Table | None) -> Iterator[Fact[int]]:
        """The field that has the table's rows; the same field at the top where that is a section's."""
        if given is None or isinstance(given.expected, Missing):
            yield from self.sizes[:1]
            return
        first = given.expected.terms[0]
        yield first
        top = "/" + first.at.pointer.rpartition("/")[2]
        yield from (size for size in self.sizes if size != first and size.at.pointer == top)


_STRONG = INPUT_ENDINGS.index("input_embeddings") + 1
_WEAK = INPUT_ENDINGS.index("w")
_STRONG_OUTPUT = OUTPUT_ENDINGS.index("output")

# An encoder's or a decoder's own name for the table, and the copies in layers for multi-token prediction.
_COPIES = re.compile(r"(^|\.)((encoder|decoder)\.\w+|layers\.\d+\.(embed_tokens|shared_head\.head))\.weight$")


def _stem_ending(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _table(kind: TableKind, found: Stored, sizes: tuple[Fact[int], ...]) -> Table:
    rows = found.rows_or if isinstance(found.rows_or, int) else None
    return Table(
        kind=kind,
        tensor=found.tensor,
        axis=found.axis,
        rows_or=found.rows_or,
        hidden=found.hidden,
        expected=_expected(sizes, rows),
        packed=found.packed,
        malformed=found.malformed,
    )
