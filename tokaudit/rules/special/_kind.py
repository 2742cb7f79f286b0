"""What a model is used for, as far as it changes what special tokens must be."""

from __future__ import annotations

import re

from tokaudit.contract import Contract, Role

_TEXT_TOWER = re.compile(r"TextModel(WithProjection)?$|^(CLIP|Siglip|AltCLIP|CLIPSeg|GroupViT|OwlViT|XCLIP)")


def is_classifier(contract: Contract) -> bool:
    return contract.architecture.endswith("ForSequenceClassification")


def is_decoder_classifier(contract: Contract) -> bool:
    """A sequence classifier that reads its answer at the last token that is not padding.

    Encoders read it at their first token; their tokenizers have one for that (cls), or a mask token.
    """
    marks = {special.role for special in contract.special_tokens if special.content}
    return is_classifier(contract) and not marks & {Role.CLS, Role.MASK}


def is_text_tower(contract: Contract) -> bool:
    """The text half of an image-text model: it never generates, and keeps placeholder ids in its config."""
    return bool(_TEXT_TOWER.search(contract.architecture))
