"""What the weights files hold: tensors, shards, the index, and which tensors are tables of token rows."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tokaudit.contract.facts import Document, Fact, Missing, present
from tokaudit.errors import Unreadable
from tokaudit.findings import Claim, Location

if TYPE_CHECKING:
    from tokaudit.contract.contract import DuplicateKey

# Bits per element, as the safetensors format defines its dtypes.
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

FLOAT_DTYPES = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's header entry. ``start`` and ``stop`` are byte offsets in its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int

    @property
    def at(self) -> Location:
        return Location(self.file, tensor=self.name)

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True, slots=True)
class Shard:
    """One readable safetensors file, with the tensors it holds and its own metadata."""

    file: str
    size: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Index:
    """model.safetensors.index.json: which tensor lies in which file."""

    file: str
    weight_map: Mapping[str, str]
    total_size: Fact[object] | Missing

    def at(self, tensor: str) -> Location:
        return Location(self.file).child("weight_map", tensor)


class Damage(enum.Enum):
    """What can be wrong with a weights file; each is reported by one rule."""

    ABSENT = "absent"  # the index names it, it is not there (TA701)
    BROKEN = "broken"  # cut short, an impossible header, overlapping tensors (TA702)
    NOT_WEIGHTS = "not weights"  # an LFS pointer, a web page, an archive, a pickle (TA705)
    OUTSIDE = "outside"  # the path or link leads out of the directory (TA711)


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A weights file that could not be read.

    ``named_by`` is where the index (or config.json's ``transformers_weights``) names it, if one does.
    ``code`` tells the causes of one damage apart: "weights-truncated", "index-path", "path-escape" ...
    """

    file: str
    damage: Damage
    reason: str
    hint: str
    named_by: Location | None = None
    code: str = ""

    @property
    def unreadable(self) -> Unreadable:
        named = f", named by {self.named_by}" if self.named_by else ""
        return Unreadable(self.code, self.file, self.reason + named, hint=self.hint)


@dataclass(frozen=True)
class Checkpoint:
    """The weights as a loader finds them.

    ``tensors`` maps each name to the entry that a loader would use (of two shards with one name, the last
    in sorted order). ``layout`` is "single", "sharded" or "loose" (neither: every *.safetensors counts).
    ``index_or`` is the index that loaders follow; one that they pass over, because they prefer a single
    file beside it, is ``unused_index``, and the readable shards it names are ``stale``. ``chosen_by`` is
    config.json's ``transformers_weights``, where it chose the files. Parts of another save that lie beside a
    single file are ``stale``, too. ``unreferenced`` are *.safetensors that neither a loader reads nor an
    index names; adapters and a vendor's original ``consolidated`` files do not count as such.
    """

    layout: str
    shards: tuple[Shard, ...]
    tensors: Mapping[str, Tensor]
    index_or: Index | Missing
    damaged: tuple[DamagedFile, ...] = ()
    stale: tuple[Shard, ...] = ()
    unreferenced: tuple[str, ...] = ()
    unused_index: Index | None = None
    chosen_by: Location | None = None
    duplicate_keys: tuple[DuplicateKey, ...] = ()  # of the index files
    marked: tuple[str, ...] = ()  # the index that loaders follow, if it begins with a byte order mark

    @property
    def index(self) -> Index:
        return present(self.index_or)

    @property
    def complete(self) -> bool:
        """Whether every file that a loader would read could be read."""
        return not self.damaged

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @cached_property
    def repeated(self) -> Mapping[str, tuple[Tensor, ...]]:
        """Tensors that several shards hold, by name, in the order of loading: the last one wins."""
        found: dict[str, list[Tensor]] = {}
        for shard in self.shards:
            for name, tensor in shard.tensors.items():
                if self.tensors[name] is not tensor:
                    found.setdefault(name, []).append(tensor)
        return {name: (*tensors, self.tensors[name]) for name, tensors in found.items()}


_PICKLE = re.compile(
    r"(pytorch_model|adapter_model|diffusion_pytorch_model).*\.bin|.+\.(pt|pth|ckpt|pkl|pickle)"
)
_TRAINING_STATE = re.compile(r"(optimizer|scheduler|scaler|rng_state|random_states|training_args|sampler).*")


def pickled_weights(names: Iterable[str]) -> tuple[str, ...]:
    """The names under which weights are pickled; the state of a training run is not weights."""
    return tuple(
        sorted(name for name in names if _PICKLE.fullmatch(name) and not _TRAINING_STATE.fullmatch(name))
    )


@dataclass(frozen=True, slots=True)
class Part:
    """What a shard's name says: ``model-00002-of-00004.safetensors`` is number 2 of 4 of ``model``."""

    prefix: str
    digits: str
    total: str

    @property
    def number(self) -> int:
        return int(self.digits)

    @property
    def of(self) -> int:
        return int(self.total)


_PART = re.compile(r"([^/]+)-([0-9]{1,9})-of-([0-9]{1,9})\.safetensors")


def part(name: str) -> Part | None:
    """The part of a checkpoint that a file of this name is; None where the name counts nothing."""
    found = _PART.fullmatch(name)
    return Part(*found.groups()) if found else None


class TableKind(enum.Enum):
    INPUT = "input embeddings"
    OUTPUT = "output embeddings"
    BIAS = "output bias"
    SECONDARY = "secondary table"


@dataclass(frozen=True, slots=True)
class RowCount:
    """How many rows a table should have by its family: an expression over config fields.

    ``value`` is the result, ``terms`` the stated config fields it was computed from, ``formula`` its wording
    ("text_config.vocab_size + 8"). ``by_default`` marks one that rests, wholly or in part, on a value the
    configuration class fills in because the file is silent. The width of a table has the same form.
    """

    value: int
    formula: str
    terms: tuple[Fact[int], ...]
    by_default: bool = False


