"""Special tokens: what the tokenizer's files declare, and the id fields of the configurations."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Literal

from tokaudit.findings import Location
from tokaudit.text import pointed

# What control tokens look like: "<|im_end|>", DeepSeek's full-width form, Gemma 4's one-sided ones ("<|turn>"
# ... "<turn|>"), and the plain names that families use for their markers.
CONTROL = re.compile(
    r"<\|[^|<>\s]{1,60}\|>"
    r"|<\|[a-z_]{2,60}>|<[a-z_]{2,60}\|>"
    r"|<\uff5c[^\uff5c<>\s]{1,60}\uff5c>"
    r"|</?(?:s|bos|eos|start_of_turn|end_of_turn|start_of_role|end_of_role|end_of_text)>"
)


class Role(enum.Enum):
    BOS = "bos"
    EOS = "eos"
    PAD = "pad"
    UNK = "unk"
    SEP = "sep"
    CLS = "cls"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A special string that a tokenizer file declares, as loaders read it.

    ``role`` is None for additional_special_tokens and extra_special_tokens; ``name`` is the field's name.
    ``malformed`` says what is wrong with a declaration that is no token text ("a number"); ``content``
    is then "". ``by_default`` marks a text that no file states: the tokenizer class fills it in.
    """

    role: Role | None
    name: str
    content: str
    at: Location
    malformed: str = ""
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class IdField:
    """One field of config.json or generation_config.json that names token ids.

    ``name`` is the field ("eos_token_id", "image_token_index", "suppress_tokens"); ``role`` is set where it
    is a role's id. ``ids`` are the integers found in it. ``malformed`` says what else stands there.
    ``by_default`` marks a value that the configuration class fills in because the file is silent, and
    ``padding_index`` one of those that the class makes the padding index of its input table.
    ``generation`` tells generation_config.json from config.json; ``section`` is the part of a composite
    config ("" for the top, "text_config", "decoder" ...).
    """

    name: str
    role: Role | None
    ids: tuple[int, ...]
    at: Location
    generation: bool = False
    section: str = ""
    malformed: str = ""
    is_list: bool = False
    by_default: bool = False
    padding_index: bool = False
    null: bool = False


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """What a chat template prints; it is read and never rendered.

    ``name`` is "default" or the name in a list of templates, ``text`` the source. ``control`` are the parts
    of what it can print that look like control tokens ("<|im_end|>") or are added tokens, in order.
    ``prints`` are the role variables it prints ("bos_token").
    ``turn_ends`` are the control tokens (or role variables, as "eos_token") that can end an assistant's turn;
    empty where that could not be worked out. ``problem`` says why the template has no facts at all, and
    ``broken`` whether that stops transformers as it reads the file ("encoding") or renders it ("syntax");
    else it is a limit of tokaudit. What is not UTF-8 stands in ``text`` as lone surrogates.
    """

    name: str
    at: Location
    control: tuple[str, ...] = ()
    prints: tuple[str, ...] = ()
    turn_ends: tuple[str, ...] = ()
    problem: str = ""
    broken: Literal["", "encoding", "syntax"] = ""
    text: str = ""

    @property
    def title(self) -> str:
        """Its name within a sentence: a file may give it any."""
        return pointed(self.name)
