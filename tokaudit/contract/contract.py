"""The contract itself: one object with every fact, and what follows from several of them at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tokaudit.contract.adapter import NOT_AN_ADAPTER, Adapter
from tokaudit.contract.checkpoint import Checkpoint, DamagedFile, Embeddings, Table, TableComparison
from tokaudit.contract.facts import Document, Fact, Missing, present
from tokaudit.contract.lock import Lock
from tokaudit.contract.optimizer import NO_OPTIMIZER, OptimizerState
from tokaudit.contract.special import ChatTemplate, IdField, Role, SpecialToken
from tokaudit.contract.values import NEEDS_DEEP, Values
from tokaudit.contract.vocabulary import Token, Vocabulary
from tokaudit.errors import FactMissing, Unreadable
from tokaudit.findings import Location
from tokaudit.text import listed, named

if TYPE_CHECKING:  # defining them takes as long as reading a small config.json, and few checks need them
    from tokaudit.contract.batch import Batch
    from tokaudit.contract.data import DataOptions, TokenData
    from tokaudit.contract.ledger import Ledger
    from tokaudit.contract.module import LiveModule

_OF_A_TOKENIZER = re.compile(
    r"tokeni[sz]|vocab|merges|spiece|sentencepiece|tekken|[^/]*\.(model|spm|bpe|tiktoken)$"
)
_OF_WEIGHTS = re.compile(r"[^/]*\.(safetensors(\.index\.json)?|bin|pt|pth|ckpt|h5|msgpack|onnx|gguf|npz)")

NOT_COMPARED = Missing("the tables were not compared")
NO_ENCODER_CONFIG = Missing("there is no sentence_bert_config.json")
NO_LOCK = Missing("no --lock was given")
NO_DATA = Missing("no --data was given")
NO_BATCH = Missing("no batch was given")
NO_LEDGER = Missing("no gradient ledger was kept")
NEEDS_MODULE = Missing("needs a live module (tokaudit.training.audit_module)")


@dataclass(frozen=True, slots=True)
class DuplicateKey:
    """A JSON object that states one key twice; ``at`` is the key."""

    at: Location
    key: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Something outside the vocabulary that names a token id.

    ``kind`` is "role", "id field", "post-processor", "chat template"; ``words`` name it for people
    ("the eos token", "config.json eos_token_id"). ``placeholder`` marks image, audio and video ids, which
    their model classes replace before the lookup. ``role`` is set where the tokenizer gives the id one.
    ``forbids`` marks a list of tokens that generation may not yield.
    """

    id: int
    kind: str
    words: str
    at: Location
    placeholder: bool = False
    role: Role | None = None
    forbids: bool = False


@dataclass(frozen=True)
class Options:
    """What the caller asked for beyond the files.

    ``base`` is the directory of the model that an adapter is for, ``optimizer`` a file or a directory with
    the state of the optimizer.
    With a ``lock`` the contract's own ``snapshot`` is made, to compare with it; with ``snapshot`` also
    without one. With ``tokens`` the report holds every token.
    """

    tensor_parallel: int | None = None
    read_weights: bool = True
    deep: bool = False
    lock: Lock | None = None
    snapshot: bool = False
    tokens: bool = False
    base: str | None = None
    optimizer: str | None = None
    data: DataOptions | None = None


