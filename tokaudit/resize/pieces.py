"""How each new row gets its values: the pieces that the old tokenizer gives the token's text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokaudit.contract import AddedToken, Contract, Document, Role, Vocabulary
from tokaudit.errors import FactMissing
from tokaudit.resize.plan import NewRow, Piece, Recipe
from tokaudit.resize.request import Refused, Request
from tokaudit.resize.tokens import stated_added
from tokaudit.tokenizing import TokenizerFailure, TokenizerProcess, effective_ids

METASPACE = "\u2581"
READS_NO_PIECES = frozenset({"mean", "normal", "zeros"})
NO_PIECES = "its text has no pieces with a row: the mean of the rows in use"

Encodings = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class OldTokenizer:
    """The tokenizer that is asked for pieces: its vocabulary, and the isolated process that has it loaded.

    Recipes read rows below ``rows`` only.
    """

    contract: Contract
    process: TokenizerProcess | None
    rows: int

    def new_rows(self, request: Request, tokens: Iterable[AddedToken]) -> tuple[NewRow, ...]:
        """The rows of these tokens with their recipes, by id.

        Tokens that the tokenizer has already are taken out of it first. Raises Refused where it cannot be
        asked, and for a copy of a token that has no row.
        """
        ordered = sorted(tokens, key=lambda token: token.id)
        texts = {_text(token, method) for token in ordered for method in _methods(request, token.content)}
        encodings = self._encodings(sorted(texts - {""}), {token.content for token in ordered})
        found: list[NewRow] = []
        for token in ordered:
            given, out = (
                self._recipe(method, _text(token, method), encodings)
                for method in _methods(request, token.content)
            )
            found.append(NewRow(token.id, token.content, given, out))
        return tuple(found)

    def _recipe(self, method: str, text: str, encodings: Encodings) -> Recipe:
        name, _, argument = method.partition("=")
        if name == "copy":
            return Recipe(name, (self._copied(argument),))
        if name in READS_NO_PIECES:
            return Recipe(name)
        pieces = self._pieces(text, encodings.get(text, ()))
        return Recipe(name, pieces, "" if pieces else NO_PIECES)

    def _copied(self, content: str) -> Piece:
        id = self.contract.vocabulary.by_content.get(content)
        if id is None or id >= self.rows:
            reason = "the tokenizer has no such token" if id is None else f"there is no row {id}"
            raise Refused(f"copy={content}: {reason}")
        return Piece(id, content)

    def _pieces(self, text: str, ids: Sequence[int]) -> tuple[Piece, ...]:
        """Pieces that have a row and are not the unknown token.

        The mark that a tokenizer puts in front of the first word only is left out where it stands alone: in
        running text it would be part of what comes before.
        """
        vocabulary = self.contract.vocabulary
        if len(ids) > 1 and ids[0] == vocabulary.by_content.get(METASPACE) and not text.startswith(" "):
            ids = ids[1:]
        usable = (id for id in ids if id < self.rows and id not in self._unknown)
        return tuple(Piece(id, vocabulary.text(id) or "") for id in usable)

    @cached_property
    def _unknown(self) -> frozenset[int]:
        """The ids that stand for text that the tokenizer does not know."""
        vocabulary = self.contract.vocabulary
        model = vocabulary.pipeline.model
        unk_id, unk_token = model.data.get("unk_id"), model.data.get("unk_token")
        found = {unk_id} if type(unk_id) is int else set()
        found |= {vocabulary.by_content.get(unk_token, -1)} if isinstance(unk_token, str) else set()
        with suppress(FactMissing):
            found.add(self.contract.role(Role.UNK).id)
        return frozenset(found)

    def _encodings(self, texts: Sequence[str], new: set[str]) -> Encodings:
        if not texts:
            return {}
        if self.process is None:
            raise Refused(
                "the pieces of the new tokens are not known: there is no tokenizer.json to ask",
                hint="--init mean needs none",
            )
        vocabulary = self.contract.vocabulary
        hidden = new & vocabulary.by_content.keys()
        try:
            if not hidden:
                return self.process.encode(texts)
            smaller = _without(vocabulary.pipeline.document, hidden)
            found = self.process.rebuild(json.dumps(smaller).encode(), texts)
        except TokenizerFailure as failure:
            raise Refused(f"the old tokenizer cannot be asked: {failure.message}") from None
        numbers = _numbers_before(vocabulary, smaller, hidden)
        return {text: tuple(numbers.get(id, id) for id in ids) for text, ids in found.items()}


def _methods(request: Request, content: str) -> tuple[str, str]:
    """The initialisers of a token's input and output rows, as they are asked for."""
    own = request.methods.get(content, "")
    return own or request.init, own or request.output_init or request.init


def _text(token: AddedToken, method: str) -> str:
    """What the pieces are those of: the token as it stands in running text; "" for a method without pieces.

    A token that swallows the space in front (``lstrip``) stands behind one.
    """
    name, _, argument = method.partition("=")
    if name == "description":
        return argument
    if name == "copy" or name in READS_NO_PIECES:
        return ""
    return f" {token.content}" if token.lstrip else token.content


def _without(document: Document, hidden: set[str]) -> dict[str, Any]:
    """tokenizer.json without some of its tokens."""
    data = dict(document.data)
    model = dict(data["model"])  # type: ignore[call-overload]
    vocab, merges = model["vocab"], model.get("merges")
    if isinstance(vocab, dict):
        model["vocab"] = {content: id for content, id in vocab.items() if content not in hidden}
    else:
        model["vocab"] = [entry for entry in vocab if entry[0] not in hidden]
    if isinstance(merges, list):
        model["merges"] = [merge for merge in merges if not _touches(merge, hidden)]
    added = data.get("added_tokens") or []
    kept = [token for token in added if token["content"] not in hidden]  # type: ignore[attr-defined]
    return {**data, "model": model, "added_tokens": kept}


def _touches(merge: Any, hidden: set[str]) -> bool:
    """Whether a merge needs or makes one of the tokens; it is a pair, or a text with a space."""
    parts = merge.split(" ") if isinstance(merge, str) else merge
    return "".join(parts) in hidden or not hidden.isdisjoint(parts)


def _numbers_before(vocabulary: Vocabulary, smaller: Mapping[str, Any], hidden: set[str]) -> dict[int, int]:
    """The library numbers added tokens anew when some are gone: new number to the one it had."""
    vocab = smaller["model"]["vocab"]
    base = vocab if isinstance(vocab, dict) else {entry[0]: id for id, entry in enumerate(vocab)}
    kept = [token.content for token in stated_added(vocabulary) if token.content not in hidden]
    now = effective_ids(base, kept, base_tokens=len(vocab))
    return {id: vocabulary.by_content[content] for content, id in now.items()}
