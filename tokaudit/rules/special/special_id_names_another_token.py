from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tokaudit.contract import Contract, IdField, Role
from tokaudit.errors import FactMissing
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.rule import Rule
from tokaudit.rules.special._ids import alike, forces, id_fields, path, places, states, token_ids
from tokaudit.rules.special._kind import LINE_BREAKS, is_text_tower
from tokaudit.text import listed, named, shown

MOST_IDS = 100  # of one field; real ones hold ten

# Words in a field's name or a token's text that mean the same.
_KINDS = {
    "image": ("image", "img", "boi", "eoi", "picture"),
    "video": ("video",),
    "audio": ("audio", "speech", "sound"),
}
_ENDS = {
    "start": ("start", "begin", "bos", "boi", "sos", "open"),
    "end": ("end", "eos", "eoi", "stop", "close"),
}
# Fields for what stands in a text where a picture or a sound does, and for its brackets.
_MARKER = re.compile(r"((image|video|audio|vision)(_start|_end)?|[be]o[ia])_token_(id|index)")
_WORD = re.compile(r"[\u2581\u0120]?\w+")
_CONTROL = re.compile(r"\W?(<\||</|[<\[{(|>\uff5c].+[>\]})|<\uff5c]\s*$)", re.DOTALL)


class SpecialIdNamesAnotherToken(Rule):
    """An id field of the configuration names a token that is meant for something else.

    ## What it finds

    For each id that `config.json` or `generation_config.json` names, the token that the tokenizer has there:

    - it has a different role in the tokenizer, and the role of the field has another token: a pad id that is
      the begin token's;
    - it is an ordinary piece of text, where a control token is meant: an end-of-sequence id that is "the";
    - its text contradicts the field: `video_start_token_id` at `<|end_of_image|>`;
    - a marker of images or sounds (`image_token_id`) is a word, or the bos, eos or pad token.

    One token in several roles is common and fine (`<|endoftext|>` as bos and eos), and so is a bos id in the
    configuration of a tokenizer that has no bos. An `<|endoftext|>` that a byte-level tokenizer declares as
    its unknown token, which no text becomes, is no other role. Ids at which generation also stops are not
    reported, nor end-of-sequence ids of models that do not generate.

    ## Why it matters

    Such ids come from another tokenizer, or are off by one. Generation stops at a word or never, padding
    looks like text, images are marked with the wrong bracket. Nothing fails.

    ## How to fix it

    Write the id that this tokenizer gives the token that is meant; the finding names it where it can be told.
    """

    code = "TA308"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        if contract.speaks_another_vocabulary:
            raise FactMissing("what the model generates is not in the tokenizer's vocabulary")
        stated = [field for field in id_fields(contract) if not field.by_default and not forces(field)]
        for group in alike(stated):
            wrong = [
                (id, text, because)
                for id in group[0].ids[:MOST_IDS]
                if (text := vocabulary.text(id)) is not None
                if (because := _mistaken(contract, group[0], id, text))
            ]
            if wrong:
                yield self._finding(contract, group, wrong)

    def _finding(
        self, contract: Contract, fields: Sequence[IdField], wrong: Sequence[tuple[int, str, str]]
    ) -> Finding:
        field = fields[0]
        own = contract.roles.get(field.role) if field.role else None
        right = (
            f"{own.id}, the tokenizer's {shown(own.content)}" if own else "the id of the token that is meant"
        )
        says = [f"{named(id, text)}, {because}" for id, text, because in wrong]
        return self.finding(
            f"{places(fields)} {'names' if len(fields) == 1 else 'name'} {listed(says, most=3)}",
            [
                *(states(contract, each) for each in fields),
                *(
                    Claim(contract.vocabulary.locate(id), f"id {named(id, text)}")
                    for id, text, _ in wrong[:3]
                ),
            ],
            why="the id is another tokenizer's or off by one: nothing fails, the wrong token is used",
            fix=f"set {path(field)} to {right}",
            subject=path(field),
        )


def _mistaken(contract: Contract, field: IdField, id: int, text: str) -> str:
    """Why the token is not what the field means; "" where it can be."""
    return _contradiction(contract, field, id, text) or _misnamed(contract, field, id, text)


def _contradiction(contract: Contract, field: IdField, id: int, text: str) -> str:
    """What in the token's text contradicts the field's name; "" where nothing does."""
    if _MARKER.fullmatch(field.name):
        given = [role for role in (Role.BOS, Role.EOS, Role.PAD) if _has(contract, role, id)]
        if given:
            return f"the tokenizer's {given[0].value} token"
        if _WORD.fullmatch(text) and _is_ordinary(contract, text):
            return "an ordinary piece of text"
    name_words, text_words = _words(field.name), _words(text)
    for groups in (_ENDS, _KINDS):
        meant = _groups(name_words, groups)
        found = _groups(text_words, groups)
        if field.role is None and meant and found and not meant & found:
            return f"whose text says {_or(found)} where the field says {_or(meant)}"
    return ""


def _words(text: str) -> set[str]:
    """The words of a name or a token: letters, split at marks and at inner capitals; ``</img>`` ends."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", spaced)}
    return words | {"end"} if text.startswith("</") else words


def _groups(words: set[str], groups: dict[str, tuple[str, ...]]) -> set[str]:
    return {group for group, members in groups.items() if words & set(members)}


def _or(words: set[str]) -> str:
    return " or ".join(f'"{word}"' for word in sorted(words))


def _misnamed(contract: Contract, field: IdField, id: int, text: str) -> str:
    """Why the token cannot be what the role field wants; "" where it can."""
    if field.role is None or is_text_tower(contract):
        return ""
    if field.role is Role.EOS and not contract.generates:
        return ""
    roles = contract.roles
    given = [role for role in roles if _has(contract, role, id) and not _is_idle(contract, role)]
    if field.role in given or (field.role is Role.EOS and _stops_anyway(contract, id)):
        return ""
    if given:
        return f"the tokenizer's {given[0].value} token" if field.role in roles else ""
    if _is_ordinary(contract, text):
        return "an ordinary piece of text"
    return ""


def _has(contract: Contract, role: Role, id: int) -> bool:
    token = contract.roles.get(role)
    return token is not None and id in token_ids(contract, token)


def _is_idle(contract: Contract, role: Role) -> bool:
    """An unknown token by name only: GPT-2's class fills in `<|endoftext|>`, and every byte is a token."""
    if role is not Role.UNK or not contract.vocabulary.pipeline.byte_level:
        return False
    return "unk" not in contract.roles[role].content.lower()


def _stops_anyway(contract: Contract, id: int) -> bool:
    """Whether the id is one of several stop ids that include the tokenizer's own."""
    stops = {stop for field in contract.stop_ids for stop in field.ids}
    eos = contract.roles.get(Role.EOS)
    return id in stops and eos is not None and bool(token_ids(contract, eos) & stops)


def _is_ordinary(contract: Contract, text: str) -> bool:
    """A token of the base vocabulary that no file adds, without the brackets of a control token.

    A line break is a deliberate end in captioning models; the empty token of Whisper is no text.
    """
    added = any(token.content == text for token in contract.vocabulary.added)
    return not (added or not text or text in LINE_BREAKS or _CONTROL.match(text))