@dataclass(frozen=True)
class Contract:
    """All facts of one model directory (and, with --tokenizer, of a second one)."""

    name: str
    files: frozenset[str]
    config_or: Document | Missing
    generation_config_or: Document | Missing
    tokenizer_config_or: Document | Missing
    vocabulary_or: Vocabulary | Missing
    checkpoint_or: Checkpoint | Missing
    embeddings_or: Embeddings | Missing
    special_tokens: tuple[SpecialToken, ...] = ()
    stale_special_tokens: tuple[SpecialToken, ...] = ()  # in a file that loaders override (TA413)
    id_fields: tuple[IdField, ...] = ()
    templates: tuple[ChatTemplate, ...] = ()
    duplicate_keys: tuple[DuplicateKey, ...] = ()
    tokenizer_files: frozenset[str] = frozenset()  # what lies where the tokenizer comes from
    marked: tuple[str, ...] = ()  # JSON files that begin with a byte order mark (TA418)
    unreadable: tuple[Unreadable, ...] = ()
    tokenizer_error: Fact[str] | None = None  # why tokenizer.json does not parse or does not load (TA405)
    comparisons_or: Mapping[tuple[str, str], TableComparison | Missing] | Missing = NOT_COMPARED
    pools: Location | None = None  # what shows that the model pools or embeds and does not generate
    outside: tuple[DamagedFile, ...] = ()  # side files whose link leads out of the directory (TA711)
    options: Options = Options()
    encoder_config_or: Document | Missing = NO_ENCODER_CONFIG  # of sentence-transformers
    snapshot_or: Lock | Missing = NO_LOCK  # the same layers as a lock's, of the files as they stand
    values_or: Values | Missing = NEEDS_DEEP
    adapter_or: Adapter | Missing = NOT_AN_ADAPTER
    optimizer_or: OptimizerState | Missing = NO_OPTIMIZER
    ledger_or: Ledger | Missing = NO_LEDGER
    module_or: LiveModule | Missing = NEEDS_MODULE
    batch_or: Batch | Missing = NO_BATCH
    data_or: TokenData | Missing = NO_DATA

    @classmethod
    def without_files(cls, name: str, reason: str) -> Contract:
        """The contract of what is in memory only; ``reason`` says why there are no files."""
        no_files = Missing(reason)
        return cls(
            name=name,
            files=frozenset(),
            config_or=no_files,
            generation_config_or=no_files,
            tokenizer_config_or=no_files,
            vocabulary_or=no_files,
            checkpoint_or=no_files,
            embeddings_or=no_files,
        )

    @property
    def lock(self) -> Lock:
        """The lock that the files are compared with."""
        return present(self.options.lock or NO_LOCK)

    @property
    def snapshot(self) -> Lock:
        return present(self.snapshot_or)

    @property
    def values(self) -> Values:
        """The rows of the tables, which only `--deep` reads."""
        return present(self.values_or)

    @property
    def batch(self) -> Batch:
        """One batch of a training run, which `tokaudit.training.audit_batch` looks at."""
        return present(self.batch_or)

    @property
    def module(self) -> LiveModule:
        """A model in memory, which no file shows."""
        return present(self.module_or)

    @property
    def ledger(self) -> Ledger:
        """What training steps did to the rows."""
        return present(self.ledger_or)

    @property
    def adapter(self) -> Adapter:
        """What the directory holds as an adapter for another model."""
        return present(self.adapter_or)

    @property
    def optimizer(self) -> OptimizerState:
        """The shapes in the state of the optimizer, which only `--optimizer` reads."""
        return present(self.optimizer_or)

    @property
    def data(self) -> TokenData:
        """The token data that was given."""
        return present(self.data_or)

    @property
    def config(self) -> Document:
        return present(self.config_or)

    @property
    def generation_config(self) -> Document:
        return present(self.generation_config_or)

    @property
    def tokenizer_config(self) -> Document:
        return present(self.tokenizer_config_or)

    @property
    def vocabulary(self) -> Vocabulary:
        return present(self.vocabulary_or)

    @property
    def checkpoint(self) -> Checkpoint:
        return present(self.checkpoint_or)

    @property
    def absent_sides(self) -> tuple[str, ...]:
        """What a model is made of and the directory does not hold, whether or not it could be read.

        An adapter has its base for the rest, and what is in memory only has no files to miss.
        """
        if not self.files or isinstance(self.adapter_or, Adapter):
            return ()
        there = {
            "tokenizer": any(map(_OF_A_TOKENIZER.match, self.tokenizer_files)),
            "weights": any(map(_OF_WEIGHTS.fullmatch, self.files)),
            "config.json": "config.json" in self.files,
        }
        return tuple(side for side, found in there.items() if not found)

    @property
    def whole_checkpoint(self) -> Checkpoint:
        """The checkpoint, where every file of it could be read: only then is a tensor known to be absent."""
        if not self.checkpoint.complete:
            file = self.checkpoint.damaged[0]
            raise FactMissing(f"{file.file} could not be read, the tensor may be in it")
        return self.checkpoint

    @cached_property
    def damage(self) -> tuple[Unreadable, ...]:
        """Every part that could not be read: what leaves the audit no verdict, and what it has rules for."""
        checkpoint = self.checkpoint_or
        files = (*(checkpoint.damaged if isinstance(checkpoint, Checkpoint) else ()), *self.outside)
        found = [file.unreadable for file in files]
        problem = self.tokenizer_error
        if problem is not None:
            hint = "mend that place, or take the file from its source again"
            found.append(Unreadable("tokenizer-unreadable", problem.at.file, problem.value, hint=hint))
        return (*self.unreadable, *found)

    @property
    def embeddings(self) -> Embeddings:
        return present(self.embeddings_or)

    @property
    def architecture(self) -> str:
        """The first class that config.json names; "" where it names none."""
        names = self.config.data.get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""

    def role(self, role: Role) -> Token:
        """The token that the tokenizer gives this role: its text and id.

        Raises FactMissing where the tokenizer declares none, or declares a text without an id.
        """
        for special in self.special_tokens:
            if special.role is role and special.content:
                token = self.vocabulary.token(special.content)
                return Token(token.id, token.content, special.at)
        raise FactMissing(f"the tokenizer declares no {role.value} token")

    @cached_property
    def roles(self) -> Mapping[Role, Token]:
        """Every role that resolves to an id."""
        found: dict[Role, Token] = {}
        for role in Role:
            try:
                found[role] = self.role(role)
            except FactMissing:
                continue
        return found

    def text(self, id: int) -> str | None:
        """The text of the id's token; None where there is none, and where no tokenizer tells it."""
        return self.vocabulary_or.text(id) if isinstance(self.vocabulary_or, Vocabulary) else None

    def named(self, id: int) -> str:
        """The id with its token's text, ``320 "[PAD]"``; alone where there is no tokenizer."""
        return named(id, self.text(id)) if isinstance(self.vocabulary_or, Vocabulary) else str(id)

    def names(self, ids: Sequence[int]) -> str:
        """The first five of the ids: ``320 "[PAD]", 321 "<x>" and 7 more``."""
        return listed([self.named(id) for id in ids[:5]], total=len(ids))

    def fields(self, role: Role, *, generation: bool | None = None) -> tuple[IdField, ...]:
        """The id fields of this role, of one configuration or of both."""
        return tuple(
            field
            for field in self.id_fields
            if field.role is role and (generation is None or field.generation is generation)
        )

    @cached_property
    def stop_ids(self) -> tuple[IdField, ...]:
        """The end-of-sequence fields that generation reads, as loaders choose them.

        Where generation_config.json exists, config.json is not asked; otherwise the top of config.json
        counts, then its decoder, generator or text part (transformers 4 and 5 alike).
        """
        if not isinstance(self.generation_config_or, Missing):
            return self.fields(Role.EOS, generation=True)
        stated = [field for field in self.fields(Role.EOS, generation=False) if not field.null]
        return tuple(stated[:1])

    @property
    def generates(self) -> bool:
        """Whether the model is asked for text token by token, as far as the files tell.

        Encoders, CLIP's text towers and models that pool are not; a tokenizer alone may be for one that is.
        """
        if self.pools is not None:
            return False
        if isinstance(self.embeddings_or, Missing):
            return isinstance(self.adapter_or, Adapter) and self.adapter_or.generates
        return isinstance(self.config_or, Missing) or self.embeddings_or.generates

    @property
    def speaks_another_vocabulary(self) -> bool:
        """Whether the ids that the model generates are not the tokenizer's, as MusicGen's audio codes."""
        embeddings = self.embeddings_or
        if isinstance(embeddings, Missing) or isinstance(self.config_or, Missing):
            return False
        if isinstance(embeddings.output_or, Table) and isinstance(embeddings.input_or, Table):
            return embeddings.output_or.group != embeddings.input_or.group
        pair = self.config_or.has("text_encoder") and self.config_or.has("decoder")
        return pair or embeddings.two_vocabularies

    @property
    def readable_templates(self) -> tuple[ChatTemplate, ...]:
        """The chat templates that could be followed; raises FactMissing where there is none."""
        found = tuple(template for template in self.templates if not template.problem)
        if not found:
            problems = [template.problem for template in self.templates]
            raise FactMissing(problems[0] if problems else "there is no chat template")
        return found

    def comparison(self, left: Table, right: Table) -> TableComparison:
        """The byte comparison of two tables of one shape and dtype."""
        pairs = present(self.comparisons_or)
        found = pairs.get((left.name, right.name)) or pairs.get((right.name, left.name))
        if found is None:
            raise FactMissing(f"{left.name} and {right.name} were not compared")
        return present(found)

    @cached_property
    def references(self) -> Mapping[int, tuple[Reference, ...]]:
        """What names each id outside the vocabulary: roles, id fields, the post-processor, chat templates."""
        found: dict[int, list[Reference]] = {}

        def add(reference: Reference) -> None:
            found.setdefault(reference.id, []).append(reference)

        for role, token in self.roles.items():
            add(Reference(token.id, "role", f"the {role.value} token", token.at, role=role))
        for field in self.id_fields:
            for id in field.ids:
                add(
                    Reference(
                        id,
                        "id field",
                        f"{field.at.file} {field.name}",
                        field.at,
                        placeholder=is_placeholder(field.name),
                        forbids=field.name in _FORBIDDING,
                    )
                )
        if isinstance(self.vocabulary_or, Vocabulary):
            for emission in self.vocabulary_or.emissions:
                if emission.place != "unused":
                    add(Reference(emission.id, "post-processor", "the post-processor", emission.at))
            for template in self.templates:
                for text in template.control:
                    if text in self.vocabulary_or.by_content:
                        id = self.vocabulary_or.by_content[text]
                        add(
                            Reference(id, "chat template", f"the {template.title} chat template", template.at)
                        )
        return {id: tuple(references) for id, references in found.items()}

    @cached_property
    def uses(self) -> Mapping[int, tuple[Reference, ...]]:
        """The references that bring an id into use: a list of tokens to suppress does not."""
        found = {
            id: tuple(reference for reference in references if not reference.forbids)
            for id, references in self.references.items()
        }
        return {id: references for id, references in found.items() if references}


_FORBIDDING = frozenset({"suppress_tokens", "begin_suppress_tokens", "bad_words_ids"})


def is_placeholder(field: str) -> bool:
    """Whether an id field names a placeholder for an image, audio or video part.

    Model classes replace these ids by features before the lookup, so they need no row.
    """
    words = field.split("_")
    placeholders = {"image", "video", "audio", "img", "speech", "media", "placeholder"}
    return bool(placeholders & set(words)) and not {"start", "end", "bos", "eos", "begin"} & set(words)
