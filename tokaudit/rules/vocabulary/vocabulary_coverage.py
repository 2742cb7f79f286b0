from __future__ import annotations

from collections.abc import Iterator

from tokaudit.contract import Contract, Pipeline, Vocabulary
from tokaudit.findings import Claim, Finding, Severity
from tokaudit.formats.vocabulary_files import byte_alphabet
from tokaudit.rule import Rule
from tokaudit.text import counted, listed

# UTF-8 text never contains these bytes.
_NOT_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


class VocabularyCoverage(Rule):
    """Some text cannot be encoded: byte tokens are missing, or there is no unknown token.

    ## What it finds

    - A byte-level BPE whose vocabulary lacks some of the 256 byte symbols (as added tokens they count). The
      13 bytes that UTF-8 never contains (0xC0, 0xC1, 0xF5 to 0xFF) are a note.
    - `byte_fallback` switched on while some of the tokens `<0x00>` to `<0xFF>` are missing.
    - No unknown token where the model needs one: a Unigram without `unk_id`, or a BPE over characters
      without `unk_token` and without byte fallback.

    ## Why it matters

    Text with such a byte or character loses it without a word, or encoding fails. It shows only with the
    first emoji, accent or script that the training text did not have.

    ## How to fix it

    Add the missing byte tokens, with rows for them; when you train a tokenizer, pass
    `initial_alphabet=ByteLevel.alphabet()`. Name an unknown token that the vocabulary has.
    """

    code = "TA408"
    severity = Severity.WARNING

    def check(self, contract: Contract) -> Iterator[Finding]:
        vocabulary = contract.vocabulary
        pipeline = vocabulary.pipeline
        fallback = pipeline.model.data.get("byte_fallback") is True
        if pipeline.byte_level and pipeline.model_type == "BPE":
            yield from self._symbols(vocabulary)
        elif fallback:
            yield from self._fallback(vocabulary)
        if _needs_unknown(pipeline) and not fallback:
            yield from self._unknown(pipeline)

    def _symbols(self, vocabulary: Vocabulary) -> Iterator[Finding]:
        alphabet = byte_alphabet()
        missing = [byte for byte in range(256) if alphabet[byte] not in vocabulary.by_content]
        if not missing:
            return
        needed = [byte for byte in missing if byte not in _NOT_IN_UTF8]
        harmless = len(missing) - len(needed)
        if needed:
            words = f"{_bytes(needed)}" + (
                f" (and {harmless} that no UTF-8 text contains)" if harmless else ""
            )
        else:
            words = f"{_bytes(missing)}, none of which UTF-8 text contains"
        yield self.finding(
            f"{counted(len(needed or missing), 'byte symbol')} missing from a byte-level vocabulary: {words}",
            [
                Claim(vocabulary.base.at, f"has {256 - len(missing)} of 256 byte symbols"),
                *_stage_claims(vocabulary.pipeline),
            ],
            why="text with one of these bytes loses it without a word"
            if needed
            else "only data that is no text contains them",
            fix="add the byte symbols to the vocabulary, and rows for them" if needed else "nothing",
            severity=Severity.WARNING if needed else Severity.NOTE,
            subject="bytes",
        )

    def _fallback(self, vocabulary: Vocabulary) -> Iterator[Finding]:
        missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary.by_content]
        if missing:
            yield self.finding(
                f"byte fallback is on, and {counted(len(missing), 'byte token')} missing: "
                + listed([f"<0x{byte:02X}>" for byte in missing], 4),
                [
                    vocabulary.pipeline.model.value("byte_fallback").says("true"),
                    Claim(vocabulary.base.at, f"has {256 - len(missing)} of 256 byte tokens"),
                ],
                why="a character with one of these bytes becomes the unknown token, or is lost",
                fix="add the byte tokens, and rows for them, or set byte_fallback to false",
                subject="byte_fallback",
            )

    def _unknown(self, pipeline: Pipeline) -> Iterator[Finding]:
        field = "unk_id" if pipeline.model_type == "Unigram" else "unk_token"
        if pipeline.model.data.get(field) is None:
            yield self.finding(
                f"the {pipeline.model_type} model has no {field}: characters it does not know have no token",
                [Claim(pipeline.model.at.child(field), "is not set")],
                why="encoding fails at such a character"
                if pipeline.model_type == "Unigram"
                else "such a character is lost without a word",
                fix=f"set {field} to an unknown token of the vocabulary",
                subject="unk",
            )


def _needs_unknown(pipeline: Pipeline) -> bool:
    """WordPiece and WordLevel cannot be without; byte symbols leave nothing unknown."""
    return pipeline.model_type == "Unigram" or (pipeline.model_type == "BPE" and not pipeline.byte_level)


def _stage_claims(pipeline: Pipeline) -> Iterator[Claim]:
    for part in ("pre_tokenizer", "normalizer"):
        stage = pipeline.stage(part, "ByteLevel")
        if stage is not None:
            yield Claim(stage.at, "maps text to byte symbols")


def _bytes(missing: list[int]) -> str:
    return listed([f"0x{byte:02X}" for byte in missing], 4)
