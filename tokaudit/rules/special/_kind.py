"""What a model is used for and how its turns end, as far as special tokens depend on it."""

from __future__ import annotations

import re

from tokaudit.contract import ChatTemplate, Contract, Document, Role, Token
from tokaudit.contract.special import CONTROL

LINE_BREAKS = frozenset({"\n", "\u010a", "<0x0A>"})  # as text, in GPT-2's byte alphabet, as a byte token

_STATIC = frozenset({"model2vec", "static"})
_TEXT_TOWER = re.compile(r"TextModel(WithProjection)?$|CLIP|^(Siglip|GroupViT|OwlViT|Owlv2)")


def _architecture(contract: Contract) -> str:
    return contract.architecture if isinstance(contract.config_or, Document) else ""


def is_decoder_classifier(contract: Contract) -> bool:
    """A sequence classifier that reads its answer at the last token that is not padding.

    Encoders read it at their first token; their tokenizers have one for that (cls), or a mask token.
    """
    marks = {special.role for special in contract.special_tokens if special.content}
    classifies = _architecture(contract).endswith("ForSequenceClassification")
    return classifies and not marks & {Role.CLS, Role.MASK}


def is_text_tower(contract: Contract) -> bool:
    """The text half of an image-text model: it never generates, and keeps placeholder ids in its config."""
    tokenizer = contract.tokenizer_config_or
    named = tokenizer.data.get("tokenizer_class") if isinstance(tokenizer, Document) else ""
    return bool(_TEXT_TOWER.search(_architecture(contract)) or str(named).startswith("CLIP"))


def is_static(contract: Contract) -> bool:
    """Static embeddings: rows are looked up for the words alone, without padding or post-processor."""
    config = contract.config_or
    return isinstance(config, Document) and str(config.data.get("model_type")) in _STATIC


def turn_ends(contract: Contract, template: ChatTemplate) -> list[Token]:
    """The tokens that can end an assistant's turn, as far as the vocabulary has them.

    An added token that is neither special nor looks like a control token is text that follows the answer.
    """
    vocabulary = contract.vocabulary
    special = {token.content for token in vocabulary.added if token.special}
    roles = {f"{role.value}_token": token for role, token in contract.roles.items()}
    found: list[Token] = []
    for text in template.turn_ends:
        if text in roles:
            found.append(roles[text])
        elif text in vocabulary.by_content and (text in special or CONTROL.fullmatch(text)):
            found.append(vocabulary.token(text))
    return found
