"""What the files say about tokens and ids, and what the `tokenizers` library makes of it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from tokaudit.contract.facts import Document, Fact, Missing, present
from tokaudit.contract.lock import ListDigests
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Location
from tokaudit.text import shown


@dataclass(frozen=True, slots=True)
class Token:
    """A token id and the text it stands for, as one file states it."""

    id: int
    content: str
    at: Location


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An entry of ``added_tokens`` or ``added_tokens_decoder``, with its matching flags."""

    id: int
    content: str
    at: Location
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True
    single_word: bool = False

    @property
    def flags(self) -> tuple[bool, bool, bool, bool, bool]:
        return self.special, self.lstrip, self.rstrip, self.normalized, self.single_word


class Witness(enum.Enum):
    """The kinds of files and parts that give ids to tokens."""

    BASE = "base vocabulary"  # tokenizer.json#/model/vocab, or the vocabulary file where there is none
    ADDED = "added tokens"  # tokenizer.json#/added_tokens
    DECODER = "added_tokens_decoder"  # tokenizer_config.json
    ADDED_FILE = "added_tokens.json"
    COMPANION = "vocabulary file"  # vocab.json, vocab.txt, tokenizer.model beside a tokenizer.json


@dataclass(frozen=True)
class TokenTable:
    """One witness: content to id, in file order. ``tokens`` is lazy, a table may hold 256k entries.

    ``style`` says how an entry's location is built: "key" (the content is the JSON key), "id" (the id is
    the key), "index" (its place in a list) or "line" (a text file, where no pointer leads).
    ``entries`` holds every entry where the file can state one content twice; otherwise it is empty and
    ``ids`` says it all.
    """

    witness: Witness
    at: Location
    ids: Mapping[str, int]
    style: str = "key"
    entries: tuple[AddedToken, ...] = ()

    @cached_property
    def _entries(self) -> Mapping[str, AddedToken]:
        """The first entry of each content."""
        return {entry.content: entry for entry in reversed(self.entries)}

    @cached_property
    def _entries_of_ids(self) -> Mapping[tuple[int, str], AddedToken]:
        return {(entry.id, entry.content): entry for entry in reversed(self.entries)}

    def entry(self, id: int, content: str) -> AddedToken | None:
        """The entry that gives this id to this text, where the table keeps entries."""
        return self._entries_of_ids.get((id, content))

    def location(self, content: str) -> Location:
        if content in self._entries:
            return self._entries[content].at
        if self.style == "key":
            return self.at.child(content)
        if self.style in ("id", "index"):
            return self.at.child(self.ids[content])
        return self.at

    def token(self, content: str) -> Token:
        return Token(self.ids[content], content, self.location(content))

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Every (content, id) the table states, repeats included."""
        if self.entries:
            for entry in self.entries:
                yield entry.content, entry.id
        else:
            yield from self.ids.items()


@dataclass(frozen=True, slots=True)
class MergesFile:
    """merges.txt: the merges of a BPE model in order, for loaders that do not read tokenizer.json."""

    at: Location
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pipeline:
    """tokenizer.json beside its vocabulary: how text becomes tokens."""

    document: Document
    model_type: str  # "BPE", "WordPiece", "Unigram", "WordLevel"

    @cached_property
    def merges(self) -> tuple[tuple[str, str], ...]:
        """The merges as pairs; both spellings ("a b" and ["a", "b"]) are in use.

        Raises FactMissing where the model has none, or where they are not pairs.
        """
        stated = self.model.data.get("merges")
        if not isinstance(stated, list):
            raise FactMissing("the tokenizer's model has no merges")
        parts = [merge.split(" ") if isinstance(merge, str) else merge for merge in stated]
        # A real vocabulary has 100,000 merges: their types are checked at C speed.
        if not (
            set(map(type, parts)) <= {list}
            and set(map(len, parts)) <= {2}
            and set(map(type, chain.from_iterable(parts))) <= {str}
        ):
            raise FactMissing("the tokenizer's merges are not all pairs")
        return tuple(map(tuple, parts))

    @property
    def model(self) -> Document:
        return self.document.section("model")

    def stages(self, part: str) -> tuple[Document, ...]:
        """The steps of "normalizer", "pre_tokenizer", "post_processor" or "decoder", sequences unfolded."""
        try:
            queue = [self.document.section(part)]
        except FactMissing:
            return ()
        members = {
            "normalizer": "normalizers",
            "pre_tokenizer": "pretokenizers",
            "post_processor": "processors",
            "decoder": "decoders",
        }
        found: list[Document] = []
        while queue:
            stage = queue.pop(0)
            inner = stage.data.get(members[part])
            if stage.data.get("type") == "Sequence" and isinstance(inner, list):
                queue[:0] = [
                    Document(stage.at.child(members[part], i), step)
                    for i, step in enumerate(inner)
                    if isinstance(step, dict)
                ]
            else:
                found.append(stage)
        return tuple(found)

    def stage(self, part: str, kind: str) -> Document | None:
        """The first step of that type, if the pipeline has one."""
        return next((step for step in self.stages(part) if step.data.get("type") == kind), None)

    @property
    def byte_level(self) -> bool:
        """Whether text is mapped to 256 byte symbols first (GPT-2's alphabet)."""
        return any(self.stage(part, "ByteLevel") for part in ("pre_tokenizer", "normalizer"))

    @property
    def mentions_byte_level(self) -> bool:
        """Whether any stage is a ByteLevel one: a decoder alone is enough for some loaders."""
        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
        return any(self.stage(part, "ByteLevel") for part in parts)

    @property
    def kind(self) -> str:
        """How people call it: "byte-level BPE", "SentencePiece BPE", "Unigram", "WordPiece" ..."""
        if self.model_type != "BPE":
            return self.model_type
        if self.byte_level:
            return "byte-level BPE"
        metaspace = self.stage("pre_tokenizer", "Metaspace") or self.stage("decoder", "ByteFallback")
        return "SentencePiece BPE" if metaspace else "BPE"


@dataclass(frozen=True, slots=True)
class Emission:
    """A token that the post-processor puts around a text: its string, its id, where in the text."""

    content: str
    id: int
    at: Location
    place: str  # "start", "end", "between", or "unused" where a definition is in no template


class Treatment(enum.Enum):
    """What a tokenizer class of transformers 5 does with a tokenizer.json."""

    AS_IT_STANDS = "loads it as it stands"
    REBUILT = "builds the pipeline anew from its vocabulary and merges"
    NOT_READ = "has a Python implementation of its own"


NO_CLASS = Missing("no file names a tokenizer class")


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """The class that ``AutoTokenizer`` of transformers 5 makes of the directory.

    ``stated`` is the name that a file gives it, ``at`` where; "" where the model type decides alone.
    ``name`` is the class that is instantiated.
    """

    stated: str
    at: Location
    name: str
    treatment: Treatment

    def says(self, words: str) -> Claim:
        return Claim(self.at, words)


@dataclass(frozen=True)
class Rebuilt:
    """The pipeline that the tokenizer class builds itself beside the one in tokenizer.json.

    ``parts`` are the parts of tokenizer.json that it replaces by others ("normalizer", "added_tokens" ...).
    ``saved`` and ``rebuilt`` are the encodings of the same texts by both: of every added token, of plain
    English, and of ``unusual`` texts (accents, several spaces, other scripts, compatibility characters).
    """

    parts: tuple[str, ...]
    saved: Mapping[str, tuple[int, ...]]
    rebuilt: Mapping[str, tuple[int, ...]]
    unusual: frozenset[str]


NOT_PROBED = Missing("no probe texts were asked")


@dataclass(frozen=True)
class Loaded:
    """What the `tokenizers` library made of tokenizer.json, in the isolated process.

    ``effective`` are the ids of the added tokens as the library numbers them (it honours the ids of the base
    vocabulary, not those that added tokens declare). ``encodings`` answers the texts that were asked:
    special tokens and template literals, with the saved padding, truncation and post-processor off.
    ``probes`` are the encodings of a lock's probe texts, post-processor on; None for refused texts.
    ``unreachable`` are ids of base tokens that their own text does not encode to.
    """

    version: str
    effective: Mapping[str, int]
    encodings: Mapping[str, tuple[int, ...]] | Missing
    unreachable: tuple[int, ...] | Missing
    rebuilt: Rebuilt | Missing  # what the tokenizer class makes of the pipeline instead (TA414)
    probes: Mapping[str, tuple[int, ...] | None] | Missing = NOT_PROBED


NO_DIGESTS = Missing("nothing was digested")


@dataclass(frozen=True)
class Declared:
    """The witnesses of token ids that count for the rows a model needs, in order of precedence.

    What follows from all of them together is worked out once, while the library still loads the file.
    """

    tables: tuple[TokenTable, ...]

    def table(self, witness: Witness) -> TokenTable:
        """The table of that witness; raises FactMissing where no file holds one."""
        for table in self.tables:
            if table.witness is witness:
                return table
        raise FactMissing(f"no file states {witness.value}")

    @cached_property
    def added(self) -> tuple[AddedToken, ...]:
        """Added tokens of every counting witness, one per content, the first witness first."""
        seen: dict[str, AddedToken] = {}
        for table in self.tables:
            for entry in table.entries:
                seen.setdefault(entry.content, entry)
        return tuple(seen.values())

    @cached_property
    def by_content(self) -> Mapping[str, int]:
        """Declared id of each content; where witnesses disagree the earlier one counts."""
        merged: dict[str, int] = {}
        for table in reversed(self.tables):
            merged.update(table.ids)
        return merged

    @cached_property
    def by_id(self) -> Mapping[int, str]:
        """Content of each declared id; where two share an id, an added token's comes first."""
        merged: dict[int, str] = {}
        for table in sorted(self.tables, key=lambda table: table.witness is not Witness.BASE):
            # zip is worth it: a base vocabulary has 100,000 tokens and more.
            pairs = ((id, content) for content, id in table.pairs())
            merged.update(pairs if table.entries else zip(table.ids.values(), table.ids, strict=True))
        return merged

    @cached_property
    def required_rows(self) -> Fact[int]:
        """Largest declared id + 1 over every counting witness, at the token that has it."""
        best: Token | None = None
        for table in self.tables:
            ids = [entry.id for entry in table.entries] or list(table.ids.values())
            largest = max(ids, default=-1)
            if largest >= 0 and (best is None or largest > best.id):
                contents = [entry.content for entry in table.entries] or list(table.ids)
                content = contents[ids.index(largest)]
                best = Token(largest, content, table.location(content))
        if best is None:
            raise FactMissing("the tokenizer states no token")
        return Fact(best.id + 1, best.at)

    @cached_property
    def holes(self) -> tuple[int, ...]:
        """Ids below the required rows that no token has; at most 10,000 are listed."""
        if self.hole_count <= 0:
            return ()
        found: list[int] = []
        expected = 0
        for id in sorted(self.by_id):
            missing = range(expected, id)
            found += missing[: 10_000 - len(found)]
            expected = id + 1
        return tuple(found)

    @property
    def hole_count(self) -> int:
        return self.required_rows.value - len(self.by_id)


@dataclass(frozen=True)
class Vocabulary:
    """All that is known of the tokens: declared by files, and made of them by the library.

    ``companions`` repeat the declared ids for other loaders (vocab.json beside tokenizer.json) and are only
    compared.
    """

    declared: Declared
    companions: tuple[TokenTable, ...]
    pipeline_or: Pipeline | Missing
    loaded_or: Loaded | Missing
    emissions: tuple[Emission, ...] = ()
    target: TokenTable | None = None  # a second vocabulary for the decoder (Marian, FSMT)
    class_or: TokenizerClass | Missing = NO_CLASS
    merges_file: MergesFile | None = None
    unread: tuple[str, ...] = ()  # why vocabulary files beside the ones above say nothing
    digests_or: ListDigests | Missing = NO_DIGESTS

    @property
    def pipeline(self) -> Pipeline:
        return present(self.pipeline_or)

    @property
    def loaded(self) -> Loaded:
        return present(self.loaded_or)

    @property
    def digests(self) -> ListDigests:
        """Digests of the long lists, where they were asked for."""
        return present(self.digests_or)

    @property
    def tokenizer_class(self) -> TokenizerClass:
        return present(self.class_or)

    @property
    def tables(self) -> tuple[TokenTable, ...]:
        return self.declared.tables

    def table(self, witness: Witness) -> TokenTable:
        """The table of that witness; raises FactMissing where no file holds one."""
        return self.declared.table(witness)

    @property
    def base(self) -> TokenTable:
        return self.table(Witness.BASE)

    @property
    def base_ids(self) -> Mapping[str, int]:
        """Content to id in the base vocabulary; empty where no file holds one."""
        return next((table.ids for table in self.tables if table.witness is Witness.BASE), {})

    @property
    def added(self) -> tuple[AddedToken, ...]:
        return self.declared.added

    @property
    def by_content(self) -> Mapping[str, int]:
        return self.declared.by_content

    @property
    def by_id(self) -> Mapping[int, str]:
        return self.declared.by_id

    @property
    def required_rows(self) -> Fact[int]:
        return self.declared.required_rows

    @property
    def holes(self) -> tuple[int, ...]:
        return self.declared.holes

    @property
    def hole_count(self) -> int:
        return self.declared.hole_count

    @cached_property
    def effective(self) -> Mapping[str, int]:
        """The id that each content gets when the tokenizer is loaded.

        Tokens that only files beside tokenizer.json state keep their declared ids; where there is no
        tokenizer.json, all do. Raises FactMissing where the library does not load the file.
        """
        if isinstance(self.pipeline_or, Missing):
            return self.by_content
        declared = self.by_content
        renumbered = {text: id for text, id in self.loaded.effective.items() if declared.get(text) != id}
        return {**declared, **renumbered} if renumbered else declared

    def token(self, content: str) -> Token:
        """The token with this text, at the first witness that states it."""
        for table in self.tables:
            if content in table.ids:
                return table.token(content)
        raise FactMissing(f"no file gives an id to {shown(content)}")

    def text(self, id: int) -> str | None:
        return self.by_id.get(id)

    def locate(self, id: int) -> Location:
        """Where the id is stated; the first witness's location where no token has it."""
        content = self.by_id.get(id)
        if content is not None:
            for table in self.tables:
                entry = table.entry(id, content)
                if entry is not None:
                    return entry.at
                if table.ids.get(content) == id:
                    return table.location(content)
        return self.tables[0].at

    def claims(self, content: str) -> Iterator[Claim]:
        """What each counting witness says about this text."""
        for table in self.tables:
            if content in table.ids:
                yield Claim(table.location(content), f"{shown(content)} has id {table.ids[content]}")
