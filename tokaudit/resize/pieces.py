"""The pieces that the old tokenizer gives the text of a new token."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from tokaudit.contract import AddedToken, Contract, Missing
from tokaudit.formats import limits
from tokaudit.load import TOKENIZER_JSON
from tokaudit.resize.request import Refused, Request
from tokaudit.sources import open_source
from tokaudit.text import shown
from tokaudit.tokenizing import TokenizerFailure, start

METASPACE = "\u2581"


def decompose(
    source: str | os.PathLike[str], contract: Contract, request: Request, added: Sequence[AddedToken]
) -> Mapping[str, tuple[int, ...]]:
    """Ids of the pieces of each new token, by its text; a token that copies another has that one's id.

    The text is taken as it stands in running text: with a space in front where the token swallows one
    (``lstrip``), and without the word-start mark that a tokenizer puts in front of the first word only.
    Raises Refused where the tokenizer cannot be asked.
    """
    vocabulary = contract.vocabulary_or
    if not added or TOKENIZER_JSON not in contract.files:
        return {}
    if isinstance(vocabulary, Missing) or isinstance(vocabulary.loaded_or, Missing):
        raise Refused("the old tokenizer cannot be asked for the pieces of the new tokens")
    methods = {token.content: token.init or request.init for token in request.tokens}
    texts = {token.content: _text(token, methods.get(token.content, request.init)) for token in added}
    new = frozenset(token.content for token in added)
    encoded = _encode(source, sorted(set(texts.values())), new & vocabulary.by_content.keys())
    lone = vocabulary.by_content.get(METASPACE)
    found: dict[str, tuple[int, ...]] = {}
    for content, text in texts.items():
        method, _, argument = methods.get(content, request.init).partition("=")
        if method == "copy":
            if argument not in vocabulary.by_content:
                raise Refused(f"copy={argument}: the tokenizer has no token {shown(argument)}")
            found[content] = (vocabulary.by_content[argument],)
        else:
            ids = encoded.get(text, ())
            found[content] = ids[1:] if len(ids) > 1 and ids[0] == lone and not text.startswith(" ") else ids
    return found


def _text(token: AddedToken, method: str) -> str:
    name, _, argument = method.partition("=")
    if name == "description":
        return argument
    return f" {token.content}" if token.lstrip else token.content


def _encode(
    source: str | os.PathLike[str], texts: Sequence[str], hidden: frozenset[str]
) -> Mapping[str, tuple[int, ...]]:
    """Encode with the source's tokenizer. ``hidden`` tokens it has already are taken out of it first."""
    with open_source(source).open(TOKENIZER_JSON) as file:
        document = json.loads(file.read_all(limits.TOKENIZER_BYTES)) if hidden else None
        with start(file) as process:
            try:
                if document is None:
                    process.loaded()
                    return process.encode(texts)
                kept = [token for token in document["added_tokens"] if token["content"] not in hidden]
                document["added_tokens"] = kept
                document["post_processor"] = None
                return process.rebuild(json.dumps(document).encode(), texts)
            except TokenizerFailure as failure:
                raise Refused(f"the old tokenizer cannot be asked: {failure.message}") from None