NOT_STATED = Missing("the configuration does not tell")


@dataclass(frozen=True, slots=True)
class Table:
    """A tensor with one row (or column, or value) per token id.

    ``rows`` and ``hidden`` are read off the shape along ``axis``; for a packed table (``packed`` says how it
    is packed) ``rows`` is what its shapes tell, or Missing. ``expected`` is the family's row count and
    ``expected_hidden`` its width. ``group`` names the vocabulary it is indexed by ("" for the model's own;
    "decoder" for a second one), so that only tables of one group are compared. ``tensor`` is the stored
    tensor; of a packed table the one that holds the values. ``copy`` marks a table that the class makes one
    with the input table (an encoder's or decoder's name for ``shared``).
    """

    kind: TableKind
    tensor: Tensor
    axis: int
    rows_or: int | Missing
    hidden: int | None
    expected: RowCount | Missing
    packed: str = ""
    group: str = ""
    malformed: str = ""
    copy: bool = False
    expected_hidden: RowCount | Missing = NOT_STATED

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def at(self) -> Location:
        return self.tensor.at

    @property
    def rows(self) -> int:
        return present(self.rows_or)

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True, slots=True)
class TieReading:
    """What one generation of loaders makes of the flags: ``tied`` and why."""

    loader: str  # "transformers 5", "transformers 4"
    tied: bool
    why: str


@dataclass(frozen=True)
class Tie:
    """How the configuration ties the output table to the input table.

    ``flags`` are the stated ones by config path ("" prefix for the top). ``readings`` is one per loader
    generation that knows the class (the newest first). ``always`` marks a family that ignores the flag (T5).
    """

    flags: Mapping[str, Fact[bool]]
    readings: tuple[TieReading, ...]
    always: bool = False
    by_default: bool = False  # no flag is stated; the family's default counts

    @property
    def tied(self) -> bool:
        return self.readings[0].tied

    @property
    def loaders_agree(self) -> bool:
        return len({reading.tied for reading in self.readings}) < 2


@dataclass(frozen=True)
class Embeddings:
    """Which tensors are tables of token rows, by the architecture's record or, for an unknown one, by guess.

    ``architecture`` is the class that config.json names. ``source`` says how the tables were found:
    "LlamaForCausalLM" style record, or "name and shape". ``candidates`` are the 2-D tensors that might
    have been meant where the input table was not found. ``vocab_sizes`` are the config fields that describe
    these tables. ``expected_input`` is how many rows the configuration gives the input table and those that
    continue it; it is known without the weights.
    ``inverted`` says that only the output table is stored under a tie: ``input_or`` is Missing then, and
    the output table tells the rows. ``tie_partner`` is the table whose storage the output table shares
    under a tie: the input table, or the decoder's where an encoder-decoder pair has two.
    """

    architecture: str
    known: bool
    source: str
    input_or: Table | Missing
    output_or: Table | Missing
    biases: tuple[Table, ...]
    secondary: tuple[Table, ...]
    extra_inputs: tuple[Table, ...]  # further input tables with ids of their own range (Idefics, Molmo)
    tie_or: Tie | Missing
    vocab_sizes: tuple[Fact[int], ...]
    candidates: tuple[Tensor, ...]
    generates: bool  # the class has an output table in its family record, and is used for generation
    language_model: bool  # False where the class has no input table by design
    inverted: bool
    tie_partner_or: Table | Missing
    expected_input_or: RowCount | Missing  # the rows that the architecture asks for
    two_vocabularies: bool = False  # the class gives logits of other ids than it reads, stored or not

    @property
    def input(self) -> Table:
        return present(self.input_or)

    @property
    def output(self) -> Table:
        return present(self.output_or)

    @property
    def tie(self) -> Tie:
        return present(self.tie_or)

    def tie_claims(self, config: Document) -> Iterator[Claim]:
        """What config.json says about it; the family's default where it is silent. Raises FactMissing."""
        for fact in self.tie.flags.values():
            yield fact.says("tied" if fact.value else "untied")
        if not self.tie.flags:
            default = "tied" if self.tie.tied else "untied"
            at = config.at.child("tie_word_embeddings")
            yield Claim(at, f"not stated: {self.architecture} is {default} by default")

    @property
    def tie_partner(self) -> Table:
        return present(self.tie_partner_or)

    @property
    def expected_input(self) -> RowCount:
        return present(self.expected_input_or)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that was found, input first."""
        found = [table for table in (self.input_or, self.output_or) if isinstance(table, Table)]
        return (*found, *self.biases, *self.secondary, *self.extra_inputs)

    @property
    def input_rows(self) -> Fact[int]:
        """Rows of the input table and of those that continue it, at the input table.

        Where only the output table of a tied pair is stored, at that one.
        """
        first = self.output if self.inverted else self.input
        return Fact(first.rows + sum(table.rows for table in self.extra_inputs), first.at)


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Byte-for-byte comparison of two tables of one shape.

    ``different_rows`` counts them, ``first`` lists the first few, ``max_difference`` is the largest absolute
    difference among the values of those first rows (None where they cannot be decoded). Tables of two
    dtypes differ in every row, whatever their values: no loader takes them for one; none is listed.
    ``exhaustive`` is False where the comparison was asked to stop at the first difference.
    """

    left: Tensor
    right: Tensor
    different_rows: int
    first: tuple[int, ...]
    max_difference: float | None
    exhaustive: bool = True

    @property
    def equal(self) -> bool:
        return self.different_rows == 0
