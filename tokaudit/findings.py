"""A finding is a disagreement between witnesses: what is wrong, and the claims that contradict each other."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Severity(enum.IntEnum):
    """Ordered: ``Severity.NOTE < Severity.WARNING < Severity.ERROR``."""

    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Location:
    """Where a fact stands.

    ``file`` is the POSIX path inside the model directory ("" is the directory itself). Within it stands
    either a JSON ``pointer`` (RFC 6901, "" for the whole document) or a ``tensor`` name, with ``rows``
    (first, past the last) when only some rows of it are meant. A file ``outside`` the model directory (a
    lock, token data, an adapter's base) is a path as the caller gave it.
    """

    file: str
    pointer: str = ""
    tensor: str = ""
    rows: tuple[int, int] | None = None
    outside: bool = False

    def child(self, *keys: str | int) -> Location:
        """The location of a member: ``at.child("added_tokens", 3)``."""
        steps = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
        return replace(self, pointer=self.pointer + steps)

    @property
    def field(self) -> str:
        """The member as people write a field: "text_config.vocab_size"."""
        return self.pointer.removeprefix("/").replace("/", ".")

    def __str__(self) -> str:
        text = self.file or "."
        if self.tensor:
            text += f"#{self.tensor}"
        elif self.pointer:
            text += f"#{self.pointer}"
        if self.rows is not None:
            first, past = self.rows
            text += f"[{first}]" if past == first + 1 else f"[{first}:{past}]"
        return text


@dataclass(frozen=True, slots=True)
class Region:
    """A part of one line of a text file, counted from 1; ``end_column`` is past its last character.

    The one of a file without lines is its beginning.
    """

    line: int = 1
    column: int = 1
    end_column: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What one witness says: ``at`` is where it stands, ``says`` what stands there."""

    at: Location
    says: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one rule.

    ``message`` says what is wrong in one line, with numbers and token texts. ``claims`` are the witnesses,
    the first one primary. ``why`` is one line on the consequence, ``fix`` the command or the field value
    that mends it. ``subject`` names what the finding is about without numbers that drift ("pad",
    "lm_head.weight"), so that a finding can be recognised again. Texts that come from the model are
    raw here; whoever prints them escapes them.
    """

    rule: str
    slug: str
    severity: Severity
    message: str
    claims: tuple[Claim, ...]
    why: str
    fix: str
    subject: str = ""

    def __post_init__(self) -> None:
        if not self.claims:
            raise ValueError(f"{self.rule}: a finding needs at least one claim")


def fingerprint(finding: Finding) -> str:
    """Recognises a finding again: its rule, the file of its first claim and its subject, no numbers.

    64 hexadecimal digits.
    """
    import hashlib  # loads OpenSSL, which a report for people does without

    parts = ("tokaudit/v1", finding.rule, finding.claims[0].at.file, finding.subject)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
